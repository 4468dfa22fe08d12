"""The scheduler's own machine a version later, on a journal that is not finished: what it writes is what the version before wrote."""

from dataclasses import replace
from typing import Any

import orjson

from tests.simulation.schedule_load import fleet, people
from tests.simulation.schedule_world import World
from trainhouse.events.model.upgrade import UpgradeFinished
from trainhouse.scheduler.core.protocol.batch import Proposer
from trainhouse.scheduler.core.protocol.journal import Folded, begin, fold_bytes
from trainhouse.scheduler.core.protocol.snapshot_steps import Formats, parse
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.replay import LogEntry, state_hash, verify

NOW = ScheduleMachine()
OLD_FORMAT, OLD_LEVEL = NOW.formats.newest, NOW.fold_version


def renamed(raw: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """The book with another name for one of its parts."""
    book = dict(raw["book"])
    book[new] = book.pop(old)
    return raw | {"book": book}


class NextSchedule(ScheduleMachine):
    """Its snapshots call the moves of a pool otherwise."""

    fold_version = OLD_LEVEL + 1
    formats = Formats(
        {OLD_FORMAT: OLD_LEVEL, OLD_FORMAT + 1: OLD_LEVEL + 1},
        {OLD_FORMAT: lambda raw: renamed(raw, "moves_ms", "moved_at_ms")},
        {OLD_FORMAT: lambda raw: renamed(raw, "moved_at_ms", "moves_ms")},
    )

    def dump(self, state: ScheduleState) -> bytes:
        newest = renamed(parse(NOW.dump(state)), "moves_ms", "moved_at_ms") | {"format": OLD_FORMAT + 1}
        return self.formats.lowered(orjson.dumps(newest, option=orjson.OPT_SORT_KEYS), self.level)

    def load(self, data: bytes) -> ScheduleState:
        lifted = self.formats.lifted(parse(data))
        old = renamed(lifted, "moved_at_ms", "moves_ms") | {"format": OLD_FORMAT}
        return NOW.load(orjson.dumps(old))


def lived(level: int, *, turns: int = 6) -> World:
    """A fleet of which both versions decide in turns, each from what the other's snapshot holds."""
    world = World(11)
    next_ = NextSchedule()
    world.folded = replace(world.folded, level=level)
    fleet(world)
    people(world, 30, 20_000)
    world.own(200, 900)
    for turn in range(turns):
        world.machine = next_ if turn % 2 == 0 or level > OLD_LEVEL else NOW
        world.proposer = Proposer(world.machine, f"owner-{turn}")
        known = world.machine.load(next_.at(level).dump(world.folded.state))
        world.folded = replace(world.folded, state=known)
        world.go(world.now_ms + 15_000)
    return world


def test_both_versions_decide_in_turns_and_each_finds_the_others_records_and_snapshots_as_its_own() -> None:
    world = lived(OLD_LEVEL)
    entries = [LogEntry(0, n, value) for n, value in enumerate(world.journal)]
    assert {orjson.loads(value)["fold_version"] for value in world.journal} == {OLD_LEVEL}
    folded: Folded[ScheduleState] = begin(NOW, 0)
    for value in world.journal:
        folded, _ = fold_bytes(NOW, folded, value)
    hashes = {(0, folded.seq): state_hash(NOW, folded.state)}
    for machine in (NOW, NextSchedule()):
        report = verify(entries, machine, hashes)
        assert report.same and report.recomputed > 50 and report.snapshots == 1, machine


def test_after_the_end_of_an_update_the_new_format_is_written_and_the_old_is_still_read() -> None:
    world, next_ = lived(OLD_LEVEL, turns=2), NextSchedule()
    finished = UpgradeFinished(journal="j", level=OLD_LEVEL + 1, reason="all is new", user="ada", at_ms=1)
    written = Proposer(next_, "owner").raised(world.folded, finished, 0)
    world.journal.append(written.value)
    before = orjson.loads(next_.at(world.folded.level).dump(world.folded.state))
    world.folded, record = fold_bytes(next_, world.folded, written.value)
    assert record is not None and world.folded.level == OLD_LEVEL + 1
    after = next_.at(world.folded.level).dump(world.folded.state)
    assert (before["format"], orjson.loads(after)["format"]) == (OLD_FORMAT, OLD_FORMAT + 1)
    assert next_.dump(next_.load(orjson.dumps(before))) == after == next_.dump(next_.load(after))
    world.machine, world.proposer = next_, Proposer(next_, "owner")
    world.snapshots.clear()
    world.go(world.now_ms + 15_000)
    assert verify([LogEntry(0, n, value) for n, value in enumerate(world.journal)], next_).same
