"""How far training is and where its time goes; reported through the spool at most twice a second, and always first and last.

Holds: a report costs microseconds; the clock comes in as an argument.
"""

from collections.abc import Callable, Mapping
from typing import Any

REPORT_EVERY_S = 0.5


class Progress:
    """Counts of one attempt. `write` takes the fields of a ProgressReported without ids."""

    def __init__(self, rank: int, write: Callable[[Mapping[str, Any]], None]) -> None:
        self._rank = rank
        self._write = write
        self._reported_at = -1e9
        self._rate_from = (0.0, 0)
        self._steps_per_s: float | None = None
        self.total_steps: int | None = None
        self.data_wait_s = 0.0
        self.save_stall_s = 0.0
        self.latest: dict[str, Any] = {}

    def begin(self, step: int, total_steps: int | None, now: float, now_ms: int) -> None:
        """Training begins at `step`."""
        self.total_steps = total_steps
        self._rate_from = (now, step)
        self.report(step, now, now_ms)

    def tick(self, step: int, now: float, now_ms: int) -> None:
        """A step ended: report if it is time."""
        if now - self._reported_at >= REPORT_EVERY_S or self._steps_per_s is None:
            self.report(step, now, now_ms)

    def report(self, step: int, now: float, now_ms: int, saving: bool = False) -> None:
        """Report now."""
        since, counted = self._rate_from
        if now > since and step > counted:
            self._steps_per_s = (step - counted) / (now - since)
            self._rate_from = (now, step)
        self._reported_at = now
        self._write(
            {
                "rank": self._rank,
                "step": step,
                "total_steps": self.total_steps,
                "loss": _number(self.latest.get("loss")),
                "learning_rate": _number(self.latest.get("learning_rate", self.latest.get("lr"))),
                "steps_per_s": self._steps_per_s,
                "samples_per_s": _number(self.latest.get("samples_per_s")),
                "data_wait_s": round(self.data_wait_s, 6),
                "save_stall_s": round(self.save_stall_s, 6),
                "saving": saving,
                "at_ms": now_ms,
            }
        )


def _number(value: Any) -> float | None:
    return None if value is None else float(value.item() if hasattr(value, "item") else value)
