"""How often people are told of records in another's name: of alike ones once in a while, of all of them a bounded number.

Holds: pure; in any `WINDOW_S` one of each claimed name and reason is told, and `MOST_TOLD` in all; no more than these are remembered.
Never: decides what becomes of a record; each one is refused, told or not.
"""

from typing import Final

WINDOW_S: Final = 60.0
MOST_TOLD: Final = 200


class ToldRefusals:
    """What one process told lately, oldest first."""

    def __init__(self) -> None:
        self._told_s: dict[str, float] = {}

    def next(self, alike: str, now_s: float) -> bool:
        """Whether one more is to be told; it counts as told then."""
        while self._told_s and now_s - next(iter(self._told_s.values())) >= WINDOW_S:
            del self._told_s[next(iter(self._told_s))]
        if alike in self._told_s or len(self._told_s) >= MOST_TOLD:
            return False
        self._told_s[alike] = now_s
        return True

    def forget(self) -> None:
        """Tells all of them anew: whether the last ones got out is not known."""
        self._told_s.clear()


def alike_of(claimed: str, reason: str) -> str:
    """What makes two refusals alike."""
    return f"{claimed}\n{reason}"


def key_of(claimed: str) -> str:
    """Where people are told: with all else of that node or job, in one partition, in order."""
    return claimed.partition(" ")[2] or claimed
