"""How ranks share writing: every item once, evenly, whatever the sizes."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.checkpointing.state.balance import MAX_PIECE_BYTES, MIN_PIECE_BYTES, share, split_rows


@given(st.lists(st.integers(0, 500), max_size=4), st.sampled_from([1, 2, 4, 8]), st.integers(1, 64))
@settings(max_examples=examples(200))
def test_pieces_cover_the_rows_once(shape: list[int], item_bytes: int, ranks: int) -> None:
    cuts = split_rows(shape, item_bytes, ranks)
    assert [start for start, _ in cuts] == [sum(rows for _, rows in cuts[:i]) for i in range(len(cuts))]
    assert sum(rows for _, rows in cuts) == (shape[0] if shape else 0)
    row_bytes = item_bytes * math.prod(shape[1:])
    if len(cuts) > 1:
        assert all(rows * row_bytes <= MAX_PIECE_BYTES + row_bytes for _, rows in cuts)
        assert math.prod(shape) * item_bytes > MIN_PIECE_BYTES


def test_a_large_tensor_is_cut_into_one_piece_a_rank_and_a_huge_one_into_bounded_pieces() -> None:
    assert split_rows((1000, 1000), 4, 2) == [(0, 500), (500, 500)]
    assert split_rows((10, 10), 4, 8) == [(0, 10)]
    huge = split_rows((1 << 20, 256), 4, 2)
    assert len(huge) == 32 and all(rows * 1024 == MAX_PIECE_BYTES for _, rows in huge)
    assert split_rows((), 4, 2) == [(0, 0)] and split_rows((0, 3), 4, 2) == [(0, 0)]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=60), st.integers(1, 9))
@settings(max_examples=examples(200))
def test_what_all_hold_is_shared_evenly(sizes: list[int], ranks: int) -> None:
    held = {i: list(range(ranks)) for i in range(len(sizes))}
    size_of = dict(enumerate(sizes))
    written_by = share(held, size_of, {i: i for i in held})
    assert set(written_by) == set(held)
    loads = [sum(max(1, sizes[i]) for i, rank in written_by.items() if rank == r) for r in range(ranks)]
    assert max(loads) - min(loads) <= max(max(sizes), 1), "no rank is ahead by more than one item"
    backwards = share(dict(reversed(held.items())), size_of, {i: i for i in held})
    assert backwards == written_by


def test_what_only_one_rank_holds_it_writes_and_the_others_make_up_for_it() -> None:
    held = {"own": [0], **{f"all{i}": [0, 1] for i in range(4)}}
    written_by = share(held, {"own": 300, **{f"all{i}": 100 for i in range(4)}}, {k: k for k in held})
    assert written_by["own"] == 0
    assert sum(rank == 1 for rank in written_by.values()) >= 3


def test_overlapping_groups_of_holders_are_balanced_too() -> None:
    held = {i: [0, 1] if i % 2 else [1, 2] for i in range(60)}
    written_by = share(held, dict.fromkeys(held, 10), {i: i for i in held})
    assert all(rank in held[i] for i, rank in written_by.items())
    counts = [list(written_by.values()).count(r) for r in range(3)]
    assert max(counts) <= 31 and sum(counts) == 60
