"""Rate limit of published refusals of records in another's name: by likeness, and in all.

Holds: pure; in any `WINDOW_S` one refusal of each claimed name and reason, and `MOST_PUBLISHED` in all, are published and remembered.
Never: decides what becomes of a record; each one is refused, published or not.
"""

from typing import Final

WINDOW_S: Final = 60.0
MOST_PUBLISHED: Final = 200


class PublishedRefusals:
    """Refusals that one process published lately, oldest first."""

    def __init__(self) -> None:
        self._published_s: dict[str, float] = {}

    def next(self, alike: str, now_s: float) -> bool:
        """Whether one more is to be published; it counts as published then."""
        while self._published_s and now_s - next(iter(self._published_s.values())) >= WINDOW_S:
            del self._published_s[next(iter(self._published_s))]
        if alike in self._published_s or len(self._published_s) >= MOST_PUBLISHED:
            return False
        self._published_s[alike] = now_s
        return True

    def forget(self) -> None:
        """Forgets all of them, so that they are published anew: it is not known whether the last ones got out."""
        self._published_s.clear()


def alike_of(claimed: str, reason: str) -> str:
    """Returns the key by which refusals are alike."""
    return f"{claimed}\n{reason}"


def key_of(claimed: str) -> str:
    """Returns the record key of a notice: that of the node or job, so that all about it is in one partition, in order."""
    return claimed.partition(" ")[2] or claimed
