"""The ranks of a whole gang, wherever its nodes are: they begin when all are up, step together, and end together.

Holds: work begins only when every node of the gang has started its ranks; when one rank is gone before its time, the others wait for their
peer until they are told to stop; a saved position outlives the attempt, and the next one goes on from there.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Protocol

from trainhouse.events import CheckpointCompleted, CheckpointRequested, CheckpointStarted, Event, GangAllocated, RankActivity
from trainhouse.events.wire.topics import CHECKPOINTS, CONTROL
from trainhouse.workers.agent.core import AttemptKey
from trainhouse.workers.agent.core.telemetry import RankIdentity
from trainhouse.workers.agent.ship.rank_shipper import PROGRESS_INTERVAL_MS, RankProgress
from trainhouse.workers.fleet.scripts import RankScript
from trainhouse.workers.fleet.timers import Due, Timer, Timers

EXIT_STOPPED = 75  # a rank that was asked to save and stop, and did; as the session's
MAX_SAVED = 50_000
# A chain whose earlier commits this process never saw goes on above any that an earlier epoch can have made.
COMMITS_PER_EPOCH = 1_000
BYTES_PER_RANK = 8 * 1024**3


class Host(Protocol):
    """A node, as a gang sees it."""

    node_id: str

    def rank_ends(self, key: AttemptKey, rank: int, now_ms: int, exit_code: int, reason: str = "") -> None:
        """A rank's process ends by itself."""

    def publish(self, topic: str, event: Event, event_id: str) -> None:
        """Writes a rank's event: it goes out when the node's agent can send it."""

    def report_progress(self, event: Event, event_id: str, beside: bool) -> bool:
        """The newest progress; forgotten, and False, when the agent cannot send it now. `beside`: not to control."""


@dataclass(frozen=True)
class Saved:
    """The newest commit of a job: its number and how much work it holds."""

    commit: int
    done_ms: int


class Gangs:
    """All gangs that have a process anywhere, and what jobs have saved (of the last MAX_SAVED jobs)."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.saved: OrderedDict[str, Saved] = OrderedDict()
        self.whole = 0
        self._runs: dict[AttemptKey, GangRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def running(self) -> list["GangRun"]:
        return [r for r in self._runs.values() if r.runs]

    def started(self, allocation: GangAllocated, script: RankScript, host: Host, now_ms: int) -> None:
        """A node's ranks have processes."""
        key = AttemptKey(allocation.job_id, int(allocation.epoch))
        if key not in self._runs:
            self._runs[key] = GangRun(self, allocation, script)
        self._runs[key].joined(host, now_ms)

    def rank_gone(self, key: AttemptKey, node_id: str, last: bool) -> None:
        """A rank's process has ended; `last`: its node has none of the attempt left."""
        run = self._runs.get(key)
        if run is None:
            return
        run.halt()
        if last:
            run.hosts.pop(node_id, None)
            if not run.hosts:
                del self._runs[key]

    def asked(self, key: AttemptKey, request: CheckpointRequested, now_ms: int) -> None:
        """The ranks are asked to save."""
        if key in self._runs:
            self._runs[key].asked(request, now_ms)

    def progress(self, key: AttemptKey, rank: int, now_ms: int) -> RankProgress:
        """For heartbeats: what the gang is at, and that this rank is alive."""
        run = self._runs.get(key)
        if run is None or run.newest.step is None:
            return RankProgress()
        return replace(run.newest, pulse_at_ms=run.stopped_ms.get(rank, now_ms))

    def stop_rank(self, key: AttemptKey, rank: int, now_ms: int) -> None:
        """A rank's process is stopped, as by SIGSTOP: it shows no life, and the others wait for it."""
        run = self._runs.get(key)
        if run is not None:
            run.stopped_ms[rank] = now_ms
            run.halt()

    def stopped(self, key: AttemptKey, rank: int) -> bool:
        """Returns whether it is."""
        run = self._runs.get(key)
        return run is not None and rank in run.stopped_ms

    def save(self, job_id: str, epoch: int, done_ms: int) -> int:
        """Notes a commit; its number."""
        old = self.saved.pop(job_id, None)
        commit = old.commit + 1 if old is not None else epoch * COMMITS_PER_EPOCH
        self.saved[job_id] = Saved(commit, done_ms)
        if len(self.saved) > MAX_SAVED:
            self.saved.popitem(last=False)
        return commit

    def position_ms(self, job_id: str) -> int:
        """Returns the saved work of a job."""
        saved = self.saved.get(job_id)
        return saved.done_ms if saved is not None else 0


class GangRun:
    """One attempt's ranks. `hosts`: the nodes that have processes of it."""

    def __init__(self, gangs: Gangs, allocation: GangAllocated, script: RankScript) -> None:
        self.allocation = allocation
        self.script = script
        self.hosts: dict[str, Host] = {}
        self.newest = RankProgress()
        self.stopped_ms: dict[int, int] = {}
        self._gangs = gangs
        self._identity = RankIdentity.of(allocation, allocation.placements[0].node_id, 0)
        self._began_ms: int | None = None
        self._from_ms = 0
        self._halted = False
        self._timers: list[Timer] = []
        self._request: CheckpointRequested | None = None
        self._saving = False
        self._progressed = False

    @property
    def runs(self) -> bool:
        return self._began_ms is not None and not self._halted

    def trained_ms(self, now_ms: int) -> int:
        """Returns the time for which this attempt has trained without a pause, ms; 0 when it does not train."""
        return now_ms - self._began_ms if self._began_ms is not None and not self._halted else 0

    def joined(self, host: Host, now_ms: int) -> None:
        """A node's ranks are up."""
        self.hosts[host.node_id] = host
        if not self._halted and self._began_ms is None and len(self.hosts) == len(self.allocation.placements):
            self._begin(now_ms)

    def halt(self) -> None:
        """A peer is gone: nothing moves any more."""
        self._halted = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def asked(self, request: CheckpointRequested, now_ms: int) -> None:
        """Saves, now or as soon as the gang works; each request is answered once, however many nodes pass it on."""
        if request == self._request:
            return
        self._request = request
        if self.runs and not self._saving:
            self._save(now_ms, request.reason)

    def _begin(self, now_ms: int) -> None:
        self._gangs.whole += 1
        script = self.script
        self._from_ms = min(self._gangs.position_ms(str(self.allocation.job_id)), script.run_ms)
        self._began_ms = now_ms
        self._set(now_ms + script.run_ms - self._from_ms, self._finish)
        self._set(now_ms + script.step_ms, self._step)
        if script.crash_at_ms is not None:
            self._set(now_ms + script.crash_at_ms, self._crash)
        if script.checkpoint_ms:
            self._set(now_ms + script.checkpoint_ms, self._periodic)
        if self._request is not None:
            self._save(now_ms, self._request.reason)

    def _set(self, at_ms: int, do: Due) -> None:
        self._timers = [t for t in self._timers if t.waits]
        self._timers.append(self._gangs.timers.at(at_ms, do))

    def _done_ms(self, now_ms: int) -> int:
        assert self._began_ms is not None
        return min(self.script.run_ms, self._from_ms + now_ms - self._began_ms)

    def _step(self, now_ms: int) -> None:
        self._report_progress(now_ms, self._done_ms(now_ms) // self.script.step_ms)
        self._set(now_ms + max(self.script.step_ms, PROGRESS_INTERVAL_MS), self._step)

    def _report_progress(self, now_ms: int, step: int, last: bool = False) -> None:
        step_ms = float(self.script.step_ms)
        self.newest = RankProgress(
            step,
            now_ms,
            1000 / step_ms,
            activity=RankActivity.STEPPING,
            activity_since_ms=self._began_ms,
            step_time_p99_ms=step_ms,
            longest_step_ms=step_ms,
            work_time_ms=step_ms,
            fastest_work_time_ms=step_ms,
        )
        event = self._identity.progress(
            {"step": step, "total_steps": self.script.total_steps, "steps_per_s": self.newest.steps_per_s, "at_ms": now_ms, "last": last}
        )
        first = self.hosts.get(str(self._identity.node_id))
        if event is not None and first is not None:
            accepted = first.report_progress(event, self._identity.event_id("progress", step), beside=self._progressed and not last)
            self._progressed = self._progressed or accepted

    def _periodic(self, now_ms: int) -> None:
        self._set(now_ms + self.script.checkpoint_ms, self._periodic)
        if not self._saving:
            self._save(now_ms, "it was time")

    def _save(self, now_ms: int, reason: str) -> None:
        """Begins to save where the work is now; training goes on meanwhile."""
        self._saving = True
        done_ms = self._done_ms(now_ms)
        step = done_ms // self.script.step_ms
        ids = {"job_id": self._identity.job_id, "attempt": self._identity.attempt, "epoch": self._identity.epoch}
        self._publish(
            CHECKPOINTS, CheckpointStarted(**ids, at_ms=now_ms, step=step, reason=reason), self._identity.event_id("saving", now_ms)
        )
        request = self._request
        self._set(now_ms + self.script.save_ms, lambda then_ms: self._saved(then_ms, done_ms, request))

    def _saved(self, now_ms: int, done_ms: int, request: CheckpointRequested | None) -> None:
        self._saving = False
        identity, ranks = self._identity, self.allocation.world_size
        commit = self._gangs.save(str(identity.job_id), int(identity.epoch), done_ms)
        event = CheckpointCompleted(
            job_id=identity.job_id,
            attempt=identity.attempt,
            epoch=identity.epoch,
            at_ms=now_ms,
            commit=commit,
            step=done_ms // self.script.step_ms,
            uri=f"emulated://{identity.job_id}/commits/{commit}",
            bytes_total=ranks * BYTES_PER_RANK,
            bytes_new=ranks * BYTES_PER_RANK,
            upload_s=self.script.save_ms / 1000,
            world_size=ranks,
        )
        for topic in (CHECKPOINTS, CONTROL):
            self._publish(topic, event, f"{identity.job_id}:commit:{commit}")
        if request is not None and request.then_stop:
            self._end_all(now_ms, EXIT_STOPPED, "it was asked to save and stop")
        elif self._request is not request and self._request is not None:
            self._save(now_ms, self._request.reason)

    def _publish(self, topic: str, event: Event, event_id: str) -> None:
        first = self.hosts.get(str(self._identity.node_id))
        if first is not None:
            first.publish(topic, event, event_id)

    def _finish(self, now_ms: int) -> None:
        code = self.script.exit_code
        self._report_progress(now_ms, self.script.total_steps, last=True)
        self._end_all(now_ms, code, "" if code == 0 else f"its script ends with code {code}")

    def _crash(self, now_ms: int) -> None:
        rank = self.script.crash_rank
        self.halt()
        part = next(p for p in self.allocation.placements if rank in p.ranks)
        self.hosts[str(part.node_id)].rank_ends(
            AttemptKey(str(self._identity.job_id), int(self._identity.epoch)), rank, now_ms, 1, "it crashed"
        )

    def _end_all(self, now_ms: int, code: int, why: str) -> None:
        self.halt()
        key = AttemptKey(str(self._identity.job_id), int(self._identity.epoch))
        for part in self.allocation.placements:
            host = self.hosts.get(str(part.node_id))
            for rank in part.ranks if host is not None else ():
                assert host is not None
                host.rank_ends(key, rank, now_ms, code, why)
