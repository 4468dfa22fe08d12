"""A clock of a rank's work that only the test moves."""

from __future__ import annotations

from trainhouse.workers.session.steps.worktime import HostClock


class Hands:
    """A clock that only the test moves."""

    now_ms = 0.0


class HandClock(HostClock):
    def mark(self) -> float:
        return Hands.now_ms

    def between_ms(self, one: float, other: float) -> float | None:
        return other - one
