"""Requests while a pool moves, whatever arrives first: each counts once, in the order in which they were asked for, and is answered once.

Three partitions; what one sends to another arrives in order, late, and at times a second time, as after a kill of who sent it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.core_world import admitted
from tests.support.profiles import examples
from tests.unit.scheduler.core.handlers.test_core_handover import Partition, move
from trainhouse.client.kafka.journal_answers import JournalAnswers, outcome_of
from trainhouse.events import ChangeJob, Envelope, Event, EventId, Order, PoolCreated
from trainhouse.events.model.decisions import JobRetuned
from trainhouse.events.wire.journal import JournaledInput, JournalRecord
from trainhouse.events.wire.topics import CONTROL
from trainhouse.scheduler.core.schedule import ScheduleMachine

PARTITIONS, DIRECTORY, JOB = 3, 9, "waits"
# What arrives next: which of the wires on which something waits, how many records, and how many of those before them come again.
Arrival = tuple[int, int, int]
ARRIVALS = st.tuples(st.integers(0, 5), st.integers(1, 3), st.sampled_from([0, 0, 0, 1, 2]))
# A move to a partition, or None: a change.
ASKED = st.none() | st.integers(0, PARTITIONS - 1)


@dataclass
class Wire:
    """The records from one sender to one partition, and how many have arrived."""

    records: list[Envelope] = field(default_factory=list)
    arrived: int = 0

    def take(self, count: int, again: int) -> list[Envelope]:
        first, self.arrived = max(0, self.arrived - again), min(len(self.records), self.arrived + count)
        return self.records[first : self.arrived]


@dataclass(frozen=True)
class Message:
    """A record of a journal as a client reads it."""

    at: int
    record: JournalRecord

    def value(self) -> bytes:
        return self.record.encode(ScheduleMachine.since)

    def partition(self) -> int:
        return self.at


class Partitions:
    """All of them, and what is on its way. `retuned`: the changes that were made, in the order of time; `told`: the answers by request."""

    def __init__(self, asked: list[int | None]) -> None:
        self.all = [Partition(n) for n in range(PARTITIONS)]
        self.wires = {(a, b): Wire() for a in (DIRECTORY, 0, 1, 2) for b in range(PARTITIONS) if a != b and (a != DIRECTORY or b == 0)}
        self.changes = [n for n, to in enumerate(asked) if to is None]
        self.retuned: list[int] = []
        self.told: dict[int, list[int | None]] = {n: [] for n in self.changes}
        self.answers = {n: JournalAnswers() for n in self.changes}
        self._asks(PoolCreated.model_validate({"pool": "default", "partition": 0}), "pool")
        self._asks(admitted(JOB, ranks=2, priority=100), "job")
        self.arrive((0, 2, 0))
        for n, to in enumerate(asked):
            event = ChangeJob.model_validate({"job_id": JOB, "priority": n}) if to is None else move(to).event
            self._asks(event, f"asked-{n}")

    def _asks(self, event: Event, event_id: str) -> None:
        records = self.wires[DIRECTORY, 0].records
        records.append(Envelope(EventId(event_id), "directory", event, order=Order(DIRECTORY, len(records), 0), pool="default"))

    def arrive(self, arrival: Arrival) -> None:
        """One batch arrives at a partition, and is decided on."""
        which, count, again = arrival
        waiting = self.waiting()
        if not waiting:
            return
        sender, at = waiting[which % len(waiting)]
        partition, came = self.all[at], self.wires[sender, at].take(count, again)
        first = partition.offset + 1
        decisions = partition.feed(*came, wait_ms=max(0, max(p.now_ms for p in self.all) - partition.now_ms))
        items = tuple(JournaledInput(first + n, envelope) for n, envelope in enumerate(came))
        self._note(at, JournalRecord(partition.seq, "me", partition.now_ms, first, items, tuple(decisions), 0, 11, 9, "0" * 64))
        to = [effect.partition or 0 for effect in partition.effects[partition.delivered :] if effect.topic == CONTROL]
        for other, sent in zip(to, partition.sent(), strict=True):
            self.wires[at, other].records.append(sent)

    def _note(self, at: int, record: JournalRecord) -> None:
        message: Any = Message(at, record)
        self.retuned += [d.priority for d in record.decisions if isinstance(d, JobRetuned)]
        for n, told in self.told.items():
            decisions = self.answers[n].decided(message, f"asked-{n}")
            found = outcome_of(decisions, f"asked-{n}", JobRetuned, lambda d: d.job_id == JOB, reported_elsewhere=False)
            told += [None if retuned is None else retuned.priority for retuned in found or ()]

    def settle(self) -> None:
        """All that is on its way arrives."""
        while self.waiting():
            self.arrive((0, 1, 0))

    def waiting(self) -> list[tuple[int, int]]:
        return [place for place, wire in self.wires.items() if wire.arrived < len(wire.records)]


# The pool comes back before a change that went the long way round: the next one must not overtake it, with and without a fence between.
@example(asked=[1, 0, None, None], arrivals=[(0, 1, 0), (0, 2, 0), (1, 2, 0), (2, 1, 0), (0, 1, 0)])
@example(asked=[1, 0, None, None], arrivals=[(w, n, 0) for w, n in ((0, 1), (0, 1), (1, 2), (1, 1), (0, 1), (1, 1), (2, 1), (0, 1))])
@settings(max_examples=examples(300))
@given(asked=st.lists(ASKED, max_size=8), arrivals=st.lists(ARRIVALS, max_size=40))
def test_each_change_counts_once_in_order_and_is_answered_once_whatever_arrives_first(
    asked: list[int | None], arrivals: list[Arrival]
) -> None:
    partitions = Partitions(asked)
    for arrival in arrivals:
        partitions.arrive(arrival)
    partitions.settle()
    assert partitions.retuned == partitions.changes
    for n, told in partitions.told.items():
        assert told == [n], "one answer, and its own, also where more changes of the job are in its record"
    [job] = [p.state.jobs[JOB] for p in partitions.all if JOB in p.state.jobs]
    assert job.priority == (partitions.changes or [100])[-1]
    assert not [m for p in partitions.all for m in p.state.moved.values() if m.returned]
