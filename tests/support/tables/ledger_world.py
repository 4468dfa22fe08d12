"""Attempts whose every second is scripted, told as the platform tells of them: events that its own builders turn into rows.

A script is a list of (what, seconds). `steps` are of equal length STEP_S and logged at their ends; `data` and `save` are waits that
heartbeats count; a `hang` is told by a verdict; `rest` is time in which ranks live and nothing is known; `idle`: the ranks are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.tables.alert_tables import Tables
from trainhouse.events.model.attempt import AttemptStarted, AttemptStopped, RankExited
from trainhouse.events.model.base import Event
from trainhouse.events.model.gang import GangAllocated, NodePlacement
from trainhouse.events.model.job import JobState, JobStatus
from trainhouse.events.model.node import AttemptHeartbeat, NodeHeartbeat, NodeRegistered, RankActivity, RankHeartbeat, RankState
from trainhouse.events.model.spec import Gang, JobSpec, Runtime
from trainhouse.events.model.telemetry import StepMetrics
from trainhouse.events.model.verdict import GangHung, VerdictLifted
from trainhouse.events.wire import topics

HOUR_MS = 3_600_000
T0 = 1_790_000_000_000 // HOUR_MS * HOUR_MS
STEP_S = 2.0
Told = tuple[str, Event, int]
"""Topic, event, and when it was told, ms."""
IN_LEDGER = {"start": "starting", "steps": "stepping", "data": "data_wait", "save": "checkpoint_stall", "hang": "hung"} | {
    "rest": "unknown",
    "idle": "idle",
}


def ms(at_s: float) -> int:
    """Seconds since the beginning of this world's first hour as ms since 1970."""
    return T0 + round(at_s * 1000)


@dataclass(frozen=True)
class Attempt:
    """One attempt. `ranks`: how many on each node. Off: heartbeats, metrics, the ranks' exits, the end are never told."""

    job_id: str
    epoch: int
    begin_s: float
    script: Sequence[tuple[str, float]]
    ranks: dict[str, int] = field(default_factory=lambda: {"n1": 2})
    first_step: int = 0
    pool: str = "p"
    beats: bool = True
    metrics: bool = True
    exits: bool = True
    ends: bool = True
    beat_s: float = 1.0

    @property
    def devices(self) -> int:
        return sum(self.ranks.values())

    @property
    def end_s(self) -> float:
        return self.begin_s + sum(s for _, s in self.script)

    def seconds(self) -> dict[str, float]:
        """Device-seconds in the ledger's words, if every step was kept."""
        found: dict[str, float] = {}
        for what, seconds in self.script:
            found[IN_LEDGER[what]] = found.get(IN_LEDGER[what], 0.0) + seconds * self.devices
        return found

    def told(self) -> Iterator[Told]:
        """What the platform would say, in any order."""
        yield topics.ALLOCATIONS, self._allocated(), ms(self.begin_s)
        gone_s = self._gone_s()
        first = 0
        for node, count in self.ranks.items():
            about: dict[str, Any] = {**self._of(), "pool": self.pool, "node_id": node}
            yield topics.CONTROL, AttemptStarted(**about, started_at_ms=ms(self.begin_s + 0.2), warm=True), ms(self.begin_s)
            if self.exits:
                for rank in range(first, first + count):
                    yield topics.CONTROL, RankExited(**about, rank=rank, exit_code=0, exited_at_ms=ms(gone_s)), ms(gone_s)
            if self.ends:
                yield topics.CONTROL, AttemptStopped(**about, boot_id="b", stopped_at_ms=ms(self.end_s)), ms(self.end_s)
            if self.beats:
                yield from self._heartbeats(node, first, count, gone_s)
            first += count
        if self.metrics:
            yield from self._metrics()
        yield from self._hangs()

    def _of(self) -> dict[str, Any]:
        return {"job_id": self.job_id, "attempt": self.epoch - 1, "epoch": self.epoch}

    def _gone_s(self) -> float:
        return self.begin_s + sum(s for what, s in self.script if what != "idle")

    def _allocated(self) -> GangAllocated:
        first, placements = 0, []
        for node, count in self.ranks.items():
            devices = tuple(f"{node}-{i}" for i in range(count))
            placements.append(NodePlacement(node_id=node, boot_id="b", address="a", first_rank=first, devices=devices))
            first += count
        spec = JobSpec(name=self.job_id, user="ada", gang=Gang(ranks=self.devices), runtime=Runtime(command=("true",)))
        of = {"spec": spec, "spec_sha256": "0" * 64, "placements": tuple(placements), "master_address": "a", "master_port": 1}
        return GangAllocated.model_validate(self._of() | of | {"pool": self.pool})

    def _steps(self) -> list[tuple[int, float]]:
        """(step, when it was logged)."""
        at, found = self.begin_s, list[tuple[int, float]]()
        for what, seconds in self.script:
            if what == "steps":
                found += [(self.first_step + len(found) + n, at + (n + 1) * STEP_S) for n in range(round(seconds / STEP_S))]
            at += seconds
        return found

    def _waited(self, what: str, at_s: float) -> float:
        """How long each rank had waited for `what` by then."""
        begin, total = self.begin_s, 0.0
        for kind, seconds in self.script:
            if kind == what:
                total += min(seconds, max(0.0, at_s - begin))
            begin += seconds
        return total

    def _doing(self, at_s: float) -> dict[str, Any]:
        """What the ranks say that they are at, and since when."""
        begin, words = self.begin_s, {"data": RankActivity.WAITING_FOR_DATA, "save": RankActivity.SAVING, "start": RankActivity.STARTING}
        for what, seconds in self.script:
            if begin <= at_s < begin + seconds:
                doing = words.get(what, RankActivity.STEPPING)
                return {"activity": doing, "activity_since_ms": ms(begin), "pulse_at_ms": ms(at_s)}
            begin += seconds
        return {}

    def _heartbeats(self, node: str, first: int, count: int, gone_s: float) -> Iterator[Told]:
        steps, at_s, sequence = self._steps(), self.begin_s + 0.7, 0
        while at_s < self.end_s:
            made = [s for s in steps if s[1] <= at_s]
            newest = {"step": made[-1][0] + 1, "step_at_ms": ms(made[-1][1])} if made else {}
            state = RankState.EXITED if at_s >= gone_s else RankState.RUNNING if made else RankState.STARTING
            waits = {"data_wait_s": self._waited("data", at_s), "save_stall_s": self._waited("save", at_s)} | self._doing(at_s)
            ranks = tuple(
                RankHeartbeat.model_validate({"rank": r, "device_id": f"{node}-{r - first}", "pid": 1, "state": state} | newest | waits)
                for r in range(first, first + count)
            )
            beats = (AttemptHeartbeat.model_validate(self._of() | {"ranks": ranks}),)
            about = {"node_id": node, "boot_id": "b", "incarnation": "i", "pool": self.pool, "interval_s": 1.0, "sequence": sequence}
            yield topics.HEARTBEATS, NodeHeartbeat.model_validate(about | {"at_ms": ms(at_s), "attempts": beats}), ms(at_s)
            at_s, sequence = at_s + self.beat_s, sequence + 1

    def _metrics(self) -> Iterator[Told]:
        steps = self._steps()
        if not steps:
            return
        points = {"steps": tuple(s for s, _ in steps), "times_ms": tuple(ms(at) for _, at in steps)}
        more = {"offsets": tuple(range(len(steps))), "metrics": {"loss": tuple(1.0 for _ in steps)}, "start": 0, "end": len(steps)}
        yield topics.METRICS, StepMetrics.model_validate(self._of() | {"rank": 0, "node_id": "n"} | points | more), ms(self.end_s)

    def _hangs(self) -> Iterator[Told]:
        at = self.begin_s
        for what, seconds in self.script:
            if what == "hang":
                found = {"pool": self.pool, "silent_s": seconds / 2, "limit_s": 1.0, "at_ms": ms(at + seconds / 2)}
                yield topics.VERDICTS, GangHung.model_validate(self._of() | found), ms(at + seconds / 2)
                of = {"of": GangHung.event_type, "job_id": self.job_id, "epoch": self.epoch, "pool": self.pool}
                yield topics.VERDICTS, VerdictLifted.model_validate(of | {"at_ms": ms(at + seconds), "since_ms": ms(at)}), ms(at + seconds)
            at += seconds


def tell(tables: Tables, told: Iterable[Told]) -> None:
    """Into the tables: events that say when they happened by topic, the others one by one."""
    batches: dict[tuple[str, int], list[Event]] = {}
    for topic, event, at_ms in told:
        batches.setdefault((topic, 0 if hasattr(event, "at_ms") else at_ms), []).append(event)
    for (topic, at_ms), events in batches.items():
        tables.put(topic, events, at_ms)


def ended(job_id: str, at_s: float, state: JobState = JobState.SUCCEEDED, **more: Any) -> Told:
    """The job's last status."""
    about = {"job_id": job_id, "status_seq": 9, "state": state, "updated_at_ms": ms(at_s), "finished_at_ms": ms(at_s), "pool": "p"}
    return topics.STATUS, JobStatus.model_validate(about | {"team": "red", "project": "p1", "user": "ada"} | more), ms(at_s)


def node(node_id: str, devices: int, device_type: str = "H100", **labels: str) -> Told:
    """The node, since an hour before this world's first."""
    listed = tuple({"device_id": f"{node_id}-{i}", "index": i, "type": device_type} for i in range(devices))
    about = {"node_id": node_id, "boot_id": "b", "incarnation": "i", "pool": "p", "address": "a", "rendezvous_ports": (1,)}
    return topics.CONTROL, NodeRegistered.model_validate(about | {"devices": listed, "labels": labels}), T0 - HOUR_MS
