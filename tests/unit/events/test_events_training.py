"""`training` of a spec: what belongs together, and sizes of gangs that keep the global batch."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.core_world import spec
from tests.support.profiles import examples
from trainhouse.events import JobSpec
from trainhouse.events.model.parallelism import Parallelism
from trainhouse.events.model.training import Training

SIZES = st.integers(1, 4)


@settings(max_examples=examples(200))
@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 64))
def test_accumulation_keeps_the_global_batch_or_the_size_is_refused(micro_batches: int, micro_batch: int, data_size: int) -> None:
    training = Training(global_batch=micro_batches * micro_batch, micro_batch=micro_batch)
    if micro_batches % data_size:
        with pytest.raises(ValueError, match=f"does not divide by {data_size} data ranks × micro_batch = {micro_batch}"):
            training.at(data_size)
    else:
        assert training.at(data_size).accumulation * data_size * micro_batch == training.global_batch  # type: ignore[operator]


def test_without_a_global_batch_accumulation_is_as_given_at_every_size() -> None:
    assert Training().at(7).accumulation == 1 and Training(accumulation=4).at(7).accumulation == 4


@settings(max_examples=examples(100))
@given(st.builds(Parallelism, dp=SIZES, fsdp=SIZES, tp=SIZES, pp=SIZES), st.integers(1, 48))
def test_a_spec_is_taken_if_and_only_if_its_gang_keeps_the_batch(layout: Parallelism, micro_batches: int) -> None:
    fields: dict[str, Any] = {"gang": layout.ranks, "parallelism": layout.model_dump()}
    fields["training"] = {"global_batch": micro_batches * 2, "micro_batch": 2}
    if micro_batches % layout.data_size:
        with pytest.raises(ValidationError, match=f"gang.ranks = {layout.ranks} cannot keep training.global_batch = {micro_batches * 2}"):
            spec(**fields)
    else:
        taken = spec(**fields)
        assert JobSpec.model_validate_json(taken.canonical_json()) == taken
        assert taken.ranks_of_batch % layout.ranks == 0


@pytest.mark.parametrize(
    ("gang", "training", "message"),
    [
        (1, {"global_batch": 8}, "training.global_batch needs micro_batch beside it"),
        (1, {"micro_batch": 8}, "training.micro_batch needs global_batch beside it"),
        (1, {"global_batch": 9, "micro_batch": 2}, "global_batch = 9 is no multiple of micro_batch = 2"),
        (1, {"global_batch": 8, "micro_batch": 2, "accumulation": 4}, "accumulation follows from global_batch; leave one of them out"),
        (1, {"precision": "fp8"}, "Input should be 'fp32', 'bf16' or 'fp16'"),
        (1, {"clip_norm": 0}, "greater than 0"),
        (1, {"accumulation": 0}, "greater than or equal to 1"),
        ({"ranks": 8, "min_ranks": 3}, {"global_batch": 48, "micro_batch": 3}, "gang.min_ranks = 3 cannot keep.*that can: 1, 2, 4, 8, 16"),
        ({"ranks": 5}, {"global_batch": 48, "micro_batch": 2}, "gang.ranks = 5 cannot keep.*sizes that can: 1, 2, 3, 4, 6, 8"),
        ({"ranks": 2, "roles": [{"name": n, "ranks": 1} for n in "ab"]}, {"global_batch": 2, "micro_batch": 1}, "exclude each other"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_way_out(gang: Any, training: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        spec(gang=gang, training=training)


def test_a_spec_that_says_nothing_of_it_is_written_as_before() -> None:
    assert b"training" not in spec().canonical_json()
    assert spec(training={"compile": True}).canonical_json().count(b'"training":{"compile":true}') == 1
