"""A publisher of effects over fakes, whose records are made by hand."""

from __future__ import annotations

from tests.support.counting_machine import CountingMachine, Counts
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock
from trainhouse.events.wire.topics import CONTROL, DECISIONS
from trainhouse.scheduler.core.protocol.journal import begin
from trainhouse.scheduler.core.protocol.ownership import Ownership
from trainhouse.scheduler.core.protocol.publication import Outgoing
from trainhouse.scheduler.stream.journal.follower import Follower, Unpublished
from trainhouse.scheduler.stream.journal.publishing import Publishing


class PublishingStory:
    """What was recorded, and what came out."""

    def __init__(self, log: type[FakeLog] = FakeLog) -> None:
        self.broker = FakeBroker(partitions=1)
        clock, machine = LoopClock(), CountingMachine()
        self.follower: Follower[Counts] = Follower(machine, CONTROL, begin(machine, 0), 0, Ownership("a", 2.0, 0.0), clock)
        self.publishing = Publishing(log(self.broker), DECISIONS, self.follower, clock, transactional=True)
        self._seq = 0

    def record(self, *topics: str) -> None:
        self._seq += 1
        effects = [Outgoing(topic, b"k", b"%d" % self._seq, (), 0) for topic in topics]
        self.follower.unpublished.append(Unpublished(self._seq, effects, b""))
        self.follower.wake()

    def out(self, topic: str) -> list[int]:
        return [int(e.value or b"0") for e in self.broker.committed(topic, 0)]
