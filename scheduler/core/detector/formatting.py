"""Numbers and ranks as a person reads them. Holds: short, however many ranks there are."""

from collections.abc import Iterable
from typing import Final

from trainhouse.events.wire.collectives import runs

MAX_RANGES: Final = 8


def seconds(value_s: float) -> str:
    """Such as `0.12 s`, `4.2 s` or `310 s`."""
    return f"{value_s:.0f} s" if value_s >= 100 else f"{value_s:.1f} s" if value_s >= 1 else f"{value_s:.2g} s"


def rank_words(ranks: Iterable[int]) -> str:
    """Such as `rank 3` or `ranks 0-2, 4`."""
    parts = runs(ranks)
    one = len(parts) == 1 and "-" not in parts[0]
    if len(parts) > MAX_RANGES:
        parts = [*parts[:MAX_RANGES], "…"]
    return ("rank " if one else "ranks ") + ", ".join(parts)
