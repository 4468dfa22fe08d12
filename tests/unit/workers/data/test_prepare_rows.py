"""Steps of a preparation: pure functions of a row, and moments that are exact in any order."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.prepare.preparation import Preparation
from trainhouse.workers.data.prepare.row_steps import (
    CleanStep,
    ColumnMoments,
    Moments,
    cleaned,
    place_in_shuffle,
    prepared_row,
    split_of,
    why_invalid,
)
from trainhouse.workers.data.publishing.split_rule import SplitRule

NUMBERS = st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(-(10**6), 10**6), max_size=30)
SOURCE = {"source": "a@1.0.0", "output": "b"}


def preparation(**fields: Any) -> Preparation:
    return Preparation.parse(SOURCE | fields)


def moments(values: list[float]) -> Moments:
    found = Moments()
    for value in values:
        found.add(value)
    return found


@given(values=NUMBERS, cuts=st.lists(st.integers(0, 30), max_size=3), seed=st.randoms())
@settings(max_examples=examples(200), deadline=None)
def test_moments_do_not_depend_on_order_or_shares(values: list[float], cuts: list[int], seed: Any) -> None:
    whole, mixed = moments(values), list(values)
    seed.shuffle(mixed)
    borders = [0, *sorted(min(cut, len(mixed)) for cut in cuts), len(mixed)]
    merged = Moments()
    for start, end in itertools.pairwise(borders):
        merged = moments(mixed[start:end]).merged(merged)
    assert merged == whole
    if values:
        assert math.isclose(whole.mean, statistics.fmean(values), rel_tol=1e-9, abs_tol=1e-9)
        assert math.isclose(whole.deviation, statistics.pstdev(map(float, values)), rel_tol=1e-9, abs_tol=1e-9)


def test_moments_of_extremes() -> None:
    assert moments([1e308, 1e308, -1e308, -1e308]).deviation == 1e308
    assert moments([5e-324, 5e-324]).mean == 5e-324 and moments([0.1] * 7).deviation == 0.0
    assert Moments().mean == Moments().deviation == 0.0


@given(rows=st.lists(st.tuples(st.sampled_from(["train", "test"]), st.integers(-100, 100)), min_size=1, max_size=20))
@settings(max_examples=examples(100), deadline=None)
def test_rows_beside_train_change_no_statistic(rows: list[tuple[str, int]]) -> None:
    every, alone = ColumnMoments(("x",)), ColumnMoments(("x",))
    for split, value in rows:
        every.add({"x": value}, split, "row")
        if split == "train":
            alone.add({"x": value}, split, "row")
    assert every == alone
    if alone.of:
        normal = [alone.normalised({"x": value}, "row")["x"] for split, value in rows if split == "train"]
        assert abs(statistics.fmean(normal)) < 1e-9
        assert alone.of["x"].deviation == 0 or math.isclose(statistics.pstdev(normal), 1, rel_tol=1e-9)


@pytest.mark.parametrize("value", ["1", True, [1], float("nan"), float("inf"), 10**400])
def test_what_is_no_finite_number_is_not_normalised(value: Any) -> None:
    with pytest.raises(InvalidDataError, match="row: x is"):
        ColumnMoments(("x",)).add({"x": value}, "train", "row")
    ColumnMoments(("x",)).add({"x": value}, "test", "row")


def test_null_stays_null_and_a_column_that_train_never_has_is_refused() -> None:
    found = ColumnMoments(("x",))
    assert found.normalised({"x": None, "y": 1}, "row") == {"x": None, "y": 1}
    with pytest.raises(InvalidDataError, match="no row of the split train has a x"):
        found.normalised({"x": 1}, "row")


@pytest.mark.parametrize(
    ("row", "rule", "why"),
    [
        ({}, {}, "it has no x"),
        ({"x": None}, {}, "it has no x"),
        ({}, {"required": False}, ""),
        ({"x": True}, {"type": "int"}, "x is bool, not int"),
        ({"x": 1}, {"type": "float"}, ""),
        ({"x": 1.5}, {"type": "int"}, "x is float, not int"),
        ({"x": "a"}, {"least": 2}, "x is 1, less than 2"),
        ({"x": [1, 2]}, {"most": 1}, "x is 2, more than 1"),
        ({"x": 5}, {"least": 5, "most": 5}, ""),
        ({"x": "ab1"}, {"pattern": "[a-z]+"}, "x does not fit"),
        ({"x": "ab"}, {"pattern": "[a-z]+"}, ""),
        ({"x": 1}, {"one_of": [True]}, "x is none of"),
        ({"x": "u"}, {"one_of": ["u", "v"]}, ""),
    ],
)
def test_rules(row: dict[str, Any], rule: dict[str, Any], why: str) -> None:
    assert why_invalid(row, preparation(check={"x": rule}).check).startswith(why) or not why
    assert bool(why_invalid(row, preparation(check={"x": rule}).check)) == bool(why)


def test_an_invalid_row_ends_the_job_or_is_left_out() -> None:
    with pytest.raises(InvalidDataError, match=r"row 3: it has no x; mend it, or write `invalid: drop`"):
        prepared_row({}, preparation(check={"x": {}}), "row 3")
    assert prepared_row({}, preparation(check={"x": {}}, invalid="drop"), "row 3") is None


def test_texts_are_cleaned_in_the_order_of_the_steps() -> None:
    steps = preparation(clean={"t": ["nfc", "collapse", "strip", "lower", "drop_empty"]}).clean
    assert cleaned({"t": "  E\u0301t\u00e9 \n\t X ", "n": 1}, steps) == {"t": "\u00e9t\u00e9 x", "n": 1}
    assert cleaned({"t": " \n"}, steps) is None and cleaned({}, steps) is None
    assert cleaned({"t": 5}, steps) == {"t": 5}


@given(st.text(max_size=30))
@settings(max_examples=examples(100), deadline=None)
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    steps = preparation(clean={"t": ["nfc", "collapse", "strip"]}).clean
    once = cleaned({"t": text}, steps)
    assert once is not None and cleaned(once, steps) == once


@given(rows=st.lists(st.tuples(st.integers(0, 9), st.integers()), max_size=30))
@settings(max_examples=examples(100), deadline=None)
def test_equal_values_stay_in_one_split(rows: list[tuple[int, int]]) -> None:
    rule = SplitRule.parse("train=0.5,test=0.5", "user")
    found = {(user, split_of({"user": user, "n": n}, rule, "row")) for user, n in rows}
    assert len(found) == len({user for user, _ in found})
    with pytest.raises(InvalidDataError, match="has no value 'user'"):
        split_of({"n": 1}, rule, "row")


def test_a_shuffle_follows_from_seed_and_key() -> None:
    keys = [f"{n}" for n in range(50)]
    orders = {seed: sorted(keys, key=lambda key: place_in_shuffle(seed, key)) for seed in (1, 2)}
    assert orders[1] != orders[2] and sorted(orders[1]) == sorted(keys)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"source": "a"}, "source"),
        ({"output": "a/b"}, "output"),
        ({"check": {"x": {"type": "str"}}}, "name one of bool"),
        ({"check": {"x": {"pattern": "("}}}, "no regular expression"),
        ({"clean": {"x": ["upper"]}}, "clean"),
        ({"split": {"shares": "train=0.5"}}, "they have to make 1"),
        ({"tokenize": {}}, "tokenize"),
    ],
)
def test_a_file_that_says_something_else_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidDataError, match=why):
        preparation(**fields)


@given(st.text(st.sampled_from("ab \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u3000\u200b\ufeff")) | st.text())
def test_white_space_is_collapsed_as_the_expression_does_it(text: str) -> None:
    found = cleaned({"text": text}, {"text": (CleanStep.COLLAPSE,)})
    assert found == {"text": re.sub(r"\s+", " ", text)}
