"""Points of metrics and lines of output as one rank's spool gives them, for tests and benchmarks that fill topics.

Holds: each takes the same number of bytes of its spool.
"""

from collections.abc import Callable, Mapping
from typing import Any

from trainhouse.events.model.telemetry import LogLines, StepMetrics

BYTES_EACH = 40


def points(first: int, count: int, at_ms: Callable[[int], int], curves: Mapping[str, Callable[[int], float]], **of: Any) -> StepMetrics:
    """Steps [first, first + count). `at_ms`: when a step was logged, ms since 1970; `curves`: its value by metric; `of`: whose they are."""
    steps = range(first, first + count)
    return StepMetrics(
        steps=tuple(steps),
        times_ms=tuple(map(at_ms, steps)),
        metrics={name: tuple(map(value, steps)) for name, value in curves.items()},
        **_place(first, count),
        **_rank(of),
    )


def lines(first: int, count: int, line: Callable[[int], str], read_at_ms: int, **of: Any) -> LogLines:
    """Lines [first, first + count) of standard output, read at `read_at_ms`, ms since 1970; `of`: whose they are."""
    written = tuple(map(line, range(first, first + count)))
    return LogLines(stream="stdout", lines=written, read_at_ms=read_at_ms, **_place(first, count), **_rank(of))


def _place(first: int, count: int) -> dict[str, Any]:
    begins = tuple(number * BYTES_EACH for number in range(first, first + count))
    return {"start": first * BYTES_EACH, "end": (first + count) * BYTES_EACH, "offsets": begins}


def _rank(of: Mapping[str, Any]) -> dict[str, Any]:
    return {"job_id": "job", "attempt": 0, "epoch": 0, "rank": 0, "node_id": "node"} | dict(of)
