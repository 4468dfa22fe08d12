"""Ships what one rank writes: spool and output, as events with byte ranges.

Holds: telemetry is offered only while the outbox has room, so memory is bounded and the files are the buffer; progress goes out at
most once in PROGRESS_INTERVAL_MS, the first at once and the last before the rank's end is told: these two to control, all others beside it.
Never: lets a line that it can't read, or a flood of output, stop anything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from trainhouse.events import CheckpointCompleted, Envelope, Event, ProgressReported, RankActivity, RankHeartbeat, envelope_of
from trainhouse.events.model.data_read import DataRead
from trainhouse.events.wire.topics import CONTROL, LOGS, METRICS, PROGRESS
from trainhouse.workers.agent.core.loglines import LogCut, cut_log
from trainhouse.workers.agent.core.spool import SpoolCut, cut_spool
from trainhouse.workers.agent.core.telemetry import RankIdentity
from trainhouse.workers.agent.periodic import due
from trainhouse.workers.agent.ship.file_tail import FileTail
from trainhouse.workers.agent.ship.outbox import Outbox
from trainhouse.workers.agent.ship.spool_cover import SpoolCover
from trainhouse.workers.launcher import RankPaths

PROGRESS_INTERVAL_MS = 1_000
REPEAT_INTERVAL_MS = 10_000
LOG_PIECE_BYTES = 96 * 1024
KEPT_END_BYTES = 64 * 1024
OF_LIFE = tuple(n for n in RankHeartbeat.model_fields if n in ProgressReported.model_fields and n not in ("rank", "step"))
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class RankProgress:
    """The newest that a rank told of itself, for heartbeats. `step_at_ms` is when its last step was seen.

    Fields are those of RankHeartbeat; a rank without a session leaves them as they are here.
    """

    step: int | None = None
    step_at_ms: int | None = None
    steps_per_s: float | None = None
    data_wait_s: float = 0.0
    save_stall_s: float = 0.0
    pulse_at_ms: int | None = None
    activity: RankActivity | None = None
    activity_since_ms: int | None = None
    activity_limit_s: float | None = None
    step_time_p99_ms: float | None = None
    longest_step_ms: float | None = None
    work_time_ms: float | None = None
    fastest_work_time_ms: float | None = None


class RankShipper:
    """One rank's files. `positions` are those that an earlier agent saved."""

    def __init__(
        self,
        identity: RankIdentity,
        paths: RankPaths,
        outbox: Outbox,
        control_partition: Callable[[], int | None],
        source: str,
        log_limit_bytes: int,
        positions: dict[str, int],
        cover: SpoolCover | None = None,
    ) -> None:
        self.identity = identity
        self.paths = paths
        self.newest = RankProgress()
        self.dropped_bytes = self.unnamed_reads = 0
        self._outbox = outbox
        self._control_partition = control_partition
        self._source = source
        self._log_limit = log_limit_bytes
        self._cover = cover
        self.spool = FileTail(lambda: paths.spool, positions.get("spool", 0))
        files = {"stdout": paths.stdout, "stderr": paths.stderr, "stacks": paths.stacks}
        self.outputs = {stream: FileTail(path, positions.get(stream, 0)) for stream, path in files.items()}
        self._report_at_ms: int | None = None
        self._reporting = False
        self._unreported: tuple[int, ProgressReported] | None = None
        self._reported: tuple[int, ProgressReported] | None = None
        self._reported_beside = False
        self._repeat_at_ms = 0
        self._last: tuple[object, ...] | None = None
        self._session_reported = False

    def positions(self) -> dict[str, int]:
        """Returns the offset of each file up to which the brokers hold it."""
        return {"spool": self.spool.acked, **{s: t.acked for s, t in self.outputs.items()}}

    def free_shipped(self) -> None:
        """Gives the space of the shipped spool back; call it when the positions are saved. Logs stay for people to read."""
        self.spool.free(self.spool.acked)

    def lag_bytes(self) -> int:
        return sum(max(0, t.size - t.acked) for t in (self.spool, *self.outputs.values()))

    def shipped(self) -> bool:
        """Returns whether the brokers hold all of it. Meaningful once nobody writes any more."""
        tails = (self.spool, *self.outputs.values())
        return all(t.look() == 0 and t.acked == t.sent for t in tails) and self._unreported is None and not self._reported_beside

    def pump(self, now_ms: int, final: bool = False) -> bool:
        """Ships the next piece of each file; True while there is more. `final`: nobody writes any more."""
        more = self.pump_spool(now_ms, final)
        for stream, tail in self.outputs.items():
            more = self._pump_output(stream, tail, now_ms, final) or more
        return more

    def pump_spool(self, now_ms: int, final: bool = False) -> bool:
        """Ships the next piece of the spool; True while there is more."""
        new = self.spool.look()
        if new and self._outbox.room() and self._control_partition() is not None and (self._cover is None or self._cover.ready()):
            data = self.spool.read()
            cut = cut_spool(data, self.spool.sent, final and len(data) >= new)
            if cut.end > cut.start:
                if self._cover is not None:
                    self._cover.cover(cut)
                self._send_spool(cut, now_ms)
        self.report_progress(now_ms, at_once=final)
        return self.spool.look() > 0 and self._outbox.room() and bool(new) and cut_made_progress(self.spool, new)

    def report_progress(self, now_ms: int, at_once: bool = False) -> None:
        """Reports the newest progress of rank 0, if it is due: the first to control, others beside it, and `at_once` the last to control.

        One that nothing follows is repeated now and then, for a scheduler that has just taken over.
        """
        if self._control_partition() is None:
            return  # the node is registering: it is reported when that is done
        if at_once:
            self._report_last(now_ms)
            return
        found = self._unreported
        if found is None and self._reported is not None and due(self._repeat_at_ms, now_ms, REPEAT_INTERVAL_MS):
            found = self._reported
        in_time = self._report_at_ms is None or due(self._report_at_ms, now_ms, PROGRESS_INTERVAL_MS)
        if found is None or self._reporting or not in_time:
            return  # while the brokers are away, one report waits, and the newest replaces those that were not sent
        self._report(CONTROL if self._reported is None else PROGRESS, found, now_ms)

    def _report_last(self, now_ms: int) -> None:
        found = self._unreported or (self._reported if self._reported_beside else None)
        if found is not None:
            self._report(CONTROL, (found[0], found[1].model_copy(update={"last": True})), now_ms)

    def _report(self, topic: str, found: tuple[int, ProgressReported], now_ms: int) -> None:
        self._unreported, self._reported, self._reported_beside, self._reporting = None, found, topic == PROGRESS, True
        self._report_at_ms, self._repeat_at_ms = now_ms + PROGRESS_INTERVAL_MS, now_ms + REPEAT_INTERVAL_MS
        self._send(topic, found[1], self.identity.event_id("progress", found[0]), now_ms, self._progress_acked)

    def _progress_acked(self) -> None:
        self._reporting = False

    def close(self) -> None:
        for tail in (self.spool, *self.outputs.values()):
            tail.close()

    def _send_spool(self, cut: SpoolCut, now_ms: int) -> None:
        if cut.unreadable:
            log.warning("lines of a spool cannot be read; passing over them", rank=str(self.paths.folder), lines=cut.unreadable)
        records: list[tuple[str, Event, str]] = []
        for batch in cut.batches:
            records.append((METRICS, self.identity.metrics(batch), self.identity.event_id("metrics", batch.start)))
        for found in cut.events:
            record = self.identity.record_of(found, now_ms)
            if record is None:
                log.warning("a spool holds an event that no rank may tell; passing over it", offset=found.offset, job=self.identity.job_id)
                continue
            topic, event, event_id = record
            if isinstance(event, DataRead):
                event, unnamed = self.identity.of_spec(event)
                self.unnamed_reads += unnamed
                if unnamed:
                    log.warning(
                        "a report of data names versions that the job's spec does not; leaving them and their shards out",
                        job=self.identity.job_id,
                        left_out=unnamed,
                        of_attempt=self.unnamed_reads,
                    )
            records.append((topic, event, event_id))
            if isinstance(record[1], CheckpointCompleted):
                records.append((CONTROL, *record[1:]))
        self._note(cut, now_ms)
        acked = self.spool.advance(cut.end, len(records))
        for topic, event, event_id in records:
            self._send(topic, event, event_id, now_ms, acked)

    def _note(self, cut: SpoolCut, now_ms: int) -> None:
        """Remembers the newest sign of life, and the newest step, told or seen in metrics."""
        alive = None if cut.pulse is None else self.identity.progress({"at_ms": now_ms, "step": 0} | cut.pulse)
        if alive is not None:
            self.newest.steps_per_s = alive.steps_per_s
            for name in OF_LIFE:
                setattr(self.newest, name, getattr(alive, name))
        if alive is not None and cut.progress is None and self._last is None:
            self._report_session(alive)
        progress = None if cut.progress is None else self.identity.progress({"at_ms": now_ms} | cut.progress)
        if progress is not None and cut.progress is not None:
            ended_ms = cut.progress.get("step_at_ms")
            self._step(progress.step, ended_ms if type(ended_ms) is int else progress.at_ms)
            self._report_later(cut.progress_offset, progress)
        if cut.batches:
            self._step(cut.batches[-1].steps[-1], cut.batches[-1].times_ms[-1])

    def _report_session(self, alive: ProgressReported) -> None:
        """Reports rank 0's session to the scheduler once, before its first progress."""
        if self.identity.rank == 0 and not self._session_reported:
            self._session_reported = True
            self._send(CONTROL, self.identity.session_opened(alive.at_ms), self.identity.event_id("session", 0), alive.at_ms)

    def _report_later(self, offset: int, progress: ProgressReported) -> None:
        """Queues progress for the scheduler: only rank 0's, and only if it changed; heartbeats show that a waiting rank lives."""
        new = (progress.step, progress.total_steps, progress.saving)
        if self.identity.rank == 0 and new != self._last:
            self._unreported, self._last = (offset, progress), new

    def _step(self, step: int, at_ms: int) -> None:
        if self.newest.step is None or step > self.newest.step:
            self.newest.step, self.newest.step_at_ms = step, at_ms

    def _pump_output(self, stream: str, tail: FileTail, now_ms: int, final: bool) -> bool:
        new = tail.look()
        if not new or not self._outbox.room():
            return False
        if tail.sent >= self._log_limit and tail.size - tail.sent > KEPT_END_BYTES:
            self._drop(stream, tail, now_ms)
            return False
        if tail.sent >= self._log_limit and not final:
            return False  # the end of a flood is reported when it is known to be the end
        data = tail.read(LOG_PIECE_BYTES)
        cut = cut_log(data, tail.sent, final and len(data) >= new)
        if cut.end == cut.start:
            return False
        acked = tail.advance(cut.end, 1)
        self._send_lines(cut, stream, now_ms, acked)
        return tail.look() > 0

    def _drop(self, stream: str, tail: FileTail, now_ms: int) -> None:
        """Beyond the limit only the end is kept: the rest leaves the disk, and one line says so."""
        begin, end = tail.sent, tail.size - KEPT_END_BYTES
        first = self.dropped_bytes == 0
        self.dropped_bytes += end - begin
        tail.skip_to(end)
        if first:
            limit_mib = self._log_limit / 2**20
            kept = f"all but the last {KEPT_END_BYTES // 1024} KiB of what follows is dropped"
            line = f"[trainhouse: {stream} is over {limit_mib:.0f} MiB; {kept}. Write less, or to files of your own]"
            cut = LogCut(begin, end, [line], [begin])
            self._send_lines(cut, stream, now_ms, None)

    def _send_lines(self, cut: LogCut, stream: str, now_ms: int, acked: Callable[[], None] | None) -> None:
        self._send(LOGS, self.identity.log_lines(cut, stream, now_ms), self.identity.event_id(stream, cut.start), now_ms, acked)

    def _send(self, topic: str, event: Event, event_id: str, now_ms: int, on_ack: Callable[[], None] | None = None) -> None:
        envelope: Envelope = envelope_of(event, id=event_id, source=self._source, now_ms=now_ms)
        if topic in (CONTROL, PROGRESS):
            partition = self._control_partition()
            assert partition is not None, "they are written only once the pool's partition is known"
            self._outbox.offer(topic, envelope, key=self.identity.pool, partition=partition, on_ack=on_ack)
        else:
            self._outbox.offer(topic, envelope, key=str(self.identity.job_id), on_ack=on_ack)


def cut_made_progress(tail: FileTail, new_before: int) -> bool:
    """Returns whether a pump took anything: otherwise a last partial line would make a loop busy."""
    return tail.look() < new_before


def positions_of(saved: Any) -> dict[str, int]:
    """Saved positions, as far as they make sense."""
    if not isinstance(saved, dict):
        return {}
    return {k: v for k, v in saved.items() if k in ("spool", "stdout", "stderr", "stacks") and type(v) is int and v >= 0}
