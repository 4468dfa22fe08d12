"""Profiles of fields: bounded, equal in any order, and close to the values that they stand for."""

import math
import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.profiles import examples
from trainhouse.events.model.dataset_profile import (
    MOST_BINS,
    MOST_DISTINCT,
    MOST_PROFILES,
    MOST_TOP_VALUES,
    MOST_VALUE_CHARS,
    NumberSketch,
    number_of_key,
    ordered_key,
)
from trainhouse.workers.data.publishing.field_profiles import FieldProfiles, KeptNumbers, NumberSketcher

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def sketch(numbers: list[float]) -> NumberSketch:
    sketcher = NumberSketcher()
    for number in numbers:
        sketcher.add(number)
    found = sketcher.sketch()
    assert found is not None
    return found


def profiles(rows: list[dict[str, object]]) -> FieldProfiles:
    found = FieldProfiles()
    for row in rows:
        found.add({"json": b"{}"}, row)
    return found


@settings(max_examples=examples(100))
@given(a=FINITE, b=FINITE)
def test_keys_are_in_the_order_of_numbers_and_lead_back(a: float, b: float) -> None:
    assert (ordered_key(a) < ordered_key(b)) == (a < b) and number_of_key(ordered_key(a)) == a
    assert ordered_key(0.0) == ordered_key(-0.0) == 0


@settings(max_examples=examples(100))
@given(numbers=st.lists(FINITE, min_size=1, max_size=60), seed=st.integers(0, 9))
def test_a_sketch_is_equal_in_any_order_and_few_numbers_are_exact(numbers: list[float], seed: int) -> None:
    one = sketch(numbers)
    assert sketch(random.Random(seed).sample(numbers, len(numbers))) == one
    assert one.exact_counts() == {n + 0.0: sum(m == n for m in numbers) for n in numbers}
    assert (one.least, one.most, one.count) == (min(numbers), max(numbers), len(numbers))
    if max(map(abs, numbers)) < 1e300:
        assert one.mean == math.fsum(numbers) / len(numbers) or math.isclose(one.mean, math.fsum(numbers) / len(numbers), rel_tol=1e-12)


def test_a_sketch_of_many_numbers_is_bounded_and_does_not_depend_on_their_order_or_on_how_they_were_put_together() -> None:
    draw = random.Random(1)
    numbers = [draw.choice([draw.gauss(0, 1), draw.gauss(1e9, 2), 10 ** draw.uniform(-300, 300)]) for _ in range(8000)]
    one = sketch(numbers)
    assert 64 < len(one.bins) <= MOST_BINS and one.count == 8000
    assert sketch(sorted(numbers)) == one
    both = NumberSketch.merged([sketch(numbers[:3000]), sketch(numbers[3000:])])
    assert (both.shift, both.bins, both.counts, both.least, both.most) == (one.shift, one.bins, one.counts, one.least, one.most)


def test_numbers_far_from_zero_are_told_apart_as_finely_as_others() -> None:
    draw = random.Random(2)
    times = sketch([1_790_000_000 + draw.uniform(0, 86_400) for _ in range(5000)])
    assert len(times.bins) > MOST_BINS // 4 and max(times.counts) < 5000 / 50


def test_values_are_counted_until_they_are_too_many() -> None:
    few = profiles([{"label": f"l{n % 7}", "ok": n % 2 == 0} for n in range(70)]).profiles()
    label, ok = few["json.label"].values, few["json.ok"].values
    assert label is not None and label.complete and label.top == {f"l{n}": 10 for n in range(7)}
    assert ok is not None and ok.top == {"false": 35, "true": 35}
    many = profiles([{"label": f"l{n % 500:04d}"} for n in range(1010)]).profiles()["json.label"].values
    assert many is not None and many.distinct == 500 and len(many.top) == MOST_TOP_VALUES and not many.complete
    assert all(many.top[f"l{n:04d}"] == 3 for n in range(10))
    ids = profiles([{"label": f"l{n}"} for n in range(MOST_DISTINCT + 1)]).profiles()["json.label"].values
    assert ids is not None and ids.distinct == MOST_DISTINCT + 1 and ids.top == {}


def test_a_long_value_is_named_by_its_beginning_and_its_hash() -> None:
    values = profiles([{"text": "x" * 1000 + end} for end in "ab"]).profiles()["json.text"].values
    assert values is not None and values.distinct == 2 and {len(v) for v in values.top} == {MOST_VALUE_CHARS}


def test_members_columns_and_numbers_in_text_have_a_profile() -> None:
    found = FieldProfiles()
    found.add(
        {"json": b"[1]", "cls": b"cat", "jpg": b"\xff" * 9}, {"n": 1, "price": "2.50", "tags": ["a", "b"], "none": None, "deep": {"a": 1}}
    )
    found.add({"cls": b"dog"}, None)
    made = found.profiles()
    assert set(made) == {"json", "cls", "jpg", "json.n", "json.price", "json.tags", "json.deep"}
    assert made["cls"].samples == 2 and made["cls"].values is not None and made["cls"].values.top == {"cat": 1, "dog": 1}
    assert made["jpg"].values is None and made["jpg"].lengths is not None and made["jpg"].lengths.mean == 9
    assert made["json.price"].numbers is not None and made["json.price"].numbers.mean == 2.5
    assert made["json.tags"].lengths is not None and made["json.tags"].lengths.mean == 2
    assert made["json.deep"].numbers is made["json.deep"].lengths is made["json.deep"].values is None


def test_of_too_many_fields_the_first_by_name_have_one_in_any_order() -> None:
    names = [f"c{n:04d}" for n in range(MOST_PROFILES + 40)]
    rows: list[dict[str, object]] = [{name: 1} for name in names]
    one = profiles(rows).profiles()
    random.Random(3).shuffle(rows)
    assert profiles(rows).profiles() == one
    assert list(one) == ["json", *(f"json.{name}" for name in names[: MOST_PROFILES - 1])]


def test_memory_does_not_grow_with_samples() -> None:
    draw = random.Random(4)
    found = FieldProfiles()

    def more(count: int) -> int:
        for _ in range(count):
            found.add({"txt": draw.randbytes(draw.randrange(90)).hex().encode()}, {"x": draw.gauss(0, 1), "id": draw.randbytes(8).hex()})
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first = more(3000)
        assert more(6000) < first + 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("wrong", ["9" * 4000, str(2**63), str(-(2**63) - 1), '"1"', "1.0", "true"])
def test_a_bin_of_a_rank_is_a_whole_number_of_64_bits(wrong: str) -> None:
    def kept(bins: str) -> KeptNumbers:
        return KeptNumbers.model_validate_json(f'{{"least": 0, "most": 0, "total": "0", "shift": 0, "bins": [{bins}], "counts": [1]}}')

    assert kept(str(2**63 - 1)).bins == (2**63 - 1,) and kept(str(-(2**63))).bins == (-(2**63),)
    with pytest.raises(ValidationError):
        kept(wrong)
