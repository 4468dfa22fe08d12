"""The point-in-time join against a reference that looks at each pair of rows: no value is later than its label."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.feature_join import JoinRule, joined

RULE = JoinRule(("user",), "at", "known")
# Instants that rounding would mix up: next to each other in the finest unit, at the borders of coarser ones, before 1970.
TICKS = st.sampled_from([-1_000_001, -1, 0, 1, 999, 1_000, 1_001, 999_999, 1_000_000, 1_000_001, 10**15]) | st.integers(-3, 3)
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), TICKS), max_size=12)


def reference(label: tuple[str | None, int], features: list[tuple[str | None, int]], strictly: bool, age: int | None) -> int | None:
    """The row of the newest value that was known, the last of several of one time."""
    known = [
        (at, row)
        for row, (user, at) in enumerate(features)
        if user is not None
        and user == label[0]
        and (at < label[1] if strictly else at <= label[1])
        and (age is None or label[1] - at <= age)
    ]
    return max(known)[1] if known else None


@given(labels=ROWS, features=ROWS, strictly=st.booleans(), age=st.none() | st.integers(0, 5))
@settings(max_examples=examples(300), deadline=None)
def test_numbers_are_joined_as_the_reference_does(
    labels: list[tuple[str | None, int]], features: list[tuple[str | None, int]], strictly: bool, age: int | None
) -> None:
    left = pl.DataFrame({"user": [u for u, _ in labels], "at": [t for _, t in labels]}, schema={"user": pl.String, "at": pl.Int64})
    kinds = {"user": pl.String, "known": pl.Int64, "row": pl.Int64}
    right = pl.DataFrame({"user": [u for u, _ in features], "known": [t for _, t in features], "row": range(len(features))}, schema=kinds)
    found = joined(left, right, JoinRule(("user",), "at", "known", strictly, age))
    assert found.select("user", "at").rows() == labels
    assert found["row"].to_list() == [reference(label, features, strictly, age) for label in labels]
    assert all(known is None or known <= at for known, at in found.select("feature_time", "at").rows())


@given(
    labels=st.lists(TICKS, max_size=8), features=st.lists(TICKS, max_size=8), units=st.tuples(*[st.sampled_from(["ms", "us", "ns"])] * 2)
)
@settings(max_examples=examples(200), deadline=None)
def test_times_of_two_units_are_never_rounded_towards_each_other(labels: list[int], features: list[int], units: tuple[str, str]) -> None:
    scale = {"ms": 10**6, "us": 10**3, "ns": 1}
    left = pl.DataFrame({"user": ["a"] * len(labels), "at": pl.Series(labels, dtype=pl.Int64).cast(pl.Datetime(units[0]))})  # type: ignore[arg-type]
    right = pl.DataFrame(
        {
            "user": pl.Series(["a"] * len(features), dtype=pl.String),
            "known": pl.Series(features, dtype=pl.Int64).cast(pl.Datetime(units[1])),  # type: ignore[arg-type]
            "row": pl.Series(range(len(features)), dtype=pl.Int64),
        }
    )
    left = left.with_columns(pl.col("user").cast(pl.String))
    exact = [("a", at * scale[units[1]]) for at in features]
    if any(abs(at) * scale[units[0]] >= 2**63 for at in labels) or any(abs(at) * scale[units[1]] >= 2**63 for at in features):
        return  # beyond 64 bits of the finer unit; below
    found = joined(left, right, RULE)
    assert found["row"].to_list() == [reference(("a", at * scale[units[0]]), exact, False, None) for at in labels]


def test_a_time_beyond_the_finer_unit_is_refused() -> None:
    left = pl.DataFrame({"user": ["a"], "at": pl.Series([10**15], dtype=pl.Int64).cast(pl.Datetime("ms"))})
    right = pl.DataFrame({"user": ["a"], "known": pl.Series([1], dtype=pl.Int64).cast(pl.Datetime("ns")), "x": [1]})
    with pytest.raises(InvalidDataError, match="row 0 has a time beyond 64 bits"):
        joined(left, right, RULE)


def test_zones_are_instants() -> None:
    east, west = timezone(timedelta(hours=9)), timezone(timedelta(hours=-8))
    at = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)  # an hour that a zone in Europe does not have
    left = pl.DataFrame({"user": ["a"], "at": [at.astimezone(east)]}, schema_overrides={"at": pl.Datetime("us", "Asia/Tokyo")})
    times = [at.astimezone(west) - timedelta(microseconds=1), at.astimezone(west) + timedelta(microseconds=1)]
    right = pl.DataFrame(
        {"user": ["a", "a"], "known": times, "x": [1, 2]}, schema_overrides={"known": pl.Datetime("us", "America/Los_Angeles")}
    )
    assert joined(left, right, RULE)["x"].to_list() == [1]


def test_a_date_begins_at_midnight() -> None:
    left = pl.DataFrame({"user": ["a", "a"], "at": [date(2026, 1, 1), date(2026, 1, 2)]})
    right = pl.DataFrame({"user": ["a"], "known": [datetime(2026, 1, 1, 0, 0, 1)], "x": [7]})
    assert joined(left, right, RULE)["x"].to_list() == [None, 7]


def test_a_greatest_age_of_times_is_a_duration() -> None:
    left = pl.DataFrame({"user": ["a", "a"], "at": [datetime(2026, 1, 8), datetime(2026, 1, 8, 0, 0, 1)]})
    right = pl.DataFrame({"user": ["a"], "known": [date(2026, 1, 1)], "x": [7]})
    assert joined(left, right, JoinRule(("user",), "at", "known", max_age=timedelta(days=7)))["x"].to_list() == [7, None]


def test_without_an_entity_all_values_are_everybodys() -> None:
    left, right = pl.DataFrame({"at": [3, 1]}), pl.DataFrame({"known": [2, 3, 4], "x": [2, 3, 4]})
    assert joined(left, right, JoinRule((), "at", "known"))["x"].to_list() == [3, None]


@pytest.mark.parametrize(
    ("labels", "features", "why"),
    [
        ({"user": ["a"]}, {"user": ["a"], "known": [1]}, "the labels have no column at"),
        ({"user": ["a"], "at": [1]}, {"user": ["a"]}, "the features have no column known"),
        ({"user": ["a"], "at": [None]}, {"user": ["a"], "known": [1]}, "is Null"),
        ({"user": ["a", "a"], "at": [1, None]}, {"user": ["a"], "known": [1]}, "has no time in 1 rows \\(1\\)"),
        ({"user": ["a"], "at": [1]}, {"user": ["a"], "known": [1.5]}, "is Float64"),
        ({"user": ["a"], "at": [1]}, {"user": [1], "known": [1]}, "column user is String in the labels and Int64"),
        ({"user": ["a"], "at": [1]}, {"user": ["a"], "known": [date(2026, 1, 1)]}, "make them of one kind"),
        ({"user": ["a"], "at": [datetime(2026, 1, 1)]}, {"user": ["a"], "known": [datetime(2026, 1, 1, tzinfo=UTC)]}, "names a zone"),
        ({"user": ["a"], "at": [1], "x": [1]}, {"user": ["a"], "known": [1], "x": [1]}, "column x would come twice"),
        ({"user": ["a"], "at": [2**63]}, {"user": ["a"], "known": [1]}, "beyond 64 bits"),
    ],
)
def test_what_cannot_be_compared_is_refused(labels: dict[str, Any], features: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidDataError, match=why):
        joined(pl.DataFrame(labels), pl.DataFrame(features), RULE)
