"""Points of metrics as records: cut from a stream that may be read again, at the same places by whoever cuts it.

Holds: pure. `offsets` count the stream's points, so a record that comes twice, or is cut differently from a stream that has grown, is
trimmed by readers. A record is bounded in rows and cells. Send the records of a stream one after the other, each when the one before is
acked: only then does a mark say that everything below it is there.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId, NodeId
from trainhouse.events.model.telemetry import StepMetrics

CLIENT: Final = NodeId("client")
MAX_ROWS: Final = 5_000
MAX_CELLS: Final = 40_000


class Point(NamedTuple):
    """One value of one metric; the step counts from 0, the time is milliseconds since 1970."""

    key: str
    value: float
    step: int
    time_ms: int


def records_of(job_id: str, points: Sequence[Point], stream: str, *, first: int = 0, epoch: int = 0, attempt: int = 0) -> list[StepMetrics]:
    """The records of a piece of a stream, in the order in which they must be sent. `first`: how many points of it came before."""
    records = []
    start = 0
    while start < len(points):
        columns, end = _cut(points, start)
        records.append(
            StepMetrics(
                job_id=JobId.parse(job_id),
                attempt=AttemptNumber(attempt),
                epoch=Epoch(epoch),
                rank=0,
                node_id=CLIENT,
                stream=stream,
                start=first + start,
                end=first + end,
                steps=tuple(columns.steps),
                times_ms=tuple(columns.times_ms),
                offsets=tuple(first + o for o in columns.offsets),
                metrics={name: tuple(values) for name, values in columns.metrics.items()},
            )
        )
        start = end
    return records


class _Columns:
    """Rows so far. A row is of one step and time, and has each key once."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.times_ms: list[int] = []
        self.offsets: list[int] = []
        self.metrics: dict[str, list[float | None]] = {}

    def continues(self, point: Point) -> bool:
        """Whether a point belongs to the newest row."""
        if not self.steps or (self.steps[-1], self.times_ms[-1]) != (point.step, point.time_ms):
            return False
        return point.key not in self.metrics or self.metrics[point.key][-1] is None

    def full(self, point: Point) -> bool:
        """Whether a point would be one too many."""
        rows = len(self.steps) + (not self.continues(point))
        return rows > MAX_ROWS or rows * (len(self.metrics) + (point.key not in self.metrics)) > MAX_CELLS

    def add(self, index: int, point: Point) -> None:
        if not self.continues(point):
            for column in self.metrics.values():
                column.append(None)
            self.steps.append(point.step)
            self.times_ms.append(point.time_ms)
            self.offsets.append(index)
        self.metrics.setdefault(point.key, [None] * len(self.steps))[-1] = point.value


def _cut(points: Sequence[Point], start: int) -> tuple[_Columns, int]:
    columns = _Columns()
    for index in range(start, len(points)):
        if columns.steps and columns.full(points[index]):
            return columns, index
        columns.add(index, points[index])
    return columns, len(points)
