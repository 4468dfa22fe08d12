"""Rate limit of published refusals of records in another's name: by likeness, and in all.

Holds: pure; in any `WINDOW_S` one refusal of each claimed name and reason is published, and `MOST_TOLD` in all; no more are remembered.
Never: decides what becomes of a record; each one is refused, published or not.
"""

from typing import Final

WINDOW_S: Final = 60.0
MOST_TOLD: Final = 200


class ToldRefusals:
    """Refusals that one process published lately, oldest first."""

    def __init__(self) -> None:
        self._told_s: dict[str, float] = {}

    def next(self, alike: str, now_s: float) -> bool:
        """Whether one more is to be published; it counts as published then."""
        while self._told_s and now_s - next(iter(self._told_s.values())) >= WINDOW_S:
            del self._told_s[next(iter(self._told_s))]
        if alike in self._told_s or len(self._told_s) >= MOST_TOLD:
            return False
        self._told_s[alike] = now_s
        return True

    def forget(self) -> None:
        """Forgets all of them, so that they are published anew: it is not known whether the last ones got out."""
        self._told_s.clear()


def alike_of(claimed: str, reason: str) -> str:
    """Returns the key by which refusals are alike."""
    return f"{claimed}\n{reason}"


def key_of(claimed: str) -> str:
    """Returns the record key of a notice: that of the node or job, so that all about it is in one partition, in order."""
    return claimed.partition(" ")[2] or claimed
