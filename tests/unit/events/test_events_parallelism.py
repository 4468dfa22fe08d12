"""Layouts in a spec: places of ranks, shares of the data, sizes of elastic gangs; what does not fit is refused with what to change."""

from itertools import product
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.core_world import spec
from tests.support.profiles import examples
from trainhouse.events import JobSpec
from trainhouse.events.model.parallelism import DIMENSIONS, Parallelism

SIZES = st.integers(1, 5)
LAYOUTS = st.builds(Parallelism, dp=SIZES, fsdp=SIZES, tp=SIZES, pp=SIZES)


@settings(max_examples=examples(100))
@given(LAYOUTS)
def test_each_rank_has_a_place_of_its_own_in_the_order_of_the_dimensions(layout: Parallelism) -> None:
    places = [tuple(layout.place_of(rank)[name] for name in DIMENSIONS) for rank in range(layout.ranks)]
    assert places == list(product(*(range(getattr(layout, name)) for name in DIMENSIONS)))


@settings(max_examples=examples(100))
@given(LAYOUTS)
def test_ranks_that_differ_in_tp_or_pp_alone_read_the_same_data_and_no_others_do(layout: Parallelism) -> None:
    readers: dict[int, set[tuple[int, int]]] = {}
    for rank in range(layout.ranks):
        place = layout.place_of(rank)
        readers.setdefault(layout.data_rank(rank), set()).add((place["dp"], place["fsdp"]))
    assert sorted(readers) == list(range(layout.data_size))
    assert all(len(places) == 1 for places in readers.values()) and len(set().union(*readers.values())) == layout.data_size


@settings(max_examples=examples(100))
@given(LAYOUTS, st.integers(0, 60))
def test_another_number_of_ranks_changes_dp_alone_or_is_refused(layout: Parallelism, ranks: int) -> None:
    if ranks == 0 or ranks % layout.replica_ranks:
        with pytest.raises(ValueError, match=f"{ranks} ranks are no multiple of fsdp × tp × pp = {layout.replica_ranks}"):
            layout.at(ranks)
    else:
        other = layout.at(ranks)
        assert other.ranks == ranks and other.model_copy(update={"dp": layout.dp}) == layout


@settings(max_examples=examples(100))
@given(LAYOUTS, st.integers(1, 700))
def test_a_spec_is_taken_if_and_only_if_the_product_is_the_gang(layout: Parallelism, ranks: int) -> None:
    for count in (ranks, layout.ranks):
        if count == layout.ranks:
            taken = spec(ranks=count, parallelism=layout.model_dump())
            assert taken.group_ranks == layout.tp and JobSpec.model_validate_json(taken.canonical_json()) == taken
        else:
            with pytest.raises(ValidationError, match=f"= {layout.ranks}, but the gang has ranks = {count}; make them equal"):
                spec(ranks=count, parallelism=layout.model_dump())


@pytest.mark.parametrize(
    ("gang", "layout", "message"),
    [
        (4, {"tp": 2}, "dp × fsdp × tp × pp = 1 × 1 × 2 × 1 = 2, but the gang has ranks = 4; make them equal"),
        (2, {"ep": 2}, "parallelism.ep: expert parallelism is not supported; leave it out"),
        (2, {"dp": 2, "schedule": "1F1B"}, "schedule = 1F1B is for a pipeline, and pp is 1"),
        (2, {"pp": 2, "schedule": "zigzag"}, "Input should be 'GPipe', '1F1B' or 'Interleaved1F1B'"),
        (2, {"dp": 0, "tp": 2}, "greater than or equal to 1"),
        (2, {"cp": 2}, "Extra inputs are not permitted"),
        ({"ranks": 8, "min_ranks": 2}, {"dp": 2, "tp": 2, "pp": 2}, "min_ranks = 2 is no multiple of fsdp × tp × pp = 4"),
        ({"ranks": 12, "group_ranks": 3}, {"dp": 6, "tp": 2}, "group_ranks = 3 would split tensor-parallel groups of tp = 2"),
        ({"ranks": 2, "roles": [{"name": n, "ranks": 1} for n in "ab"]}, {"dp": 2}, "parallelism and gang.roles exclude each other"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(gang: Any, layout: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        spec(gang=gang, parallelism=layout)


def test_groups_in_one_nvlink_domain_follow_from_the_layout() -> None:
    assert spec(gang=8, parallelism={"dp": 2, "tp": 4}).group_ranks == 4
    assert spec(gang={"ranks": 8, "group_ranks": 8}, parallelism={"dp": 2, "tp": 4}).group_ranks == 8
    assert spec(gang={"ranks": 16, "group_ranks": 8}, parallelism={"tp": 16}).group_ranks == 8
    assert spec(gang={"ranks": 4, "group_ranks": 2}).group_ranks == 2


def test_a_spec_without_a_layout_is_written_as_before_there_were_any() -> None:
    assert "parallelism" not in orjson.loads(spec(gang=2).canonical_json())
    assert orjson.loads(spec(gang=2, parallelism={"pp": 2}).canonical_json())["parallelism"] == {"dp": 1, "fsdp": 1, "tp": 1, "pp": 2}
