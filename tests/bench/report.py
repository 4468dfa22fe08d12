"""One JSON line for each figure, and the percentiles that they speak of."""

import json
import sys
from collections.abc import Sequence
from typing import Any


def line(figure: str, **fields: Any) -> None:
    """Prints one figure; floats are rounded to four significant digits."""
    print(json.dumps({"figure": figure} | {k: _short(v) for k, v in fields.items()}), flush=True)


def note(text: str) -> None:
    """Says on standard error what is going on."""
    print(text, file=sys.stderr, flush=True)


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of a non-empty sample."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(percent / 100 * len(ordered) + 0.5) - 1))]


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    return value
