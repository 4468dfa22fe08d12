"""The shell of intake's first stage: batches of the public topic in, admissions and dead letters out, acked before Faust may commit.

Holds: never raises into Faust (it would ack the batch all the same): a batch is out, or the process crashes and reads it again.
What our own code fails on is set aside like everything that cannot be read, and its sender gets that; all others are served meanwhile. Each
kind of such a fault is logged once in REMIND_S of each topic, with how often it came. Each admission names the record that it comes from by
its topic's id, which is asked for again whenever offsets go back: the topic may have been made anew under its name.
"""

import asyncio
import contextlib

import structlog

from trainhouse.events.wire.topics import ADMISSION, DEAD_LETTERS, JOBS
from trainhouse.scheduler.core.errors import LogUnavailableError, SchedulerError
from trainhouse.scheduler.core.intake.screening import Arrived, Screened, screen
from trainhouse.scheduler.core.protocol.publication import Outgoing
from trainhouse.scheduler.stream.interfaces import Clock, Entry, Log, Publisher
from trainhouse.scheduler.stream.journal.project_statuses import ProjectStatuses
from trainhouse.scheduler.stream.metrics import ScreeningMeters
from trainhouse.scheduler.stream.process import crash

GIVE_UP_S = 60.0
RETRY_S = 0.3
REMIND_S = 30.0
MOST_FAULTS = 1_000
log_ = structlog.get_logger(__name__)


class ScreeningAgent:
    """Screens batches. One plain publisher, replaced when it fails. `handled`: the last offset that is out, by partition."""

    def __init__(self, log: Log, clock: Clock, meters: ScreeningMeters | None = None) -> None:
        self._log = log
        self._clock = clock
        self._faults: dict[tuple[str, str], tuple[float, int]] = {}
        self._publisher: Publisher | None = None
        self._projects = ProjectStatuses(log, clock)
        self._admission_partitions = 0
        self._topic_ids: dict[str, str] = {}
        self._read_to: dict[tuple[str, int], int] = {}
        self.meters = meters or ScreeningMeters()
        self.handled: dict[int, int] = {}

    async def take(self, by_partition: dict[int, list[Entry]]) -> None:
        """Handles a batch of the public topic to its end; crashes the process when the brokers stay away."""
        entries = [e for entries in by_partition.values() for e in entries]
        await self.take_from(JOBS, entries)
        self.handled |= {e.partition: e.offset for e in entries}

    async def take_from(self, topic: str, entries: list[Entry]) -> None:
        """The same for the public topic, or a project's."""
        try:
            await self._take(topic, entries)
        except Exception as error:
            crash(error)

    async def _take(self, topic: str, entries: list[Entry]) -> None:
        if not self._admission_partitions:
            self._admission_partitions = len(await self._log.partitions(ADMISSION))
        topic_id = await self._id_of(topic, entries)
        screened = [screen(_arrived(topic, topic_id, e), self._admission_partitions, self._clock.now_ms()) for e in entries]
        self._say(topic, screened)
        await self._send([o for s in screened for o in s.outgoing])
        self.meters.screened.inc(len(entries))
        self.meters.dead.inc(sum(o.topic == DEAD_LETTERS for s in screened for o in s.outgoing))
        self.meters.own_failures.inc(sum(bool(s.own_failure) for s in screened))

    async def _id_of(self, topic: str, entries: list[Entry]) -> str:
        """The topic's id. An offset that is not beyond all before may be of another topic of that name."""
        went_back = False
        for e in entries:
            went_back |= e.offset <= self._read_to.get((topic, e.partition), -1)
            self._read_to[topic, e.partition] = e.offset
        if went_back or not self._topic_ids.get(topic):
            self._topic_ids[topic] = await self._asked_id(topic)
        return self._topic_ids[topic]

    async def _asked_id(self, topic: str) -> str:
        """As the brokers say now; empty for a topic that was deleted since: none of its records can be read again."""
        give_up_s = self._clock.steady_s() + GIVE_UP_S
        while True:
            try:
                return await self._log.topic_id(topic)
            except LogUnavailableError as error:
                log_.warning("the topic's id is not known; it is asked for again", topic=topic, error=str(error))
                if self._clock.steady_s() > give_up_s:
                    raise SchedulerError(f"the id of {topic} is not known after {GIVE_UP_S:.0f} s: {error}") from error
            with contextlib.suppress(LogUnavailableError):
                if not await self._log.existing([topic]):
                    return ""
            await asyncio.sleep(RETRY_S)

    async def _send(self, batch: list[Outgoing]) -> None:
        give_up_s = self._clock.steady_s() + GIVE_UP_S
        while batch:
            try:
                if self._publisher is None:
                    self._publisher = await self._log.open_publisher(None)
                await self._publisher.send(await self._projects.keep(batch))
                return
            except LogUnavailableError as error:
                log_.warning("brokers away; the batch is sent again", error=str(error))
                self._projects.forget()
                if self._publisher is not None:
                    await self._publisher.close()
                    self._publisher = None
                if self._clock.steady_s() > give_up_s:
                    raise SchedulerError(f"intake could not pass a batch on in {GIVE_UP_S:.0f} s: {error}") from error
            await asyncio.sleep(RETRY_S)

    def _say(self, topic: str, screened: list[Screened]) -> None:
        now_s = self._clock.steady_s()
        for kind in (s.own_failure for s in screened if s.own_failure):
            logged_s, since = self._faults.get((topic, kind), (float("-inf"), 0))
            if now_s - logged_s < REMIND_S:
                self._faults[topic, kind] = (logged_s, since + 1)
                continue
            if len(self._faults) >= MOST_FAULTS:
                self._faults.clear()
            self._faults[topic, kind] = (now_s, 0)
            log_.critical(
                "intake's own code failed on records, which are dead letters now: a fault of the program. "
                "Update it, and have them sent again",
                topic=topic,
                error=kind,
                records=since + 1,
            )


def _arrived(topic: str, topic_id: str, entry: Entry) -> Arrived:
    return Arrived(entry.partition, entry.offset, entry.timestamp_ms, entry.value, entry.headers, topic, topic_id)
