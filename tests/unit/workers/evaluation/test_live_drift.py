"""Live values against a reference: neither many rows nor few are drift, a shift is, and the limits are the reference's own noise."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.events.model.dataset_profile import FieldProfile, NumberSketch, ValueCounts
from trainhouse.events.model.model_observations import LiveVerdict
from trainhouse.workers.data.drift import drift_measures
from trainhouse.workers.data.publishing.field_profiles import NumberSketcher
from trainhouse.workers.evaluation.drift import (
    LiveLimits,
    NumbersDrift,
    ProfiledRows,
    _psi_rows,
    live_drift,
    numbers_drift,
    sketch_of,
)
from trainhouse.workers.evaluation.errors import InvalidEvaluationError

Draw = Callable[[np.random.Generator, int], np.ndarray]
SHAPES: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(0, 1, n),
    "amounts": lambda rng, n: np.exp(rng.normal(3, 1, n)),
    "counts": lambda rng, n: rng.poisson(4, n).astype(float),
    "zeros": lambda rng, n: np.where(rng.random(n) < 0.7, 0.0, rng.gamma(2, 2, n)),
}


def profiled(numbers: np.ndarray, rows: int | None = None) -> ProfiledRows:
    return ProfiledRows(rows or len(numbers), {"x": FieldProfile(samples=len(numbers), numbers=sketch_of(numbers))})


def verdict(reference: np.ndarray, live: np.ndarray) -> LiveVerdict:
    return live_drift(profiled(reference), profiled(live))[0].verdict


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=700))
@settings(max_examples=examples(60), deadline=None)
def test_an_array_has_the_sketch_of_its_numbers_one_by_one(numbers: list[float]) -> None:
    one_by_one = NumberSketcher()
    for number in numbers:
        one_by_one.add(number)
    whole: NumberSketch = one_by_one.sketch()  # type: ignore[assignment]
    found = sketch_of(np.array(numbers))
    assert found.model_copy(update={"mean": 0.0}) == whole.model_copy(update={"mean": 0.0})
    assert math.isclose(found.mean, whole.mean, rel_tol=1e-6, abs_tol=1e-9 * max(map(abs, numbers)))


@pytest.mark.parametrize(("reference", "live"), [(1000, 1000), (200, 20_000), (50_000, 300), (100_000, 100_000)])
def test_rows_alone_are_no_drift(reference: int, live: int) -> None:
    alarms = []
    for shape, made in SHAPES.items():
        for n in range(6):
            rng = np.random.default_rng([5, n, reference])
            if verdict(made(rng, reference), made(rng, live)) != LiveVerdict.STABLE:
                alarms.append((shape, n))
    # The limits allow a false alarm in some hundreds of fields.
    assert len(alarms) <= 1, alarms


@pytest.mark.parametrize("size", [1000, 20_000])
@pytest.mark.parametrize(
    ("shape", "change"),
    [
        ("normal", lambda x: x + 0.4),
        ("normal", lambda x: x * 1.6),
        ("amounts", lambda x: x * 1.5),
        ("counts", lambda x: x + 1),
        ("zeros", lambda x: np.where(x == 0, 0.0, x * 1000)),
        ("normal", lambda x: np.where(np.arange(len(x)) % 25 == 0, x + 40, x)),
    ],
)
def test_a_shift_is_found(shape: str, change: Callable[[np.ndarray], np.ndarray], size: int) -> None:
    for n in range(4):
        rng = np.random.default_rng([2, n])
        assert verdict(SHAPES[shape](rng, size), change(SHAPES[shape](rng, size))) == LiveVerdict.DRIFTED


def test_a_difference_that_very_many_rows_prove_but_that_is_slight_is_none() -> None:
    rng = np.random.default_rng(1)
    reference, live = rng.normal(0, 1, 400_000), rng.normal(0.02, 1, 400_000)
    assert verdict(reference, live) == LiveVerdict.STABLE


def test_few_live_rows_have_wider_limits() -> None:
    rng = np.random.default_rng(1)
    reference = sketch_of(rng.normal(0, 1, 5000))

    def limits(rows: int) -> NumbersDrift:
        return numbers_drift(reference, sketch_of(rng.normal(0, 1, rows)), LiveLimits(), 0.001)

    few, many = limits(60), limits(50_000)
    assert few.ks.limit > 0.2 > many.ks.limit == 0.1 and few.wasserstein.limit > many.wasserstein.limit == 0.1
    assert few.psi.limit > many.psi.limit == 0.1
    small = live_drift(profiled(rng.normal(0, 1, 5000)), profiled(rng.normal(9, 1, 29)))[0]
    assert small.verdict == LiveVerdict.TOO_FEW and small.numbers is None


def test_the_limit_of_ks_is_about_the_one_of_theory_where_noise_is_beyond_the_floor() -> None:
    rng = np.random.default_rng(1)
    found = numbers_drift(sketch_of(rng.normal(0, 1, 200)), sketch_of(rng.normal(0, 1, 200)), LiveLimits(resamples=1999), 0.01)
    assert found.ks.limit == pytest.approx(drift_measures.ks_noise(200, 200, 0.01), rel=0.12)


def test_the_index_of_rows_is_that_of_two_counts() -> None:
    before, after = np.array([[4, 9, 0], [1, 1, 8]]), np.array([[5, 3, 2], [0, 2, 9]])
    expected = [drift_measures.psi(a.tolist(), b.tolist()) for a, b in zip(before, after, strict=True)]
    assert _psi_rows(before, after).tolist() == pytest.approx(expected)


def test_constants_missing_values_and_fields_that_are_gone() -> None:
    same = profiled(np.full(500, 3.0))
    assert live_drift(same, same)[0].verdict == LiveVerdict.STABLE
    assert verdict(np.full(500, 3.0), np.full(500, 4.0)) == LiveVerdict.DRIFTED
    rng = np.random.default_rng(1)
    lost = live_drift(profiled(rng.normal(0, 1, 1000)), profiled(rng.normal(0, 1, 600), rows=1000))[0]
    assert lost.verdict == LiveVerdict.DRIFTED and "missing 0.0 % → 40.0 %" in lost.reason
    gone = live_drift(profiled(rng.normal(0, 1, 100)), ProfiledRows(100, {}))[0]
    assert gone.verdict == LiveVerdict.MISSING and "live rows" in gone.reason
    for numbers in ([], [1.0, math.nan], [math.inf]):
        with pytest.raises(InvalidEvaluationError, match="missing"):
            sketch_of(np.array(numbers))


def test_outputs_that_are_labels_are_compared_by_their_values() -> None:
    def labels(**counts: int) -> ProfiledRows:
        rows = sum(counts.values())
        return ProfiledRows(rows, {"y": FieldProfile(samples=rows, values=ValueCounts(distinct=len(counts), top=counts))})

    before = labels(a=500, b=300, c=200)
    assert live_drift(before, labels(a=48_000, b=31_000, c=21_000))[0].verdict == LiveVerdict.STABLE
    found = live_drift(before, labels(a=200, b=300, d=500))[0]
    assert found.verdict == LiveVerdict.DRIFTED and "new values: 'd'" in found.reason and "lost values: 'c'" in found.reason


def test_equal_seeds_give_equal_limits() -> None:
    rng = np.random.default_rng(1)
    one, other = (sketch_of(rng.normal(0, 1, 100)) for _ in range(2))
    assert numbers_drift(one, other, LiveLimits(seed=3), 0.01) == numbers_drift(one, other, LiveLimits(seed=3), 0.01)
    with pytest.raises(InvalidEvaluationError):
        LiveLimits(alpha=0.0)
