"""Records of a journal that count for a reader which folds nothing, wherever it begins."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.events.wire.journal import GreatestSeqs


def counting(seqs: list[int]) -> list[int]:
    """The seqs that count, of one partition's records in order."""
    reader = GreatestSeqs()
    return [seq for seq in seqs if reader.counts(0, seq)]


@pytest.mark.parametrize(
    ("seqs", "counted"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([40, 41, 41, 40, 42], [40, 41, 42]),  # read from the middle on
        ([5, 6, 900, 7, 8], [5, 6, 7, 8]),
        ([5, 900, 6, 901, 7], [5, 6, 7]),  # both are strays: what counts came between them
        ([5, 6, 100, 101, 102], [5, 6, 101, 102]),  # trimmed while it was read
        ([5, 6, 100, 100, 101, 99, 102], [5, 6, 101, 102]),
        ([0, -4, 1, 2], [1, 2]),
    ],
)
def test_the_seq_that_is_due_counts_and_behind_a_gap_two_in_a_row(seqs: list[int], counted: list[int]) -> None:
    assert counting(seqs) == counted


@settings(max_examples=examples(100))
@given(st.integers(1, 50), st.integers(1, 20), st.data())
def test_what_a_fold_counts_is_what_a_reader_from_anywhere_counts(first: int, count: int, data: st.DataObject) -> None:
    due, seqs = list(range(first, first + count)), list[int]()
    for seq in due:
        # Between two that count: what lost a race, and single strays that are not due.
        seqs += [seq, *data.draw(st.lists(st.integers(1, seq), max_size=3)), *data.draw(st.lists(st.integers(seq + 2, 2**40), max_size=1))]
    assert counting(seqs) == due


def test_partitions_are_apart() -> None:
    reader = GreatestSeqs()
    assert [reader.counts(p, s) for p, s in [(0, 5), (1, 90), (0, 6), (1, 91), (0, 91)]] == [True, True, True, True, False]
