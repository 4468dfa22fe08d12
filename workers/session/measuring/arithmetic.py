"""Arithmetic of a step's figures.

Holds: pure; None is unknown, and what rests on it is unknown too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

PARTS = ("data", "forward", "backward", "optimizer", "stall", "rest")


@dataclass(frozen=True)
class Stretch:
    """Some steps in a row, measured.

    `passed_s`: from the first one's begin to the last one's end, without announced phases. `data_s` and `stall_s`: sums over all steps.
    `sampled_ms`: for each measured part the times of the steps in which it was measured. `flops`: of one step; `amounts`: what a step of
    the whole gang works through, by unit (tokens, samples).
    """

    steps: int
    passed_s: float
    data_s: float = 0.0
    stall_s: float = 0.0
    sampled_ms: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    flops: float | None = None
    amounts: Mapping[str, float] = field(default_factory=dict)


def weighted_mean(values: Iterable[tuple[float, int]]) -> float | None:
    """Returns the mean of values that each occurred so often; None of nothing."""
    found = list(values)
    total = sum(times for _, times in found)
    return sum(value * times for value, times in found) / total if total else None


def split_ms(stretch: Stretch) -> dict[str, float]:
    """Returns milliseconds of a step by part, and `total`. A part that was not measured is left out, and its time is in `rest`."""
    if stretch.steps <= 0 or stretch.passed_s <= 0:
        return {}
    total = 1000 * stretch.passed_s / stretch.steps
    parts = {"data": 1000 * stretch.data_s / stretch.steps, "stall": 1000 * stretch.stall_s / stretch.steps}
    parts |= {name: fmean(times) for name, times in stretch.sampled_ms.items() if times}
    parts["rest"] = max(0.0, total - sum(parts.values()))
    return {name: parts[name] for name in PARTS if name in parts} | {"total": total}


def rates_per_s(stretch: Stretch) -> dict[str, float]:
    """Returns tokens, samples … a second of the whole gang."""
    if stretch.steps <= 0 or stretch.passed_s <= 0:
        return {}
    return {f"{unit}_per_s": amount * stretch.steps / stretch.passed_s for unit, amount in stretch.amounts.items()}


def bubble_share(ranks: int, microbatches: int | None, stages_a_rank: int) -> float | None:
    """Returns the share of a pipeline's time in which a rank idles by its schedule, if all stages take alike; None without a pipeline.

    GPipe and 1F1B idle for as long as `ranks` - 1 microbatches take; an interleaved schedule for that of one of its stages.
    """
    if ranks < 2 or not microbatches:
        return None
    return (ranks - 1) / (microbatches * stages_a_rank + ranks - 1)


def mfu(flops: float | None, steps: int, passed_s: float, peak: float | None) -> float | None:
    """Returns model FLOPs utilization: FLOPs a second over the device's peak, as a share. None without either or a step, or above 1."""
    if not flops or not peak or steps <= 0 or passed_s <= 0:
        return None
    share = flops * steps / passed_s / peak
    return share if share <= 1 else None  # more than the peak cannot be: the count or the peak is not this work's
