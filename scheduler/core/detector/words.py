"""Numbers and ranks as a person reads them. Holds: short, however many ranks there are."""

from collections.abc import Iterable, Sequence
from typing import Final

MAX_RANGES: Final = 8


def seconds(value_s: float) -> str:
    """Such as `0.12 s`, `4.2 s` or `310 s`."""
    return f"{value_s:.0f} s" if value_s >= 100 else f"{value_s:.1f} s" if value_s >= 1 else f"{value_s:.2g} s"


def rank_words(ranks: Iterable[int]) -> str:
    """Such as `rank 3` or `ranks 0-2, 4`."""
    runs = _runs(sorted(ranks))
    parts = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs]
    if len(parts) > MAX_RANGES:
        parts = [*parts[:MAX_RANGES], "…"]
    return ("rank " if len(runs) == 1 and runs[0][0] == runs[0][1] else "ranks ") + ", ".join(parts)


def _runs(ordered: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for n in ordered:
        if runs and n == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], n)
        else:
            runs.append((n, n))
    return runs
