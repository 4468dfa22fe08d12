"""Points of metrics as one rank's spool gives them, for benchmarks that fill topics."""

from collections.abc import Callable, Mapping

from trainhouse.events import StepMetrics

BYTES_A_POINT = 40


def points(job_id: str, first: int, count: int, at_ms: Callable[[int], int], curves: Mapping[str, Callable[[int], float]]) -> StepMetrics:
    """Steps [first, first + count) of rank 0 of a job. `at_ms`: when a step was logged, ms since 1970; `curves`: its value by metric."""
    steps = range(first, first + count)
    return StepMetrics(
        job_id=job_id,
        attempt=0,
        epoch=1,
        rank=0,
        node_id="bench",
        start=first * BYTES_A_POINT,
        end=(first + count) * BYTES_A_POINT,
        steps=tuple(steps),
        times_ms=tuple(map(at_ms, steps)),
        offsets=tuple(step * BYTES_A_POINT for step in steps),
        metrics={name: tuple(map(value, steps)) for name, value in curves.items()},
    )
