"""Bounds of durations, sizes, counts and texts, and the reading of values that were stored before a bound was set.

Holds: a bound refuses what comes in from outside; what a journal, a snapshot or another part of the platform holds already is read with the
bound in its place, alike for every reader. What the platform itself computes or writes (`Due…`, `Computed…`, `CutText`) is brought within
its bound when the event is made, so a bound never makes a process of its own fail.
Never: changes a value that is within its bound, or one that is no number and no text.
"""

import re
from collections.abc import Callable, Mapping
from math import inf, isfinite, nan
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from trainhouse.events.model.audit_texts import whole_characters
from trainhouse.events.model.errors import InvalidEvent

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
M = TypeVar("M", bound=BaseModel)
# A hundred years.
MOST_DURATION_S: Final = 3_155_760_000
MOST_DURATION_MS: Final = 1000 * MOST_DURATION_S
MOST_BYTES: Final = 2**60
MOST_COUNT: Final = 2**53
MOST_SMALL: Final = 2**31 - 1
MOST_RATIO: Final = 1e15
MOST_COST: Final = 1e15
# The times that RFC 3339 can write: from year 1 to the last millisecond of year 9999.
EARLIEST_MS: Final = -62_135_596_800_000
LATEST_MS: Final = 253_402_300_799_999
# What one record may hold: ranks of a gang (so nodes and devices of it), attempts of a node, points or lines of a rank.
MOST_ITEMS: Final = 65_536
MOST_LISTED: Final = 2**20
MOST_DEVICES: Final = 1024
MOST_CHARS: Final = 65_536
MOST_INPUT_CHARS: Final = 256 * 1024  # topics.MAX_INPUT_BYTES: a request as a whole is no larger
MOST_LABELS: Final = 1024

_AS_JSON: Final = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


def _brought_within(least: float, most: float) -> Callable[[Any], Any]:
    def within(value: Any) -> Any:
        if type(value) is str:
            value = _AS_JSON.get(value, value)
        if type(value) is not int and type(value) is not float:
            return value
        if value != value:  # no number
            return 0
        return least if value < least else most if value > most else value

    return within


def _no_number_is(instead: float | None) -> Callable[[Any], Any]:
    """Ranks and agents report these: one figure that is none must not cost a whole report, or a sign of life."""

    def finite(value: Any) -> Any:
        if type(value) is str:
            value = _AS_JSON.get(value, value)
        return instead if type(value) is float and not isfinite(value) else value

    return finite


def cut_text(text: Any) -> Any:
    """A text of the platform's own as an event takes it: not too long, and of whole characters."""
    if not isinstance(text, str):
        return text
    if len(text) > MOST_CHARS:
        text = text[: MOST_CHARS - 1] + "…"
    return text if text.isascii() else whole_characters(text)


def short_text(text: str, most_chars: int = 1024) -> str:
    """A text of somebody else's as a short reason quotes it: cut, and without control characters, each of which takes six bytes in JSON."""
    line = _CONTROL.sub(" ", text[:most_chars])
    return line if len(text) <= most_chars else line[:-1] + "…"


SmallCount = Annotated[int, Field(ge=0, le=MOST_SMALL)]
"""Ranks, attempts, partitions, versions of programs: what 32 bits hold."""
Count = Annotated[int, Field(ge=0, le=MOST_COUNT)]
Change = Annotated[int, Field(ge=-MOST_COUNT, le=MOST_COUNT)]
Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Port = Annotated[int, Field(ge=0, le=65_535)]
ByteCount = Annotated[int, Field(ge=0, le=MOST_BYTES)]
TimestampMs = Annotated[int, Field(ge=EARLIEST_MS, le=LATEST_MS)]
DueMs = Annotated[TimestampMs, BeforeValidator(_brought_within(EARLIEST_MS, LATEST_MS))]
"""A time that is computed, such as a deadline."""
SpanMs = Annotated[int, Field(ge=0, le=MOST_DURATION_MS)]
# A number with a bound is finite. Clocks are set back, so a duration that was measured may be negative.
DurationS = Annotated[float, Field(ge=-MOST_DURATION_S, le=MOST_DURATION_S)]
DurationMs = Annotated[float, Field(ge=-MOST_DURATION_MS, le=MOST_DURATION_MS)]
ReportedS = Annotated[DurationS, BeforeValidator(_no_number_is(0.0))]
IntervalS = Annotated[DurationS, BeforeValidator(_no_number_is(float(MOST_DURATION_S)))]
MaybeS = Annotated[DurationS | None, BeforeValidator(_no_number_is(None))]
MaybeMs = Annotated[DurationMs | None, BeforeValidator(_no_number_is(None))]
ComputedS = Annotated[DurationS, BeforeValidator(_brought_within(-MOST_DURATION_S, MOST_DURATION_S))]
ComputedCost = Annotated[float, Field(ge=0, le=MOST_COST), BeforeValidator(_brought_within(0, MOST_COST))]
ComputedCount = Annotated[Count, BeforeValidator(_brought_within(0, MOST_COUNT))]
ComputedMs = Annotated[DurationMs, BeforeValidator(_brought_within(-MOST_DURATION_MS, MOST_DURATION_MS))]
Reading = Annotated[float, Field(ge=-MOST_RATIO, le=MOST_RATIO)]
ComputedRatio = Annotated[Reading, BeforeValidator(_brought_within(-MOST_RATIO, MOST_RATIO))]
CpuCount = Annotated[float, Field(ge=0, le=MOST_SMALL)]
Metric = float
"""What a program says of itself, or a query found: any number, also NaN and the infinite. Whoever computes with it looks first."""
ShortText = Annotated[str, Field(max_length=1024)]
LongText = Annotated[str, Field(max_length=MOST_CHARS)]
InputText = Annotated[str, Field(max_length=MOST_INPUT_CHARS)]
CutText = Annotated[LongText, BeforeValidator(cut_text)]


def read_stored(model: type[M], data: Any, extra: Literal["allow", "ignore", "forbid"] | None = None) -> M:
    """Validates what a journal or a snapshot of an earlier version holds: what is beyond its bound counts as the bound, of a list or a
    mapping the first entries, and no number as 0. Raises ValidationError."""
    return _read(model, data, extra, _OF_STORED)


def read_clamped(model: type[M], data: Any, extra: Literal["allow", "ignore", "forbid"] | None = None) -> M:
    """Validates what another part of the platform wrote: a number or text that is too large counts as its bound. Raises ValidationError."""
    return _read(model, data, extra, _CLAMP_REPAIRS)


def time_within(time_ms: int) -> int:
    """The same time. Raises InvalidEvent for one that could not be written again."""
    if not EARLIEST_MS <= time_ms <= LATEST_MS:
        raise InvalidEvent("time: it is beyond the years 1 to 9999 in UTC; send the time of the event, as RFC 3339 text")
    return time_ms


_Problem = Mapping[str, Any]
_Repair = Callable[[_Problem], Any]


def _first(problem: _Problem) -> Any:
    given, most = problem["input"], problem["ctx"]["max_length"]
    return dict(list(given.items())[:most]) if isinstance(given, Mapping) else list(given)[:most]


def _is_no_number(problem: _Problem) -> bool:
    given = problem["input"]
    return bool(given == "NaN" or given != given)


_CLAMP_REPAIRS: Final[dict[str, _Repair]] = {
    "less_than_equal": lambda problem: problem["ctx"]["le"],
    "string_too_long": lambda problem: problem["input"][: problem["ctx"]["max_length"]],
}
_OF_STORED: Final[dict[str, _Repair]] = _CLAMP_REPAIRS | {
    "less_than_equal": lambda problem: 0 if _is_no_number(problem) else problem["ctx"]["le"],
    "greater_than_equal": lambda problem: 0 if _is_no_number(problem) else problem["ctx"]["ge"],
    "too_long": _first,
}


def _of_key(problem: _Problem) -> bool:
    """Whether it is the key of an entry, and not the value under a key of that name."""
    path = problem["loc"]
    return len(path) > 1 and path[-1] == "[key]" and path[-2] == problem["input"]


_ROUNDS: Final = 4
"""A list that was shortened may have its entries looked at only then."""


def _read(model: type[M], data: Any, extra: Literal["allow", "ignore", "forbid"] | None, repairs: Mapping[str, _Repair]) -> M:
    bounded: _Bounded | None = None
    for _ in range(_ROUNDS):
        try:
            return model.model_validate(data if bounded is None else bounded.data, extra=extra)
        except ValidationError as error:
            problems = error.errors(include_url=False)
            if any(p["type"] not in repairs or (repairs is _CLAMP_REPAIRS and _is_no_number(p)) for p in problems):
                raise
            bounded = bounded or _Bounded(data)
            # Values before keys, and the keys of what is inside first: a place is known by the keys that lead to it.
            for problem in sorted(problems, key=lambda p: (_of_key(p), -len(p["loc"]) if _of_key(p) else 0)):
                bounded.put(problem["loc"], repairs[problem["type"]](problem), _of_key(problem))
    return model.model_validate(bounded.data if bounded else data, extra=extra)


class _Bounded:
    """Data of which some values were replaced: what leads to them is copied once, the rest is shared."""

    def __init__(self, data: Any) -> None:
        self._root = [data]
        self._own: set[int] = set()

    @property
    def data(self) -> Any:
        return self._root[0]

    def put(self, path: tuple[str | int, ...], value: Any, of_key: bool) -> None:
        """Another value, or key, at `path`, of which steps that are no key (the tag of a union) are passed over."""
        parent: Any = self._root
        key: Any = 0
        for step in path[:-1] if of_key else path:
            node = self._owned(parent, key)
            if (isinstance(node, dict) and step in node) or (isinstance(node, list) and isinstance(step, int) and step < len(node)):
                parent, key = node, step
        if of_key:
            parent[value] = parent.pop(key)
        else:
            parent[key] = value

    def _owned(self, parent: Any, key: Any) -> Any:
        node = parent[key]
        if id(node) not in self._own and isinstance(node, BaseModel | Mapping | list | tuple):
            if isinstance(node, BaseModel):
                node = {name: getattr(node, name) for name in node.model_fields_set}
            node = dict(node) if isinstance(node, Mapping) else list(node)
            parent[key] = node
            self._own.add(id(node))
        return node
