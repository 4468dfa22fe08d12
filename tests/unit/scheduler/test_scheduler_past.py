"""The cluster as it was: exactly the records up to a moment, whoever else wrote, wherever the reading begins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting_machine import CountingMachine, Counts, cancel, proposed
from trainhouse.scheduler.core.protocol.batch import Limits, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import Folded, begin, fold_bytes
from trainhouse.scheduler.replay import LogEntry
from trainhouse.scheduler.time_travel import NoSuchMomentError, past

MACHINE = CountingMachine()


def journal(times_ms: list[int], partition: int = 0) -> tuple[list[LogEntry], list[tuple[int, dict[str, int]]]]:
    """One record at each time, each beside one of an owner that lost; and what was counted after each."""
    folded, entries, after = begin(MACHINE, partition), list[LogEntry](), list[tuple[int, dict[str, int]]]()
    for n, now_ms in enumerate(times_ms):
        inputs = [pending(n, cancel(n), (), Limits())]
        for owner in ("me", "late"):
            record = proposed(Proposer(MACHINE, owner), folded, now_ms + (1 if owner == "late" else 0), inputs, 0, tick=False)
            entries.append(LogEntry(partition, len(entries), record.encode()))
        folded, _ = fold_bytes(MACHINE, folded, entries[-2].value)
        after.append((now_ms, dict(folded.state.counts)))
    return entries, after


steps = st.lists(st.integers(1, 40), min_size=1, max_size=12).map(sorted)


@given(steps, st.integers(-5, 50))
def test_it_is_the_fold_of_exactly_what_came_before(times_ms: list[int], at_ms: int) -> None:
    entries, after = journal(times_ms)
    before = [counts for now_ms, counts in after if now_ms <= at_ms]
    if not before:
        with pytest.raises(NoSuchMomentError) as early:
            past(entries, MACHINE, at_ms)
        assert early.value.first_ms == times_ms[0]
        return
    found = past(entries, MACHINE, at_ms)
    assert found.partitions[0].state.counts == before[-1]
    assert found.partitions[0].seq == len(before)
    assert found.whole == (len(before) == len(after))
    assert found.last_ms == max(t for t in times_ms if t <= at_ms)


@given(steps, st.integers(0, 12), st.integers(0, 50))
def test_a_snapshot_that_is_old_enough_changes_nothing(times_ms: list[int], cut: int, at_ms: int) -> None:
    entries, _ = journal(times_ms)
    cut = min(cut, len(times_ms))
    at_ms = max(at_ms, times_ms[0], times_ms[cut - 1] if cut else 0)
    known: Folded[Counts] = begin(MACHINE, 0)
    for entry in entries[: 2 * cut]:
        known, _ = fold_bytes(MACHINE, known, entry.value)
    whole = past(entries, MACHINE, at_ms)
    rest = past(entries[2 * cut :], MACHINE, at_ms, [known] if cut else [])
    assert (rest.partitions[0].seq, rest.partitions[0].state, rest.whole) == (
        whole.partitions[0].seq,
        whole.partitions[0].state,
        whole.whole,
    )


def test_partitions_are_folded_apart_to_the_same_moment() -> None:
    one, _ = journal([10, 20, 30], 0)
    two, _ = journal([15, 25], 1)
    found = past([e for pair in zip(one, two + two[-2:], strict=False) for e in pair], MACHINE, 22)
    assert {p: f.seq for p, f in found.partitions.items()} == {0: 2, 1: 1}
    assert found.last_ms == 20 and not found.whole


def test_a_claim_before_all_time_is_no_moment() -> None:
    claim = Proposer(MACHINE, "me").claim(begin(MACHINE, 0), 0).record
    folded, _ = fold_bytes(MACHINE, begin(MACHINE, 0), claim.encode())
    record = proposed(Proposer(MACHINE, "me"), folded, 50, [pending(0, cancel(0), (), Limits())], 0, tick=False)
    entries = [LogEntry(0, 0, claim.encode()), LogEntry(0, 1, record.encode())]
    with pytest.raises(NoSuchMomentError) as early:
        past(entries, MACHINE, 49)
    assert early.value.first_ms == 50
    assert past(entries, MACHINE, 50).partitions[0].seq == 2


def test_an_empty_journal_has_no_moment() -> None:
    with pytest.raises(NoSuchMomentError) as none:
        past([], MACHINE, 5)
    assert none.value.first_ms is None
