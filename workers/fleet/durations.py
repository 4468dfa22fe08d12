"""Run times of emulated jobs: one length, a spread, or the lengths of a recorded trace.

Holds: a job's length follows from the seed and its id alone, so a restart of the job, or of the fleet, gives the same one.
"""

import csv
import gzip
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainhouse.workers.fleet.errors import InvalidPlanError
from trainhouse.workers.fleet.seeded_random import draw, pick

HELP = "30 | 10..600 | exp:120 | lognormal:60,1.5 | trace:FILE[,SCALE], in seconds"
MIN_RUN_S = 0.001
MAX_TRACE_ROWS = 2_000_000


@dataclass(frozen=True)
class Durations:
    """A rule that gives each job its run time."""

    text: str
    _of: Callable[[int, str], float]

    def run_s(self, seed: int, job_id: str) -> float:
        """Seconds that the job runs once all its ranks are there."""
        return max(MIN_RUN_S, self._of(seed, job_id))


def parse_durations(text: str) -> Durations:
    """Reads what `HELP` shows. Raises InvalidPlanError."""
    kind, _, rest = text.strip().partition(":")
    try:
        match kind:
            case "exp":
                return Durations(text, _exponential(_positive(rest)))
            case "lognormal":
                median, _, sigma = rest.partition(",")
                return Durations(text, _lognormal(_positive(median), float(sigma or 1.0)))
            case "trace":
                path, _, scale = rest.rpartition(",") if "," in rest else (rest, "", "1")
                return Durations(text, _from_trace(Path(path), _positive(scale)))
        low, dots, high = text.partition("..")
        return Durations(text, _uniform(_positive(low), _positive(high)) if dots else _fixed(_positive(low)))
    except ValueError as error:
        raise InvalidPlanError(f"durations {text!r}: {error}; write {HELP}") from error


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(f"{text!r} is no positive number")
    return value


def _fixed(run_s: float) -> Callable[[int, str], float]:
    return lambda seed, job_id: run_s


def _uniform(low_s: float, high_s: float) -> Callable[[int, str], float]:
    if high_s < low_s:
        raise ValueError(f"{low_s:g} is above {high_s:g}")
    return lambda seed, job_id: low_s + (high_s - low_s) * draw(seed, "run", job_id)


def _exponential(mean_s: float) -> Callable[[int, str], float]:
    return lambda seed, job_id: -mean_s * math.log(1 - draw(seed, "run", job_id))


def _lognormal(median_s: float, sigma: float) -> Callable[[int, str], float]:
    def of(seed: int, job_id: str) -> float:
        # Box and Muller 1958: a normal number of two uniform ones.
        radius = math.sqrt(-2 * math.log(1 - draw(seed, "run", job_id)))
        return median_s * math.exp(sigma * radius * math.cos(2 * math.pi * draw(seed, "angle", job_id)))

    return of


def _from_trace(path: Path, scale: float) -> Callable[[int, str], float]:
    lengths = _trace_lengths(path)
    return lambda seed, job_id: scale * lengths[pick(seed, len(lengths), "run", job_id)]


def _trace_lengths(path: Path) -> list[float]:
    """The column `duration_s` of a CSV file, gzip or plain; empty cells are left out."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except OSError as error:
        raise ValueError(f"the trace cannot be read: {error}") from error
    lengths: list[float] = []
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        if number > MAX_TRACE_ROWS:
            break
        cell = row.get("duration_s")
        if cell is None:
            raise ValueError(f"{path} has no column duration_s")
        if cell:
            try:
                lengths.append(_positive(cell) if float(cell) else MIN_RUN_S)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: duration_s {cell!r} is no length in seconds") from error
    if not lengths:
        raise ValueError(f"{path} has no row with a duration_s")
    return lengths
