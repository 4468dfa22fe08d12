"""Reports of partitions that decide or place nothing: figures, and an event a minute for alerts, as long as it holds.

Holds: an event names the partition, the pools that wait for it and the reason; the same minute gives the same event id in each process.
Never: halts anything; raises for brokers that are away.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

import structlog

from trainhouse.events import envelope_of
from trainhouse.events.model.ids import PoolName
from trainhouse.events.model.repair import MAX_TEXT_CHARS, HaltFault, PartitionHalted
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.topics import VERDICTS
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.stream.interfaces import Clock, Log
from trainhouse.scheduler.stream.journal.follower import Follower
from trainhouse.scheduler.stream.journal.owner import Owner
from trainhouse.scheduler.stream.metrics import JournalMeters

S = TypeVar("S")
REPEAT_S = 60.0
log_ = structlog.get_logger(__name__)
MOST_POOLS = 1000


class HaltReports(Generic[S]):
    """Reports of faults in one journal's partitions in this process."""

    def __init__(self, log: Log, clock: Clock, journal: str, machine: Machine[S], meters: JournalMeters) -> None:
        self._log = log
        self._clock = clock
        self._journal = journal
        self._machine = machine
        self._meters = meters
        self._reported_s: dict[tuple[int, HaltFault], float] = {}

    async def look(self, followers: Mapping[int, Follower[S]], owners: Mapping[int, Owner[S]]) -> None:
        """Sets the gauges, and sends an event for each fault that was not reported for a minute."""
        for partition, follower in list(followers.items()):  # more may come while one is reported
            condition = self._machine.condition(follower.folded.state)
            deciding = not follower.halted and follower.ownership.decides(self._clock.steady_s())
            found = {
                HaltFault.STOPPED: follower.halted or owners[partition].trouble,
                HaltFault.PLACEMENT_FROZEN: condition.frozen if deciding else "",
            }
            for fault, reason in found.items():
                self._meters.halted.labels(partition, fault.value).set(bool(reason))
                if reason:
                    await self._report(partition, fault, condition.pools, reason)
                else:
                    self._reported_s.pop((partition, fault), None)

    async def _report(self, partition: int, fault: HaltFault, pools: tuple[PoolName, ...], reason: str) -> None:
        now_ms, now_s = self._clock.now_ms(), self._clock.steady_s()
        if now_s < self._reported_s.get((partition, fault), now_s - REPEAT_S) + REPEAT_S:
            return
        # Whether or not it can be sent: a topic that takes nothing is not asked each second.
        self._reported_s[partition, fault] = now_s
        text = reason.encode("utf-8", "replace").decode()[:MAX_TEXT_CHARS]
        event = PartitionHalted(
            journal=self._journal, partition=partition, fault=fault, pools=pools[:MOST_POOLS], reason=text, at_ms=now_ms
        )
        name = f"halted:{event.source}:{fault}:{now_ms // 60_000}"
        try:
            value = encode(envelope_of(event, id=name, source=f"trainhouse/{self._machine.name}", now_ms=now_ms))
            await self._log.send(VERDICTS, event.source.encode(), value)
        except Exception as error:  # what cannot be said of one partition must not end the others
            log_.warning("halted partition not reported", journal=self._journal, partition=partition, error=repr(error))
