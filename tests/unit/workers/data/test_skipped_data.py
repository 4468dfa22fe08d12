"""Positions that a loader leaves out: of no batch, for any number of ranks, after kills and resizes; all others stay, in their order."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.unit.workers.data.test_data_loader import gang, loader, taken
from trainhouse.workers.data import InvalidDataError, Mixture
from trainhouse.workers.data.batches import Batches, Cursor, Share
from trainhouse.workers.data.order import Sequential
from trainhouse.workers.data.skips import Skips

Ranges = list[tuple[int, int]]
RANGES = st.lists(st.tuples(st.integers(0, 150), st.integers(0, 50)).map(lambda r: (r[0], r[0] + r[1])), max_size=4)


@given(RANGES)
def test_what_remains_is_counted_and_placed(ranges: Ranges) -> None:
    skips = Skips.of(ranges)
    left = [at for at in range(300) if not any(begin <= at < end for begin, end in ranges)]
    assert skips.places(np.arange(len(left))).tolist() == left
    assert [skips.remaining(at) for at in left] == list(range(len(left)))
    assert skips.and_also(ranges) == skips and bool(skips) == any(begin < end for begin, end in ranges)
    inside = [at - 40 for at in range(40, 90) if at not in left]
    assert [at for at in range(50) if any(begin <= at < end for begin, end in skips.within(40, 90).ranges)] == inside


def remaining(samples: int, batch: int, last: str | None, ranges: Ranges, passes: int) -> list[int]:
    """Positions of the order in which a loader that leaves out `ranges` goes through it, by the plain definition."""
    result: list[int] = []
    for data_pass in range(passes):
        begin = data_pass * samples
        each = [begin + at for at in range(samples) if not any(first <= begin + at < end for first, end in ranges)]
        rest = len(each) % batch
        if last == "drop":
            each = each[: len(each) - rest]
        elif last == "pad" and rest:
            each += (each * batch)[: batch - rest]
        result += each
    return result


@settings(max_examples=examples(200))
@given(
    st.data(),
    st.sampled_from([4, 8, 12]),
    st.integers(12, 60),
    RANGES,
    st.sampled_from([None, "drop", "pad"]),
    st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.integers(0, 8), st.integers(0, 3)), min_size=1, max_size=5),
)
def test_a_pass_has_all_others_at_any_number_of_ranks_after_kills_and_resizes(
    data: st.DataObject, batch: int, samples: int, ranges: Ranges, last: str | None, lives: list[tuple[int, int, int]]
) -> None:
    used: list[int] = []
    state: dict[str, Any] | None = None
    order = loader(samples, 4).order
    for size, saved, lost in lives:
        loaders = gang(samples, batch, size, state, last=last)
        if state is None:  # the attempts after that have it from the checkpoint
            for each in loaders:
                each.skip(ranges)
        used += taken(loaders, saved)
        state = loaders[0].state_dict()
        taken(loaders, lost)
    places = np.array(remaining(samples, batch, last, ranges, 60)[: len(used)], np.int64)
    passes, positions = np.divmod(places, samples)
    assert used == order.indices(passes, positions).tolist()
    whole = int(passes[-1]) if len(passes) else 0
    if last is None:
        left_out = [at for at in range(whole * samples) if any(begin <= at < end for begin, end in ranges)]
        gone = Counter(order.indices(*np.divmod(np.array(left_out, np.int64), samples)).tolist())
        expected = Counter(list(range(samples)) * whole) - gone
        assert Counter(np.array(used)[passes < whole].tolist()) == +expected


@settings(max_examples=examples(100))
@given(st.sampled_from([3, 4, 7]), st.integers(8, 40), RANGES, st.sampled_from([None, "drop", "pad"]), st.integers(1, 12))
def test_spans_are_the_positions_of_the_batches(batch: int, samples: int, ranges: Ranges, last: Any, count: int) -> None:
    batches = Batches(Sequential(samples), Share(batch), last)
    batches.skips = Skips.of(ranges)
    cursor = Cursor()
    used: list[int] = []
    for _ in range(count):
        for span in batches.spans(cursor):
            for at in range(span.begin, span.begin + span.positions):
                used.append(span.begin // samples * samples + at % samples if span.padded else at)
        cursor = batches.after(cursor)
    assert used == remaining(samples, batch, last, ranges, 60)[: len(used)] and len(used) == count * batch


def test_what_is_left_out_while_the_loader_reads_is_left_out_of_the_next_batch() -> None:
    each = loader(40, 4, shuffle=False, workers=1)
    assert next(each) == [0, 1, 2, 3]
    each.skip([(4, 10), (12, 13)])
    assert next(each) == [10, 11, 13, 14]
    assert each.state_dict()["skipped"] == [[4, 10], [12, 13]] and each.state_dict()["position"] == 15


def test_the_state_forgets_what_lies_in_earlier_passes_and_has_no_field_without_any() -> None:
    each = loader(10, 5, shuffle=False)
    assert "skipped" not in each.state_dict()
    each.skip([(2, 4), (13, 15)])
    assert [next(each) for _ in range(4)] == [[0, 1, 4, 5, 6], [7, 8, 9, 0, 1], [2, 5, 6, 7, 8], [9, 0, 1, 2, 3]]
    assert "skipped" not in each.state_dict()


def test_a_mixture_leaves_out_positions_of_the_mixture() -> None:
    made = [loader(Mixture([(range(100), 3), (range(100), 1)]), 4) for _ in range(2)]
    whole = [next(made[0]) for _ in range(6)]
    made[1].skip([(4, 12)])
    assert [next(made[1]) for _ in range(4)] == [whole[0], *whole[3:]]


def test_the_state_of_another_order_is_refused_as_ever() -> None:
    each = loader(40, 4)
    each.skip([(4, 10)])
    with pytest.raises(InvalidDataError):
        loader(41, 4).load_state_dict(json.loads(json.dumps(each.state_dict())))
