"""Error budgets and how fast they burn. Pure.

A burn rate of 1 uses a window's whole budget in just that window. Source of spans and limits: Google, The Site Reliability Workbook,
chapter 5, "Multiwindow, Multi-Burn-Rate Alerts" (2 % of a month's budget in an hour, 5 % in six hours, 10 % in three days).

Holds: what has no events is not known: None, never 0 or 1.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """A long span that says that it matters, and a short one that says that it still goes on. In seconds. `severity`: of its alert."""

    short_s: int
    long_s: int
    limit: float
    severity: str

    @property
    def name(self) -> str:
        """As people write it: 5m-1h."""
        return f"{in_words(self.short_s)}-{in_words(self.long_s)}"


PAIRS = (
    Pair(300, 3_600, 14.4, "CRITICAL"),
    Pair(1_800, 21_600, 6.0, "CRITICAL"),
    Pair(7_200, 86_400, 3.0, "WARNING"),
    Pair(21_600, 259_200, 1.0, "WARNING"),
)


def in_words(span_s: int) -> str:
    """A span as a number of minutes, hours or days."""
    for unit, size_s in (("d", 86_400), ("h", 3_600)):
        if span_s % size_s == 0:
            return f"{span_s // size_s}{unit}"
    return f"{span_s // 60}m"


@dataclass(frozen=True)
class Counted:
    """Good events out of all."""

    good: int
    total: int

    @property
    def share(self) -> float | None:
        """The good part; None: nothing was counted."""
        return self.good / self.total if self.total else None

    def burn_rate(self, objective: float) -> float | None:
        """Returns the burn of the budget as a multiple of the allowed rate."""
        return None if not self.total else (1 - self.good / self.total) / (1 - objective)

    def budget_left(self, objective: float) -> float | None:
        """Returns the rest of the budget of this span: 1 is all, 0 none, below 0 overspent."""
        rate = self.burn_rate(objective)
        return None if rate is None else 1 - rate
