"""The pure rules of the journal: what counts, how batches are bounded, how poison is found, what a record makes public."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from tests.support.counting_machine import PROJECT, CountingMachine, Counts, cancel, proposed
from trainhouse.events import DeadLetter, JobId, ReviewAction, ReviewJob, envelope_of
from trainhouse.events.wire.journal import (
    NO_HASH,
    ClockTicked,
    InputRefused,
    InvalidRecordError,
    JournaledInput,
    JournalRecord,
    PlacementFrozen,
    SnapshotPointer,
    record_hash,
)
from trainhouse.events.wire.project_topics import status_topic
from trainhouse.events.wire.set_aside import too_large_value
from trainhouse.events.wire.topics import CONTROL, DEAD_LETTERS, STATUS
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.protocol.batch import Limits, Pending, Proposer, bounded, fresh, pending
from trainhouse.scheduler.core.protocol.journal import Folded, begin, fold_bytes, fold_record, readable
from trainhouse.scheduler.core.protocol.ownership import Ownership
from trainhouse.scheduler.core.protocol.publication import outgoing
from trainhouse.scheduler.replay import LogEntry, verify
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.journal.input_feed import InputFeed

MACHINE = CountingMachine()
LIMITS = Limits()


def waiting(*values: bytes, first: int = 0) -> list[Pending]:
    return [pending(first + n, v, (), LIMITS) for n, v in enumerate(values)]


def step(folded: Folded[Counts], inputs: list[Pending], now_ms: int = 1000, tick: bool = False) -> tuple[Folded[Counts], JournalRecord]:
    record = proposed(Proposer(MACHINE, "me"), folded, now_ms, inputs, 0, tick=tick)
    after, counted = fold_bytes(MACHINE, folded, record.encode())
    assert counted == record, "a record must come back from its bytes as it was"
    return after, record


def test_a_record_survives_its_bytes_and_its_hash_chains() -> None:
    folded, first = step(begin(MACHINE, 0), waiting(cancel(0), cancel(1)), tick=True)
    assert first.previous_hash == NO_HASH
    assert folded.last_hash == record_hash(first.encode())
    after, second = step(folded, waiting(cancel(2), first=2))
    assert second.previous_hash == folded.last_hash
    assert (after.seq, after.cursor, after.state.counts) == (2, 2, {"job0": 1, "job1": 1, "job2": 1})


def test_the_own_input_of_a_refusal_is_no_tick() -> None:
    own = ReviewJob(job_id=JobId("job0"), action=ReviewAction.SEND)
    frozen = replace(begin(MACHINE, 0), frozen_version=MACHINE.decide_version)
    for event, after in ((own, MACHINE.decide_version), (ClockTicked(), 0)):
        item = JournaledInput(None, envelope_of(event, id="x", source="test", now_ms=1))
        record = JournalRecord(1, "a", 1, -1, (item,), (), 0, MACHINE.decide_version, MACHINE.fold_version, NO_HASH)
        assert fold_record(MACHINE, frozen, record, NO_HASH).frozen_version == after


def test_only_the_next_seq_counts() -> None:
    folded, first = step(begin(MACHINE, 0), waiting(cancel(0)))
    again, counted = fold_bytes(MACHINE, folded, first.encode())
    assert counted is None and again is folded
    ahead = proposed(
        Proposer(MACHINE, "other"), step(folded, waiting(cancel(1), first=1))[0], 1, waiting(cancel(2), first=2), 0, tick=False
    )
    assert fold_bytes(MACHINE, folded, ahead.encode())[1] is None
    for record in (first, ahead):  # also where their bytes were read before
        assert fold_bytes(MACHINE, folded, record.encode(), record)[1] is None


def test_a_cursor_never_goes_back_and_what_was_refused_reaches_no_machine() -> None:
    item = JournaledInput(3, envelope_of(ClockTicked(), id="x", source="test", now_ms=1))
    record = JournalRecord(1, "a", 1, 3, (item,), (), 0, MACHINE.decide_version, MACHINE.fold_version, NO_HASH)
    assert fold_record(MACHINE, replace(begin(MACHINE, 0), cursor=7), record, NO_HASH).cursor == 7
    assert [i.offset for i in readable(record.inputs)] == [3] and readable(record.inputs, {3}) == []


def test_the_first_of_two_competing_records_wins_for_everybody() -> None:
    start = waiting(cancel(0), cancel(1))
    mine = proposed(Proposer(MACHINE, "a"), begin(MACHINE, 0), 5, start[:1], 0, tick=False)
    other = proposed(Proposer(MACHINE, "b"), begin(MACHINE, 0), 5, start, 0, tick=False)
    for order in ((mine, other), (other, mine)):
        folded = begin(MACHINE, 0)
        for record in order:
            folded, _ = fold_bytes(MACHINE, folded, record.encode())
        assert folded.cursor == order[0].cursor


def test_a_wrong_previous_hash_halts_the_reader() -> None:
    folded, first = step(begin(MACHINE, 0), waiting(cancel(0)))
    _, second = step(folded, waiting(cancel(1), first=1))
    altered = orjson.loads(second.encode()) | {"previous_hash": "f" * 64}
    folded, _ = fold_bytes(MACHINE, begin(MACHINE, 0), first.encode())
    with pytest.raises(BrokenInvariant, match="previous_hash"):
        fold_bytes(MACHINE, folded, orjson.dumps(altered))


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b'{"seq":"1"}', b'{"seq":1}'])
def test_junk_in_a_journal_halts_the_reader(junk: bytes) -> None:
    with pytest.raises(BrokenInvariant):
        fold_bytes(MACHINE, begin(MACHINE, 0), junk)


def test_a_newer_fold_version_halts_the_reader() -> None:
    _, record = step(begin(MACHINE, 0), waiting(cancel(0)))
    newer = orjson.loads(record.encode()) | {"fold_version": 2}
    # The second has a decision that only the newer program knows.
    for head in (newer, newer | {"decisions": [{"type": "OnlyNewerProgramsKnowIt"}]}):
        with pytest.raises(BrokenInvariant, match=r"seq 1: fold_version 2 of .* is newer than this program's 1; update this program"):
            fold_bytes(MACHINE, begin(MACHINE, 0), orjson.dumps(head))


def test_inputs_in_the_state_are_dropped_and_a_gap_is_never_skipped() -> None:
    folded, _ = step(begin(MACHINE, 0), waiting(cancel(0), cancel(1)))
    assert [p.offset for p in fresh(folded, waiting(cancel(1), cancel(2), first=1))] == [2]
    with pytest.raises(BrokenInvariant, match="offset 3, but 2 is due"):
        fresh(folded, waiting(cancel(3), first=3))


def test_a_batch_that_was_set_aside_leaves_no_gap() -> None:
    """One record stands for all of a batch: who counts the others as missing would never go on."""
    folded, _ = step(begin(MACHINE, 0), waiting(cancel(0)))
    aside = pending(3, too_large_value(1, 3, 99), (), LIMITS)
    after, record = step(folded, [aside, *waiting(cancel(4), first=4)])
    assert after.cursor == 4 and [(d.offset, "no JSON" in d.reason) for d in record.decisions if isinstance(d, InputRefused)] == [(3, True)]
    within, _ = step(begin(MACHINE, 0), waiting(cancel(0), cancel(1)))
    assert fresh(within, [aside]) == [aside]
    for missing in (pending(3, too_large_value(2, 3, 99), (), LIMITS), pending(3, too_large_value(1, 3, 99) + b"?", (), LIMITS)):
        with pytest.raises(BrokenInvariant, match="offset 3, but 1 is due"):
            fresh(folded, [missing])


def test_a_feed_gives_what_stands_for_a_batch_and_what_comes_behind_it() -> None:
    told = [Entry(0, 0, 0, None, cancel(0)), Entry(0, 3, 0, None, too_large_value(1, 3, 99)), Entry(0, 4, 0, None, cancel(4))]

    class OneTopic:
        """The part of a log that a feed reads."""

        def __init__(self) -> None:
            self.at = 0

        async def open_tail(self, topic: str, positions: Mapping[int, int]) -> Any:
            self.at = positions[0]
            return self

        async def take(self, max_wait_s: float) -> list[Entry]:
            return [entry for entry in told if entry.offset >= self.at]

        async def close(self) -> None:
            pass

    async def taken() -> list[int]:
        topic: Any = OneTopic()
        feed, found = InputFeed(topic, CONTROL, 0, Limits(batch_count=1)), [-1]
        feed.offer(told)
        while found[-1] < 4:
            found += [item.offset for item in await feed.take(found[-1], 0.1)]
        return found

    assert asyncio.run(taken()) == [-1, 0, 3, 4]


def test_a_batch_is_bounded_by_count_and_bytes() -> None:
    items = waiting(*[cancel(n) for n in range(20)])
    assert len(bounded(items, Limits(batch_count=7))) == 7
    assert len(bounded(items, Limits(batch_bytes=items[0].size_bytes * 3))) in (2, 3)
    assert len(bounded(items, Limits(batch_bytes=1))) == 1


def test_poison_is_refused_alone_and_everything_else_counts() -> None:
    inputs = waiting(*[cancel(n, user="poison" if n in (5, 11) else "x") for n in range(16)])
    folded, records = begin(MACHINE, 0), []
    while folded.cursor < 15:
        folded, record = step(folded, inputs)
        records.append(record)
    refused = [d.offset for r in records for d in r.decisions if isinstance(d, InputRefused)]
    assert refused == [5, 11]
    assert sum(folded.state.counts.values()) == 14
    entries = [LogEntry(0, n, r.encode()) for n, r in enumerate(records)]
    assert verify(entries, MACHINE).same, "every replay skips it, too"


@pytest.mark.parametrize("value", [b"junk", None, b"{}", b"x" * (LIMITS.input_bytes + 1)])
def test_what_cannot_be_read_becomes_a_dead_letter_and_the_cursor_moves(value: bytes | None) -> None:
    folded, record = step(begin(MACHINE, 0), [pending(0, value, (), LIMITS), *waiting(cancel(0), first=1)])
    assert folded.cursor == 1 and folded.state.counts == {"job0": 1}
    letters = [o for o in outgoing(MACHINE, CONTROL, 0, record) if o.topic == DEAD_LETTERS]
    assert [o.value for o in letters] == [value or b""]
    assert DeadLetter.of_headers(list(letters[0].headers)).offset == 0


def test_failed_scheduling_is_journaled_and_freezes_placement() -> None:
    inputs = waiting(cancel(0), cancel(1, user="jam"), cancel(2))
    folded, record = step(begin(MACHINE, 0), inputs)
    assert isinstance(record.decisions[0], PlacementFrozen) and folded.state.frozen and folded.cursor == -1
    folded, _ = step(folded, inputs)
    assert folded.cursor == 2 and sum(folded.state.counts.values()) == 3


class BrokenClockwork(CountingMachine):
    """Raises on every tick."""

    def decide(self, state, now_ms, inputs):  # type: ignore[no-untyped-def]
        if any(isinstance(i.event, ClockTicked) for i in inputs):
            raise ValueError("clockwork")
        return super().decide(state, now_ms, inputs)


def test_a_machine_that_cannot_bear_time_still_takes_inputs() -> None:
    machine = BrokenClockwork()
    proposer, folded = Proposer(machine, "me"), begin(machine, 0)
    for n in range(3):
        record = proposed(proposer, folded, n, waiting(cancel(n), first=n), 0, tick=True)
        assert not any(isinstance(d, InputRefused) for d in record.decisions)
        folded, _ = fold_bytes(machine, folded, record.encode())
        idle = proposer.propose(folded, n, [], 0, tick=True, must=False)
        assert (idle is None) == bool(n), "it freezes once; then a tick that fails is no record"
        if idle is not None:
            folded, _ = fold_bytes(machine, folded, idle.value)
    assert sum(folded.state.counts.values()) == 3 and folded.state.frozen


def test_a_record_over_the_limit_halves_its_batch_and_a_lone_giant_is_refused() -> None:
    limits = Limits(record_bytes=60_000)
    proposer = Proposer(MACHINE, "me", limits)
    inputs = waiting(*[cancel(n, user="big", reason="r" * 200) for n in range(8)], cancel(8, user="big", reason="r" * 1000))
    folded, sizes = begin(MACHINE, 0), []
    while folded.cursor < 8:
        record = proposed(proposer, folded, 1, inputs, 0, tick=False)
        sizes.append(len(record.inputs))
        assert len(record.encode()) <= limits.record_bytes
        folded, _ = fold_bytes(MACHINE, folded, record.encode())
    assert max(sizes) < 8 and sum(folded.state.counts.values()) == 8


def test_time_never_goes_back() -> None:
    folded, _ = step(begin(MACHINE, 0), waiting(cancel(0)), now_ms=5000)
    after, record = step(folded, waiting(cancel(1), first=1), now_ms=10)
    assert record.now_ms == after.now_ms == 5000


def test_effects_name_their_place_and_are_the_same_everywhere() -> None:
    _, record = step(begin(MACHINE, 3), waiting(cancel(0), cancel(1)))
    once, again = (outgoing(MACHINE, CONTROL, 3, record) for _ in range(2))
    assert once == again and [o.topic for o in once] == [STATUS, status_topic(PROJECT)] * 2
    assert [orjson.loads(o.value)["order"] for o in once] == ["3.1.0", "3.1.0", "3.1.1", "3.1.1"]


def test_a_stand_in_waits_steps_back_and_obeys_a_fence() -> None:
    role = Ownership("me", takeover_s=2.0, last_record_at_s=10.0)
    assert not role.decides(70.0), "an idle owner need not append anything for two minutes"
    role.on_owed(True, 10.5)
    assert not role.decides(12.4) and role.decides(12.5)
    role.on_record("me", 12.6)
    assert role.decides(12.7)
    role.on_record("other", 12.8)
    assert not role.decides(12.9)
    role.on_assigned()
    role.on_record("other", 13.0)
    assert role.decides(13.1), "who is assigned goes on; the rule keeps it safe"
    role.on_fenced(13.5)
    assert not role.decides(15.4) and role.decides(15.5)
    role.on_record("other", 16.0)
    role.on_owed(False, 16.1)
    assert not role.decides(137.9) and role.decides(138.0), "not even the record of an idle owner came"


def test_a_stand_in_begins_only_after_what_is_owed_waited_for_the_takeover_time() -> None:
    role = Ownership("me", takeover_s=2.0, last_record_at_s=10.0)
    role.on_owed(True, 40.0)
    role.on_owed(True, 41.0)
    assert not role.decides(41.9)
    role.on_owed(False, 41.95)
    role.on_owed(True, 42.0)
    assert not role.decides(43.9) and role.decides(44.0)


def test_replay_names_the_seq_and_the_field_of_one_altered_decision() -> None:
    folded, first = step(begin(MACHINE, 2), waiting(cancel(0), cancel(1)))
    _, second = step(folded, waiting(cancel(2), first=2))
    altered = orjson.loads(first.encode())
    altered["decisions"][1]["data"]["status_seq"] = 7
    report = verify([LogEntry(2, 0, orjson.dumps(altered)), LogEntry(2, 1, second.encode())], MACHINE)
    assert not report.same
    assert str(report.differences[0]) == "partition 2, seq 1, decisions[1].data.status_seq: recorded 7, recomputed 1"
    assert report.differences[1].field == "previous_hash"
    assert verify([LogEntry(2, 0, first.encode()), LogEntry(2, 1, second.encode())], MACHINE).recomputed == 2


def test_replay_sees_a_missing_and_an_added_decision_and_a_wrong_snapshot() -> None:
    _, record = step(begin(MACHINE, 0), waiting(cancel(0), cancel(1)))
    head = orjson.loads(record.encode())
    for decisions in (head["decisions"][:1], head["decisions"] + head["decisions"][:1]):
        altered = orjson.dumps(head | {"decisions": decisions})
        assert verify([LogEntry(0, 0, altered)], MACHINE).differences[0].seq == 1
    report = verify([LogEntry(0, 0, record.encode())], MACHINE, {(0, 1): "0" * 64})
    assert report.differences[0].field == "snapshot.state_sha256"


def test_a_pointer_survives_its_bytes() -> None:
    pointer = SnapshotPointer("j", 1, "id", 5, 6, "h", "key", "sha", "state", "m", 1)
    assert SnapshotPointer.decode(pointer.encode()) == pointer
    with pytest.raises(InvalidRecordError):
        SnapshotPointer.decode(b"{}")
