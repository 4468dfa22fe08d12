"""Two versions of a machine on one journal: side by side, back again, and what the end of an update changes."""

import asyncio
import base64
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import orjson
import pytest

from tests.simulation.test_journal_recovery import host
from tests.simulation.test_snapshot_choice import live
from tests.support.counting_machine import CountingMachine, Counts, cancel
from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, LoopClock, MemoryStore, call_directly, run_virtually
from trainhouse.events import Event, envelope_of
from trainhouse.events.model.base import _registry
from trainhouse.events.model.bounds import Count
from trainhouse.events.model.upgrade import LevelRaised, UpgradeFinished
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.journal import JournalRecord
from trainhouse.events.wire.running_programs import Announced, running
from trainhouse.events.wire.topics import CONTROL, DECISIONS, STATUS, UPGRADES, UPGRADES_FINISHED
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.protocol.snapshot_steps import Formats, parse
from trainhouse.scheduler.replay import LogEntry, verify
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.snapshot_recovery import load
from trainhouse.scheduler.stream.journal.snapshots import Snapshots

TYPE = "trainhouse.testing.tallied.v1"


class Tallied(Event, type=TYPE):
    """A decision that only the newer version knows."""

    total: Count


del _registry[TYPE]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(_registry, TYPE, Tallied)
    yield


class Newer(CountingMachine):
    """The next version: its snapshots have another name for the ticks, and it decides one thing more."""

    decide_version = 2
    fold_version = 2
    formats = Formats(
        {1: 1, 2: 2},
        {1: lambda raw: {name: value for name, value in raw.items() if name != "ticks"} | {"t": raw["ticks"]}},
        {1: lambda raw: {name: value for name, value in raw.items() if name != "t"} | {"ticks": raw["t"]}},
    )
    since: Mapping[str, int] = {TYPE: 2}

    def decide(self, state: Counts, now_ms: int, inputs: Sequence[Input]) -> list[Event]:
        decisions = super().decide(state, now_ms, inputs)
        return [*decisions, Tallied(total=sum(state.counts.values()))] if decisions and self.level >= 2 else decisions

    def dump(self, state: Counts) -> bytes:
        newest = {"format": 2, "counts": state.counts, "t": state.ticks, "frozen": state.frozen}
        return self.formats.lowered(orjson.dumps(newest, option=orjson.OPT_SORT_KEYS), self.level)

    def load(self, data: bytes) -> Counts:
        raw = self.formats.lifted(parse(data))
        return Counts(raw["counts"], raw["t"], raw["frozen"])


class Stage:
    """A journal, and processes of either version on it."""

    def __init__(self, partitions: int = 1) -> None:
        self.broker, self.store = FakeBroker(), MemoryStore()
        self.broker.partitions = partitions
        self.sent = 0
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, name: str, machine: CountingMachine, assigned: frozenset[int] = frozenset()) -> JournalHost[Counts]:
        made = host(self.broker, self.store, name, machine)
        self.tasks[name] = asyncio.create_task(made.run())
        await made.ready.wait()
        made.on_assigned(set(assigned))
        return made

    async def stop(self, name: str) -> None:
        task = self.tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def end(self) -> None:
        for name in list(self.tasks):
            await self.stop(name)

    async def send(self, inputs: int = 15) -> None:
        for _ in range(inputs):
            self.broker.land(CONTROL, 0, b"k", cancel(self.sent))
            self.sent += 1
            await asyncio.sleep(0.2)
        await asyncio.sleep(3)

    def finish(self, level: int = 2, journal: str = DECISIONS, topic: str = UPGRADES_FINISHED) -> None:
        event = UpgradeFinished(journal=journal, level=level, reason="all nodes are new", user="ada", at_ms=1)
        self.broker.land(topic, 0, event.key, encode(envelope_of(event, id=f"finished-{level}", source="test", now_ms=1)))

    def records(self, partition: int = 0) -> list[JournalRecord]:
        """Those that counted."""
        seq, found = 0, []
        for entry in self.broker.committed(DECISIONS, partition):
            record = JournalRecord.decode(entry.value)
            if record.seq == seq + 1:
                seq, found = record.seq, [*found, record]
        return found

    def same(self, machine: CountingMachine) -> bool:
        """Whether a replay by this version finds every decision and every snapshot that it can compare as it is."""
        entries = [LogEntry(0, e.offset, e.value or b"") for e in self.broker.committed(DECISIONS, 0)]
        snapshots = {(0, p.seq): p.state_sha256 for p in live(self.broker) if p.fold_version <= machine.fold_version}
        report = verify(entries, machine, snapshots)
        assert snapshots.keys() <= {(0, s) for s in range(report.records + 1)} and (report.snapshots == len(snapshots))
        return report.same

    def counted_once(self) -> bool:
        told = [e.value for e in self.broker.committed(STATUS, 0)]
        return len(told) == len(set(told)) == self.sent

    def formats(self) -> list[tuple[int, int]]:
        """The fold_version and the format of each snapshot that is left, the newest first."""
        found = []
        for pointer in live(self.broker):
            state = load(Newer(), pointer, self.store[pointer.object_key], self.store).folded
            raw = orjson.loads(self.store[pointer.object_key])
            assert state.level == pointer.fold_version
            found.append((pointer.fold_version, 2 if b'"t":' in base64.b64decode(raw["state"]) else 1))
        return found


def switches(records: list[JournalRecord]) -> int:
    """How often another process went on."""
    owners = [r.owner for r in records]
    return sum(a != b for a, b in pairwise(owners))


def test_two_versions_side_by_side_take_over_from_one_another_and_count_everything_once() -> None:
    async def story() -> None:
        stage = Stage()
        old, new = await stage.start("old", CountingMachine(), frozenset({0})), await stage.start("new", Newer())
        for turn in range(6):
            await stage.send()
            gets, gives = (new, old) if turn % 2 == 0 else (old, new)
            gives.on_assigned(set())
            gets.on_assigned({0})
            await stage.send(3)
        records = stage.records()
        await stage.end()
        assert old.followers[0].folded.state == new.followers[0].folded.state
        assert sum(new.followers[0].folded.state.counts.values()) == stage.sent and stage.counted_once()
        assert {r.fold_version for r in records} == {1} and {r.decide_version for r in records} == {1, 2}
        assert switches(records) == 6, "each goes on as long as it is its turn"
        assert set(stage.formats()) == {(1, 1)}
        assert stage.same(CountingMachine()) and stage.same(Newer())

    run_virtually(story())


def test_going_back_works_until_the_update_is_finished() -> None:
    """The log is trimmed up to the snapshot that the newer version wrote: the version before must read it."""

    async def story() -> None:
        stage = Stage()
        for name, machine in (("old", CountingMachine()), ("new", Newer()), ("old again", CountingMachine()), ("new again", Newer())):
            made = await stage.start(name, machine, frozenset({0}))
            await stage.send(25)
            assert sum(made.followers[0].folded.state.counts.values()) == stage.sent and not made.followers[0].halted
            await stage.stop(name)
            stage.broker.starts[DECISIONS, 0] = live(stage.broker)[0].offset
        assert stage.counted_once()

    run_virtually(story())


def test_a_finished_update_raises_the_level_once_and_the_version_before_stops() -> None:
    async def story() -> None:
        stage = Stage()
        old, new = await stage.start("old", CountingMachine()), await stage.start("new", Newer(), frozenset({0}))
        await stage.send(25)
        assert set(stage.formats()) == {(1, 1)} and not old.followers[0].halted
        stage.finish()
        await stage.send(25)
        raised = [(r, d) for r in stage.records() for d in r.decisions if isinstance(d, LevelRaised)]
        assert [(d.level, d.user, d.reason, r.fold_version) for r, d in raised] == [(2, "ada", "all nodes are new", 2)]
        after = [r for r in stage.records() if r.seq > raised[0][0].seq]
        assert {r.fold_version for r in after} == {2} and any(isinstance(d, Tallied) for r in after for d in r.decisions)
        assert stage.formats()[0] == (2, 2)
        assert "update this program" in old.followers[0].halted
        appended = len(stage.broker.logs[DECISIONS, 0])
        await stage.stop("new")
        await asyncio.sleep(30)
        assert len(stage.broker.logs[DECISIONS, 0]) == appended, "the version before appends nothing"
        again = await stage.start("new again", Newer(), frozenset({0}))
        await stage.send(25)
        await stage.end()
        assert sum(again.followers[0].folded.state.counts.values()) == stage.sent and stage.counted_once()
        assert again.followers[0].folded.level == 2 and stage.same(Newer())
        assert new.followers[0].folded.level == 2

    run_virtually(story())


def test_where_the_version_before_still_owns_a_finished_partition_the_newer_one_stands_in() -> None:
    async def story() -> None:
        stage = Stage()
        old, new = await stage.start("old", CountingMachine(), frozenset({0})), await stage.start("new", Newer())
        await stage.send(5)
        stage.finish()
        await asyncio.sleep(15)
        assert "update this program" in old.followers[0].halted
        assert new.followers[0].folded.level == 2
        await stage.send(5)
        owners = Counter(r.owner for r in stage.records()[-5:])
        await stage.end()
        assert set(owners) == {"new"} and stage.counted_once()

    run_virtually(story())


@pytest.mark.parametrize(("level", "journal"), [(3, DECISIONS), (1, DECISIONS), (2, "another journal")])
def test_a_level_that_is_not_this_programs_to_write_changes_nothing(level: int, journal: str) -> None:
    async def story() -> None:
        stage = Stage()
        made = await stage.start("first", CountingMachine(), frozenset({0}))
        await stage.send(5)
        await stage.stop("first")
        made = await stage.start("new", Newer(), frozenset({0}))
        stage.finish(level, journal)
        stage.broker.land(UPGRADES, 0, b"junk", b"junk")
        await stage.send(5)
        await stage.end()
        assert made.followers[0].folded.level == 1 and not made.followers[0].halted
        assert not [d for r in stage.records() for d in r.decisions if isinstance(d, LevelRaised)]

    run_virtually(story())


def test_what_a_program_writes_where_programs_announce_themselves_finishes_no_update() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.start("first", CountingMachine(), frozenset({0}))
        await stage.send(5)
        await stage.stop("first")
        made = await stage.start("new", Newer(), frozenset({0}))
        stage.finish(topic=UPGRADES)
        await stage.send(5)
        assert made.followers[0].folded.level == 1
        stage.finish()
        await stage.send(5)
        await stage.end()
        assert made.followers[0].folded.level == 2, "an operator's counts, on the topic that operators alone write"

    run_virtually(story())


def test_an_empty_partition_begins_at_the_lowest_level_of_the_others_and_a_new_journal_at_the_newest() -> None:
    async def story() -> None:
        stage = Stage(partitions=2)
        fresh = await stage.start("new", Newer(), frozenset({0, 1}))
        await stage.send(3)
        assert {f.folded.level for f in fresh.followers.values()} == {2}
        await stage.end()
        stage = Stage(partitions=2)
        await stage.start("old", CountingMachine(), frozenset({0}))
        await stage.send(3)
        await stage.end()
        stage.broker.logs[DECISIONS, 1].clear()
        grown = await stage.start("new", Newer(), frozenset({0, 1}))
        await stage.send(3)
        await stage.end()
        assert {f.folded.level for f in grown.followers.values()} == {1}

    run_virtually(story())


def test_processes_announce_what_they_run_and_take_it_back_when_they_end() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.start("old", CountingMachine())
        await stage.start("new", Newer())
        await asyncio.sleep(130)
        now_ms = LoopClock().now_ms()

        def announced() -> list[Announced]:
            return [Announced(e.key, e.value, e.timestamp_ms) for e in stage.broker.committed(UPGRADES, 0)]

        def told() -> list[tuple[str, int, int]]:
            return [(r.process, r.fold_version, r.lowest_level) for r in running(announced(), now_ms)]

        assert told() == [("new", 2, 1), ("old", 1, 1)]
        assert len(stage.broker.committed(UPGRADES, 0)) == 6, "once a minute each"
        await stage.stop("old")
        assert told() == [("new", 2, 1)]
        assert not running(announced(), now_ms + 200_000)
        await stage.end()

    run_virtually(story())


def test_a_newer_version_lifts_the_snapshots_of_before_and_reads_nothing_else_again() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.start("old", CountingMachine(), frozenset({0}))
        await stage.send(25)
        await stage.end()
        snapshots = Snapshots(FakeLog(stage.broker), stage.store, DECISIONS, Newer(), offload=call_directly)
        found = await snapshots.recover(0)
        newest = live(stage.broker)[0]
        assert (found.snapshot_seq, found.position, found.folded.level) == (newest.seq, newest.offset + 1, 1)

    run_virtually(story())
