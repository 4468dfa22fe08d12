"""Point-in-time join: each label gets the newest values that were known at its time, of its own entity.

Holds: no value is later than its label: times are compared as whole numbers of the finer of the two units, never rounded; of several values
of one time the last row counts; rows and columns of the labels stay, in their order. Pure.
Never: guesses a time zone, or passes over a time that is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import polars as pl

from trainhouse.workers.data.errors import InvalidDataError

_UNITS: Final = ("ms", "us", "ns")
_AT: Final = "__trainhouse_at"
_ROW: Final = "__trainhouse_row"
_MOST_LISTED: Final = 5


@dataclass(frozen=True)
class JoinRule:
    """Columns by which values belong to a label. `by`: of the entity, in both tables; `label_time`, `feature_time`: a time, or a number.

    `strictly`: a value of exactly the label's time counts no more. `max_age`: nor does one that is older than this; a duration for times,
    a number for numbers. `time_as`: column of the result with the time of the values that were taken.
    """

    by: tuple[str, ...]
    label_time: str
    feature_time: str
    strictly: bool = False
    max_age: timedelta | int | None = None
    time_as: str = "feature_time"


def joined(labels: pl.DataFrame, features: pl.DataFrame, rule: JoinRule) -> pl.DataFrame:
    """The labels with the columns of `features`, null where none was known. Raises InvalidDataError."""
    _check_columns(labels, "labels", (*rule.by, rule.label_time))
    _check_columns(features, "features", (*rule.by, rule.feature_time))
    values = [name for name in features.columns if name not in (*rule.by, rule.feature_time)]
    taken = sorted({rule.time_as, *values} & set(labels.columns)) or ([rule.time_as] if rule.time_as in values else [])
    if taken:
        raise InvalidDataError(f"column {taken[0]} would come twice; rename it in one of the tables, or name another for the values' time")
    for name in rule.by:
        if labels.schema[name] != features.schema[name]:
            raise InvalidDataError(
                f"column {name} is {labels.schema[name]} in the labels and {features.schema[name]} in the features; make them equal"
            )
    _check_times(labels, "labels", rule.label_time)
    _check_times(features, "features", rule.feature_time)
    unit = _unit(labels.schema[rule.label_time], features.schema[rule.feature_time], rule)
    left = labels.with_row_index(_ROW).with_columns(_ticks(labels, "labels", rule.label_time, unit))
    right = features.with_columns(_ticks(features, "features", rule.feature_time, unit)).rename({rule.feature_time: rule.time_as})
    known = dict[str, object]()
    for name in rule.by:
        # A label without an entity has no values, and a value without one is nobody's.
        right = right.filter(pl.col(name).is_not_null())
    if rule.by:
        known["by"] = list(rule.by)
    found = left.sort(_AT, maintain_order=True).join_asof(
        right.sort(_AT, maintain_order=True),
        on=_AT,
        strategy="backward",
        allow_exact_matches=not rule.strictly,
        tolerance=_tolerance(rule, unit),
        coalesce=True,
        check_sortedness=False,
        **known,  # type: ignore[arg-type]
    )
    return found.sort(_ROW).drop(_ROW, _AT)


def _check_columns(table: pl.DataFrame, which: str, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in table.columns]
    if missing:
        listed = ", ".join(table.columns[:20])
        raise InvalidDataError(f"the {which} have no column {missing[0]}; they have: {listed}")


def _check_times(table: pl.DataFrame, which: str, name: str) -> None:
    kind = table.schema[name]
    if not (kind.is_integer() or kind == pl.Date or isinstance(kind, pl.Datetime)):
        raise InvalidDataError(
            f"column {name} of the {which} is {kind}; a time is a date, a date with time, or a whole number: convert it first"
        )
    rows = table[name].is_null().arg_true().to_list()
    if rows:
        listed = ", ".join(map(str, rows[:_MOST_LISTED])) + (" …" if len(rows) > _MOST_LISTED else "")
        raise InvalidDataError(f"column {name} of the {which} has no time in {len(rows)} rows ({listed}); leave them out, or give them one")


def _unit(label: pl.DataType, feature: pl.DataType, rule: JoinRule) -> str | None:
    """The finer unit of two times; None for two numbers. Raises InvalidDataError where they cannot be compared."""
    if label.is_integer() != feature.is_integer():
        raise InvalidDataError(
            f"{rule.label_time} of the labels is {label} and {rule.feature_time} of the features is {feature}; make them of one kind"
        )
    if label.is_integer():
        if rule.max_age is not None and not isinstance(rule.max_age, int):
            raise InvalidDataError("the times are numbers, so that the greatest age is one too")
        return None
    zoned = [isinstance(kind, pl.Datetime) and kind.time_zone is not None for kind in (label, feature)]
    if zoned[0] != zoned[1]:
        raise InvalidDataError(
            f"{rule.label_time} of the labels is {label} and {rule.feature_time} of the features is {feature}: one names a zone, and one "
            "does not; give both the zone that they are meant in"
        )
    if rule.max_age is not None and not isinstance(rule.max_age, timedelta):
        raise InvalidDataError("the times are dates, so that the greatest age is a duration, as 7d")
    units = [kind.time_unit if isinstance(kind, pl.Datetime) else "ms" for kind in (label, feature)]
    return max(units, key=_UNITS.index)


def _ticks(table: pl.DataFrame, which: str, name: str, unit: str | None) -> pl.Series:
    """The times as whole numbers of `unit` since 1970; those of zones in UTC. Raises InvalidDataError where they are beyond 64 bits."""
    column = table[name]
    if unit is None:
        wide = column.cast(pl.Int64, strict=False)
    else:
        kind = column.dtype
        own = kind.time_unit if isinstance(kind, pl.Datetime) else "ms"
        ticks = column.cast(pl.Datetime("ms")).to_physical() if kind == pl.Date else column.to_physical()
        factor = 1000 ** (_UNITS.index(unit) - _UNITS.index(own))
        most = (2**63 - 1) // factor
        wide = pl.select(pl.when(ticks.is_between(-most, most)).then(ticks * factor)).to_series()
    if wide.null_count():
        row = wide.is_null().arg_true()[0]
        raise InvalidDataError(f"column {name} of the {which}: row {row} has a time beyond 64 bits; leave it out, or use a coarser unit")
    return wide.alias(_AT)


def _tolerance(rule: JoinRule, unit: str | None) -> int | None:
    if rule.max_age is None or isinstance(rule.max_age, int):
        return rule.max_age
    microseconds = rule.max_age // timedelta(microseconds=1)
    return microseconds * 1000 if unit == "ns" else microseconds if unit == "us" else microseconds // 1000
