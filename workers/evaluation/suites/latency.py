"""Latency and memory of one version: cold load, calls at batch size 1 and N, and the most memory that was held.

Holds: each call is waited for, also on a device; the first calls at a size are not counted. Percentiles have intervals by order statistics,
without an upper end where the calls are too few for one.
Never: repeatable numbers; the result says so.
"""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from scipy.stats import quantile_test

from trainhouse.workers.evaluation.result import Metric

WARM_CALLS: Final = 5
_MS: Final = 1000.0
_KIB: Final = 1024


@dataclass(frozen=True)
class Calls:
    """`model`: takes a batch; `batch`: a batch of so many samples on the device; `sizes`: batch sizes that are measured."""

    model: Callable[[Any], Any]
    batch: Callable[[int], Any]
    device: torch.device
    sizes: tuple[int, ...]
    repeats: int
    confidence: float


def measured(calls: Calls, load_s: float) -> dict[str, Metric]:
    """Metrics by name, `load_s` among them: seconds from the beginning of the load to the first output. Blocks for all calls."""
    found = {"cold_load_ms": _of_time(_MS * load_s)}
    for size in calls.sizes:
        batch = calls.batch(size)
        for _ in range(WARM_CALLS):
            calls.model(batch)
        _wait(calls.device)
        times = np.empty(calls.repeats)
        for n in range(calls.repeats):
            began = time.perf_counter()
            calls.model(batch)
            _wait(calls.device)
            times[n] = _MS * (time.perf_counter() - began)
        for percent in (50, 99):
            found[f"batch_{size}_p{percent}_ms"] = percentile_of(times, percent / 100, calls.confidence)
    found["peak_memory_bytes"] = Metric(value=float(_peak_bytes(calls.device)), samples=1, higher_is_better=False, unit="bytes")
    return found


def percentile_of(times: np.ndarray, share: float, confidence: float) -> Metric:
    """A quantile of times in milliseconds, with its interval."""
    ends = quantile_test(times, q=0, p=share).confidence_interval(confidence)
    value = float(np.quantile(times, share))
    low = float(min(ends.low, value)) if np.isfinite(ends.low) else None
    high = float(max(ends.high, value)) if np.isfinite(ends.high) else None
    return Metric(value=value, low=low, high=high, samples=len(times), higher_is_better=False, unit="ms")


def _of_time(value_ms: float) -> Metric:
    return Metric(value=value_ms, samples=1, higher_is_better=False, unit="ms")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _peak_bytes(device: torch.device) -> int:
    """The most that was held: on the device, or of this process in memory."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return _KIB * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
