"""Drift of windows of live predictions: the sides apart, several observations together, many rows alone no drift."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from trainhouse.events.model.bounds import MOST_RATIO
from trainhouse.events.model.dataset_profile import FieldProfile, ValueCounts
from trainhouse.events.model.model_observations import LiveFieldFigures, LiveSide, LiveVerdict, ObservedRows
from trainhouse.workers.evaluation.drift import sketch_of
from trainhouse.workers.evaluation.observed_drift import observed_drift

RNG = np.random.default_rng(5)
AGE, SCORE, LABEL = (LiveSide.INPUT, "json.age"), (LiveSide.OUTPUT, "json.age"), (LiveSide.OUTPUT, "label")


def numbers(values: NDArray[np.float64]) -> FieldProfile:
    return FieldProfile(samples=len(values), numbers=sketch_of(values))


def labels(**top: int) -> FieldProfile:
    return FieldProfile(samples=sum(top.values()), values=ValueCounts(distinct=len(top), top=top))


def rows(mean: float, count: int, cats: float = 0.5) -> ObservedRows:
    half = round(cats * count)
    profiles = {
        AGE: numbers(RNG.normal(mean, 10, count)),
        SCORE: numbers(RNG.normal(0, 1, count)),
        LABEL: labels(cat=half, dog=count - half),
    }
    return ObservedRows(count, profiles)


def test_the_side_that_drifted_is_named_with_its_figures() -> None:
    reference, live = rows(40, 20_000), [rows(46, 1000), rows(46, 1000)]
    found = {(each.side, each.field): each for each in observed_drift(reference, live)}
    assert list(found) == sorted(found)
    assert {key: each.verdict for key, each in found.items()} == {
        AGE: LiveVerdict.DRIFTED,
        SCORE: LiveVerdict.STABLE,
        LABEL: LiveVerdict.STABLE,
    }
    age = found[AGE]
    assert age.wasserstein is not None and age.wasserstein_limit is not None and age.wasserstein > age.wasserstein_limit
    assert "Wasserstein" in age.reason


def test_many_rows_alone_are_no_drift_and_few_are_too_few() -> None:
    assert {each.verdict for each in observed_drift(rows(40, 20_000), [rows(40, 200_000) for _ in range(3)])} == {LiveVerdict.STABLE}
    assert {each.verdict for each in observed_drift(rows(40, 20_000), [rows(80, 5)])} == {LiveVerdict.TOO_FEW}


def test_a_field_that_the_reference_lacks_is_missing_and_no_drift() -> None:
    reference = rows(40, 1000)
    alone = ObservedRows(1000, {key: each for key, each in reference.profiles.items() if key != LABEL})
    assert {each.field for each in observed_drift(alone, [rows(40, 1000)]) if each.verdict is LiveVerdict.MISSING} == {"label"}


@pytest.mark.parametrize("live", [1e20, 1e300, 1.7e308])
def test_figures_of_extreme_numbers_are_within_their_bounds(live: float) -> None:
    """A distance is of any size, and one beyond the schema would make the event one that its readers refuse."""
    reference, observed = (ObservedRows(100, {AGE: numbers(np.full(100, each))}) for each in (-live, live))
    (found,) = observed_drift(reference, [observed])
    assert found.verdict is LiveVerdict.DRIFTED and found.wasserstein == MOST_RATIO
    assert LiveFieldFigures.model_validate_json(found.model_dump_json()) == found
    assert len(found.reason) < 200


def test_a_distance_that_is_no_number_is_absent() -> None:
    far = ObservedRows(100, {AGE: numbers(np.repeat([-1.7e308, 1.7e308], 50))})
    (found,) = observed_drift(far, [far])
    assert found.verdict is LiveVerdict.STABLE and found.wasserstein is None and found.psi is not None
