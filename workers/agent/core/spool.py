"""Cuts a piece of a rank's spool into metrics, progress, signs of life and events. Pure.

Holds: only whole lines are taken, so any piecewise reading gives the same points at the same offsets; a batch stays within bounds of
points and cells, so that a record fits its topic. A line that cannot be read is counted and passed over, never fatal.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

MAX_LINE_BYTES = 256 * 1024
MAX_POINTS = 5_000
MAX_CELLS = 40_000
# What a session tells has four levels at most; what is deeper cannot be walked through within an interpreter's stack.
MAX_DEPTH = 32


@dataclass
class MetricsBatch:
    """Points by column, cut from `[start, end)`."""

    start: int
    end: int = 0
    steps: list[int] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    metrics: dict[str, list[float | None]] = field(default_factory=dict)

    def add(self, offset: int, step: int, time_ms: int, values: dict[str, Any]) -> None:
        count = len(self.steps)
        for name, value in values.items():
            column = self.metrics.get(name)
            if column is None:
                column = self.metrics[name] = [None] * count
            column.append(value if type(value) is float else _number(value))
        self.steps.append(step)
        self.times_ms.append(time_ms)
        self.offsets.append(offset)
        if len(values) != len(self.metrics):
            for column in self.metrics.values():
                if len(column) == count:
                    column.append(None)

    def full(self, more: int) -> bool:
        points = len(self.steps) + 1
        return points > MAX_POINTS or points * (len(self.metrics) + more) > MAX_CELLS


@dataclass(frozen=True)
class SpoolEvent:
    """An event of a rank: its model's name, its fields without ids, and its own id if it has one."""

    offset: int
    name: str
    fields: dict[str, Any]
    event_id: str | None


@dataclass
class SpoolCut:
    """Content of `[start, end)`. `progress` is the last report in it, `pulse` the last sign of life: a report is one too."""

    start: int
    end: int
    batches: list[MetricsBatch] = field(default_factory=list)
    events: list[SpoolEvent] = field(default_factory=list)
    progress: dict[str, Any] | None = None
    progress_offset: int = 0
    pulse: dict[str, Any] | None = None
    unreadable: int = 0


def cut_spool(data: bytes, start: int, final: bool = False) -> SpoolCut:
    """Cuts the whole lines of `data`, which begins at byte `start` of the file.

    With `final` (nobody writes any more) a last line without its end is taken too. An endless line is passed over piece by piece.
    """
    whole = data.rfind(b"\n") + 1
    if final or (whole == 0 and len(data) >= MAX_LINE_BYTES):
        whole = len(data)
    cut = SpoolCut(start, start + whole)
    if whole == 0:
        return cut
    lines = data[:whole].split(b"\n")
    offset = start
    for line, value in zip(lines, _parse(lines), strict=True):
        if line:
            try:
                _take(cut, offset, value)
            except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError):
                cut.unreadable += 1
        offset += len(line) + 1
    _close(cut)
    return cut


def _parse(lines: Sequence[bytes]) -> list[Any]:
    """All lines in one go; line by line only when one of them is broken. An empty line gives None."""
    try:
        parsed = orjson.loads(b"[" + b",".join(line or b"null" for line in lines) + b"]")
        if len(parsed) == len(lines):
            return list(parsed)
    except orjson.JSONDecodeError:
        pass
    return [_parse_one(line) for line in lines]


def _parse_one(line: bytes) -> Any:
    try:
        return orjson.loads(line) if line else None
    except orjson.JSONDecodeError:
        return None


def _take(cut: SpoolCut, offset: int, value: Any) -> None:
    kind = value[0]
    if kind == "m":
        _, step, time_ms, values = value
        _check_point(step, time_ms, values)
        if not cut.batches or cut.batches[-1].full(len(values.keys() - cut.batches[-1].metrics.keys())):
            cut.batches.append(MetricsBatch(offset))
        cut.batches[-1].add(offset, step, time_ms, values)
    elif kind == "p":
        cut.progress, cut.progress_offset = dict(value[1]), offset
        cut.pulse = cut.progress
    elif kind == "a":
        cut.pulse = dict(value[1])
    elif kind == "e":
        _check_event(value)
        cut.events.append(SpoolEvent(offset, value[1], dict(value[2]), value[3] if len(value) > 3 else None))
    else:
        raise ValueError(kind)


def _check_point(step: Any, time_ms: Any, values: Any) -> None:
    if type(step) is not int or type(time_ms) is not int or type(values) is not dict:
        raise TypeError('a point is ["m", step, time_ms, {name: value}]')
    for value in values.values():
        if type(value) is not float:
            _number(value)


def _check_event(value: Any) -> None:
    if type(value[1]) is not str or type(value[2]) is not dict:
        raise TypeError('an event is ["e", name, {field: value}, id]')
    level: list[Any] = [value[2]]
    for _ in range(MAX_DEPTH):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [held for each in inner for held in each if isinstance(held, dict | list)]
        if not level:
            return
    raise ValueError(f"fields of an event have {MAX_DEPTH} levels at most")


def _number(value: Any) -> float | None:
    """A metric's value: JSON has no NaN, so the spool writes it as text."""
    if value is None:
        return None
    if isinstance(value, str):
        if value not in ("NaN", "Infinity", "-Infinity"):
            raise ValueError(value)
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}[value]
    return float(value)


def _close(cut: SpoolCut) -> None:
    """Batches tile the piece: each ends where the next begins."""
    for batch, after in zip(cut.batches, cut.batches[1:], strict=False):
        batch.end = after.start
    if cut.batches:
        cut.batches[0].start = cut.start
        cut.batches[-1].end = cut.end
