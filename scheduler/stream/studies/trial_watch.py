"""Reader of the statuses and metrics of trials' jobs; sender of what the tuner is to know of them.

Holds: of all other jobs nothing is decoded. One member of the group reads all partitions, so that it has a job's metrics when it sees the
end: that is sent once all points are read that were with the brokers when it was seen, and after their values. An offset is committed once
all that came before it was sent; what is read twice is sent twice, and counts once. What was read of a partition that was then given to
another member is that one's to send. What is read waits until this process has folded the tuner's journal as it was then: a trial is in it
before its job is submitted. While no trial is open nothing is read: metrics of all jobs are much, and what is there by then is of none that
begins later.
Never: decides.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from trainhouse.events import (
    EventId,
    InvalidEvent,
    JobState,
    JobStatus,
    StepMetrics,
    TrialJobObserved,
    TrialState,
    TrialValueObserved,
    decode,
)
from trainhouse.events.model.study import StudyEvent
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.topics import METRICS, STATUS, STUDY_REQUESTS, TRACKED_METRICS, TUNING
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.studies.study_state import StudyEntry, Trial, TunerState
from trainhouse.scheduler.core.studies.trial_jobs import PREFIX
from trainhouse.scheduler.stream.cancellation import still_wanted
from trainhouse.scheduler.stream.interfaces import Clock, Entry, Log
from trainhouse.scheduler.stream.kafka.group_member import WAIT_MS, GroupReading, read_as_member
from trainhouse.scheduler.stream.studies.trial_statuses import as_of_trial, deleted
from trainhouse.scheduler.stream.studies.trial_values import TrialValues

GROUP: Final = "trainhouse-tuner-trials"
SOURCE: Final = "trainhouse/trials"
MOST_RECORDS: Final = 500
EVERY_S: Final = 10.0
"""At most so often the newest values of a trial are sent, and its device-seconds; then offsets are committed."""
RETRY_S: Final = 1.0
_WORD: Final = PREFIX.encode()
_POINTS: Final = (METRICS, TRACKED_METRICS)
_HAS_DEVICES: Final = (JobState.INITIALIZING, JobState.RUNNING, JobState.CHECKPOINTING)
Trials = Mapping[str, tuple[StudyEntry, Trial]]
log_ = structlog.get_logger(__name__)


class OneMember(RangePartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
    """Assignment of all partitions to one member of the group."""

    name = "one"

    @classmethod
    def assign(cls, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Gives the first member everything."""
        first = min(members)
        topics = sorted((topic, sorted(cluster.partitions_for_topic(topic) or ())) for topic in members[first].subscription)
        return {member: ConsumerProtocolMemberAssignment(cls.version, topics if member == first else [], b"") for member in members}


@dataclass(slots=True)
class JobEnd:
    """Last status of a trial's job, and where it was read. `points`: ends of the metrics' partitions as of then, once they are known."""

    status: JobStatus
    place: TopicPartition
    offset: int
    points: dict[TopicPartition, int] | None = None


@dataclass(slots=True)
class TrialWatch:
    """One member of the group. `state`: the tuner's, as this process has folded it; None until it has. `folded_to`: offset of the tuner's
    journal that comes next in it."""

    log: Log
    clock: Clock
    state: Callable[[], TunerState | None]
    folded_to: Callable[[], int]
    _values: dict[str, TrialValues] = field(default_factory=dict)
    _ends: dict[str, JobEnd] = field(default_factory=dict)
    _running: dict[str, JobStatus] = field(default_factory=dict)
    _running_sent_s: dict[str, float] = field(default_factory=dict)
    _commit_due_s: float = 0.0
    _committed: dict[TopicPartition, int] = field(default_factory=dict)

    async def run(self, kafka: KafkaSettings, session_s: float) -> None:
        """Reads until cancelled."""
        options = {"partition_assignment_strategy": (OneMember,)}
        reading = GroupReading(GROUP, "trials' jobs", {"topics": [STATUS, *_POINTS]}, session_s, options)
        await read_as_member(kafka, reading, self.round, self._begin)

    def _begin(self) -> None:
        for kept in (self._values, self._ends, self._running, self._running_sent_s):
            kept.clear()
        self._committed.clear()

    async def round(self, consumer: Any) -> None:
        """Reads a batch, sends what is due, and commits what was sent."""
        state = self.state()
        if state is None:
            await asyncio.sleep(RETRY_S)
            return
        rests = next(state.jobs(), None) is None and not any((self._values, self._ends, self._running, self._running_sent_s))
        if rests:
            consumer.pause(*consumer.assignment())
        else:
            consumer.resume(*consumer.paused())
        found = await consumer.getmany(timeout_ms=WAIT_MS, max_records=MOST_RECORDS)
        records = [(place, each) for place, of_place in found.items() for each in of_place if _WORD in (each.value or each.key or b"")]
        if rests and not records:
            await self._go_on_behind(consumer)
            return
        while True:  # what was read is not read again
            still_wanted()
            try:
                state = await self._folded_on()
                trials = {trial.job_id: (entry, trial) for entry, trial in state.jobs()}
                for place, record in records:
                    self._take(trials, place, Entry.of(record))
                records = []
                await self._send(consumer, trials)
                return
            except LogUnavailableError as error:
                log_.warning("brokers away", error=str(error))
                await asyncio.sleep(RETRY_S)

    async def _go_on_behind(self, consumer: Any) -> None:
        """Now and then goes on behind what is there: it was before the journal was folded, in which no trial is open."""
        now_s = self.clock.steady_s()
        if now_s < self._commit_due_s:
            return
        self._commit_due_s = now_s + EVERY_S
        try:
            ends = await self._ends_of(consumer.assignment())
            state = await self._folded_on()
        except LogUnavailableError as error:
            log_.warning("brokers away", error=str(error))
            return
        if next(state.jobs(), None) is None:
            for place, at in ends.items():
                consumer.seek(place, at)
            await self._commit(consumer)

    async def _ends_of(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        parts: dict[str, list[int]] = {}
        for place in places:
            parts.setdefault(place.topic, []).append(place.partition)
        ends = {topic: await self.log.ends(topic, of_topic) for topic, of_topic in parts.items()}
        return {TopicPartition(topic, part): at for topic, of_topic in ends.items() for part, at in of_topic.items()}

    async def _folded_on(self) -> TunerState:
        """Waits until this process has folded the journal that there is now: by an older state, or none, trials that run would be unknown,
        and what is kept of them would be dropped and committed."""
        end = (await self.log.ends(TUNING, [0]))[0]
        while (state := self.state()) is None or self.folded_to() < end:
            still_wanted()
            await asyncio.sleep(0.02)
        return state

    def _take(self, trials: Trials, place: TopicPartition, entry: Entry) -> None:
        if entry.value is None:
            self._take_deletion(trials, place, entry)
            return
        try:
            event = decode(entry.value, entry.headers).event
        except InvalidEvent:
            return
        if isinstance(event, StepMetrics) and str(event.job_id) in trials:
            spec = trials[str(event.job_id)][0].spec
            values = self._values.setdefault(str(event.job_id), TrialValues(spec))
            values.take(event)
            values.places.add(place)
        elif isinstance(event, JobStatus) and str(event.job_id) in trials:
            job_id = str(event.job_id)
            status = as_of_trial(event, trials[job_id][1])
            if status is not None and status.state.final:
                self._ends[job_id] = JobEnd(status, place, entry.offset)
            elif status is not None and status.state in _HAS_DEVICES:
                self._running[job_id] = status

    def _take_deletion(self, trials: Trials, place: TopicPartition, entry: Entry) -> None:
        """Takes a tombstone: that of a job that has ended. An end that was read counts."""
        job_id = (entry.key or b"").decode(errors="replace").removesuffix(":submitted")  # refusals have the key of the submission
        if place.topic == STATUS and job_id in trials and job_id not in self._ends:
            self._ends[job_id] = JobEnd(deleted(job_id, entry.timestamp_ms), place, entry.offset)

    async def _send(self, consumer: Any, trials: Trials) -> None:
        assigned = frozenset(consumer.assignment())
        self._forget(trials, assigned)
        now_s = self.clock.steady_s()
        is_due = now_s >= self._commit_due_s
        for job_id, status in list(self._running.items()):
            await self._send_running(job_id, status, *trials[job_id], now_s)
        for job_id, values in self._values.items():
            if is_due or values.is_urgent or now_s - values.sent_s >= EVERY_S:
                await self._send_values(job_id, trials[job_id], values, now_s)
        for job_id in await self._due_ends(consumer, assigned):
            values = self._values.setdefault(job_id, TrialValues(trials[job_id][0].spec))
            await self._send_values(job_id, trials[job_id], values, now_s)
            await self._send_job(*trials[job_id], self._ends[job_id].status, values)
            del self._ends[job_id]
        if is_due:
            await self._commit(consumer)
            self._commit_due_s = now_s + EVERY_S

    def _forget(self, trials: Trials, assigned: frozenset[TopicPartition]) -> None:
        """Drops what is of no open trial, and what was read where another member reads now: that one reads it again."""
        for kept in (self._values, self._ends, self._running, self._running_sent_s):
            for job_id in kept.keys() - trials.keys():
                del kept[job_id]
        for job_id in [job_id for job_id, end in self._ends.items() if end.place not in assigned]:
            del self._ends[job_id]
        for job_id in [job_id for job_id, values in self._values.items() if values.places.isdisjoint(assigned)]:
            del self._values[job_id]

    async def _due_ends(self, consumer: Any, assigned: frozenset[TopicPartition]) -> list[str]:
        """Jobs whose ends were seen, and of whose points all are read that were with the brokers then. A partition that is another
        member's counts as not read."""
        new = [end for end in self._ends.values() if end.points is None]
        if new:
            points = await self._points_now(assigned)
            for end in new:
                end.points = points
        if not self._ends:
            return []
        read = {place: await consumer.position(place) for place in assigned if place.topic in _POINTS}
        return [
            job_id
            for job_id, end in self._ends.items()
            if end.points is not None and all(read.get(place, -1) >= at for place, at in end.points.items())
        ]

    async def _points_now(self, assigned: frozenset[TopicPartition]) -> dict[TopicPartition, int] | None:
        """Ends of the metrics' partitions; None where not all of them are this member's."""
        places = [TopicPartition(topic, part) for topic in _POINTS for part in await self.log.partitions(topic)]
        return await self._ends_of(places) if assigned.issuperset(places) else None

    async def _send_running(self, job_id: str, status: JobStatus, entry: StudyEntry, trial: Trial, now_s: float) -> None:
        bounds = entry.spec.budget
        is_wanted = trial.state is TrialState.WAITING or bounds.device_s is not None or bounds.cost is not None
        if is_wanted and now_s - self._running_sent_s.get(job_id, float("-inf")) >= EVERY_S:
            await self._send_job(entry, trial, status, None)
            self._running_sent_s[job_id] = now_s
            del self._running[job_id]

    async def _send_values(self, job_id: str, of: tuple[StudyEntry, Trial], values: TrialValues, now_s: float) -> None:
        entry, trial = of
        for step, by_metric in values.pending():
            about = {"trial": trial.number, "job_id": job_id, "step": step, "values": by_metric}
            event = TrialValueObserved.model_validate({"project": entry.project, "study": entry.study} | about)
            await self._publish(event, f"{job_id}:value:{step}", 0)
        values.sent(now_s)

    async def _send_job(self, entry: StudyEntry, trial: Trial, status: JobStatus, values: TrialValues | None) -> None:
        names = values.names if values is not None else set[str]()
        has_all = all(metric.name in names for metric in entry.spec.metrics)
        ranks = status.world_size or entry.spec.job.gang.ranks
        at_ms = status.finished_at_ms or status.updated_at_ms
        event = TrialJobObserved.model_validate(
            {
                "project": entry.project,
                "study": entry.study,
                "trial": trial.number,
                "job_id": trial.job_id,
                "state": status.state,
                "reason": status.reason,
                "device_s": max(0.0, status.elapsed_s or 0.0) * ranks,
                "logged": () if has_all else tuple(sorted(names)),
                "at_ms": at_ms,
            }
        )
        await self._publish(event, f"{trial.job_id}:status:{status.status_seq}", at_ms)

    async def _publish(self, event: StudyEvent, event_id: str, at_ms: int) -> None:
        envelope = envelope_of(event, id=EventId.parse(event_id), source=SOURCE, now_ms=at_ms)
        await self.log.send(STUDY_REQUESTS, event.subject().encode(), encode(envelope))

    async def _commit(self, consumer: Any) -> None:
        """Commits where reading goes on; of statuses, where the first end is that was not sent."""
        positions = {place: await consumer.position(place) for place in consumer.assignment()}
        for end in self._ends.values():
            if end.place in positions:
                positions[end.place] = min(positions[end.place], end.offset)
        news = {place: at for place, at in positions.items() if self._committed.get(place) != at}
        if news:
            await consumer.commit(news)
            self._committed |= news
