"""Rule by which samples go to splits: by a time in a column. Pure.

Holds: a split has the times from its beginning until the next one's, so a later split has no sample that is older than one of an earlier
split; a row stays in its split when others are added.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import orjson

from trainhouse.events.model.dataset import MOST_SPLITS
from trainhouse.events.model.version_names import SPLIT_PATTERN
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.publishing.bounded_files import is_utf_8

_NUMBER: Final = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,9})?")
_EXAMPLE: Final = "train,validation=2026-05-01,test=2026-06-01"

Time = datetime | float | int


@dataclass(frozen=True)
class TimeSplitRule:
    """Splits in the order of time, each but the first with its beginning: all times in ISO 8601, or all numbers."""

    column: str
    names: tuple[str, ...]
    begins: tuple[Time, ...]

    @classmethod
    def parse(cls, text: str, column: str) -> "TimeSplitRule":
        """Reads `train,validation=2026-05-01,test=2026-06-01`. Raises InvalidDataError."""
        if not column or not is_utf_8(column):
            raise InvalidDataError(f"splits by the time in column {column!r}: name a column of the samples' json")
        parts = [part.strip().partition("=")[::2] for part in text.split(",")]
        names = tuple(name for name, _ in parts)
        if len(set(names)) != len(names) or not all(re.fullmatch(SPLIT_PATTERN, name) for name in names) or parts[0][1]:
            raise InvalidDataError(
                f"splits {text[:80]!r}: write each split once, all but the first with the time at which it begins: {_EXAMPLE}"
            )
        if not 2 <= len(names) <= MOST_SPLITS:
            raise InvalidDataError(f"splits {text[:80]!r}: {len(names)} of them; splits by time are 2 to {MOST_SPLITS}: {_EXAMPLE}")
        begins = []
        for name, written in parts[1:]:
            begin = _time(_number(written) if _NUMBER.fullmatch(written) else written)
            if begin is None:
                raise InvalidDataError(f"split {name}={written[:80]}: that is no time; write ISO 8601 or a number: {_EXAMPLE}")
            begins.append(begin)
        if len({isinstance(begin, datetime) for begin in begins}) > 1 or any(a >= b for a, b in pairwise(begins)):  # type: ignore[operator]
            raise InvalidDataError(
                f"splits {text[:80]!r}: their times are not all ISO 8601, or all numbers, each later than the one before"
            )
        return cls(column, names, tuple(begins))

    @classmethod
    def of_json(cls, text: str) -> "TimeSplitRule":
        """The rule of a manifest."""
        written = orjson.loads(text)
        begins = {name: datetime.fromisoformat(begin) if isinstance(begin, str) else begin for name, begin in written["begins"].items()}
        later = sorted((begin, name) for name, begin in begins.items())
        return cls(written["by_time"], (written["first"], *(name for _, name in later)), tuple(begin for begin, _ in later))

    def canonical_json(self) -> str:
        """The rule as a manifest has it."""
        begins = [begin.isoformat() if isinstance(begin, datetime) else begin for begin in self.begins]
        rule = {"by_time": self.column, "begins": dict(zip(self.names[1:], begins, strict=True)), "first": self.names[0]}
        return orjson.dumps(rule, option=orjson.OPT_SORT_KEYS).decode()

    def split_of(self, key: str, columns: dict[str, Any] | None) -> str:
        """The split of a sample. Raises InvalidDataError for one without such a time."""
        value = None if columns is None else columns.get(self.column)
        if isinstance(value, str) and not isinstance(self.begins[0], datetime) and _NUMBER.fullmatch(value):
            value = _number(value)  # as CSV has numbers
        time = _time(value)
        if time is None:
            raise InvalidDataError(
                f"sample {key!r}: its {self.column!r} is {str(value)[:60]!r}, no time to be split by; "
                "give each sample one, in ISO 8601 or as a number"
            )
        if isinstance(time, datetime) != isinstance(self.begins[0], datetime):
            kinds = ("ISO 8601", "a number") if isinstance(time, datetime) else ("a number", "ISO 8601")
            raise InvalidDataError(f"sample {key!r}: its {self.column!r} is {kinds[0]}, and splits begin at {kinds[1]}; write both alike")
        return self.names[bisect_right(self.begins, time)]


def _number(text: str) -> float | int:
    """A float where that is exact, or where JSON's 64 bits do not hold the integer; else the integer."""
    number = float(text)
    exact = number if "." in text else int(text)
    return exact if exact != number and -(2**63) <= exact < 2**64 else number


def _time(value: object) -> Time | None:
    """A number, or a time in ISO 8601, in UTC where it names no zone; None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
