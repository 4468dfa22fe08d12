"""Progress of training, activity and time split of this rank: written to the spool as progress, before training as mere life.

Holds: a report costs microseconds and reads no tensor; the clock comes in as an argument. The training thread changes what is known, and
the pulse's thread only reads it.
"""

import math
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from trainhouse.events import RankActivity
from trainhouse.workers.session.steps.activity import Activity
from trainhouse.workers.session.steps.steptimes import StepTimes

Write = Callable[[Mapping[str, Any]], None]
TAIL_SHARE = 0.99
MOST_MEASURED = 1000


class Progress:
    """Counts of one attempt. `write` takes the fields of a ProgressReported without ids, and `write_life` those before training."""

    def __init__(self, rank: int, write: Write, write_life: Write | None = None) -> None:
        self._rank = rank
        self._write = write
        self._write_life = write_life or (lambda fields: None)
        self._began = False
        self._at = (0, 0, 0.0)
        self._rate_from = (0.0, 0)
        self._step_from = (0.0, 0.0)
        self._steps_per_s: float | None = None
        self.activity = Activity()
        self.times = StepTimes()
        self.total_steps: int | None = None
        self.fresh: dict[str, Any] = {}
        self.latest: dict[str, Any] = {}
        self.work_time_ms: float | None = None
        self.fastest_work_time_ms: float | None = None
        self.saved_alone = False
        self.measured_samples_per_s: float | None = None

    def begin(self, step: int, total_steps: int | None, now: float, now_ms: int) -> None:
        """Training begins at `step`."""
        self.total_steps = total_steps
        self._began = True
        self._at = (step, now_ms, now)
        self._rate_from = (now, step)
        self.activity.begin(RankActivity.STEPPING, now, now_ms)
        self.await_step(now)
        self.report(now, now_ms)

    @property
    def step(self) -> int:
        """Number of finished steps."""
        return self._at[0]

    @property
    def training(self) -> bool:
        """True if steps have begun."""
        return self._began

    def await_step(self, now: float) -> None:
        """A step begins."""
        self._step_from = (now, self.activity.now.upto(now).stepless_s)

    def logged_loss(self) -> float | None:
        """The loss that was logged since the last call, if any; what else was logged is kept as the latest."""
        fresh = self.fresh
        if not fresh:
            return None
        self.latest.update(fresh)
        loss = fresh.get("loss")
        fresh.clear()
        return _number(loss)

    def stepped(self, step: int, now: float, now_ms: int) -> None:
        """A step ended, and the next one begins: `step` of them are finished. Saves and announced phases are no part of its time."""
        since, stepless = self._step_from
        doing = self.activity.now.upto(now)
        self.times.add(max(0.0, (now - since) - (doing.stepless_s - stepless)) * 1000)
        self._step_from = (now, doing.stepless_s)
        self._at = (step, now_ms, now)

    def tick(self, now: float, now_ms: int) -> None:
        """Report the first step at once; the pulse reports the others."""
        if self._steps_per_s is None:
            self.report(now, now_ms)

    def report(self, now: float, now_ms: int) -> None:
        """Report step and activity now: as progress once training has begun. The pulse's thread calls it too."""
        self._pace()
        write = self._write if self._began else self._write_life
        write(self._fields(now, now_ms))

    def _pace(self) -> None:
        """Updates the steps a second since the last report."""
        since, counted = self._rate_from
        step, _, ended = self._at
        if ended > since and step > counted:
            self._steps_per_s = (step - counted) / (ended - since)
            self._rate_from = (ended, step)

    def _fields(self, now: float, now_ms: int) -> dict[str, Any]:
        step, step_at_ms, _ = self._at
        doing = self.activity.now
        totals = doing.upto(now)
        logged_samples_per_s = self._newest("samples_per_s")
        fields = {
            "rank": self._rank,
            "step": step,
            "step_at_ms": step_at_ms,
            "total_steps": self.total_steps,
            "loss": self._newest("loss"),
            "learning_rate": self._newest("learning_rate", "lr"),
            "steps_per_s": self._steps_per_s,
            "samples_per_s": self.measured_samples_per_s if logged_samples_per_s is None else logged_samples_per_s,
            "data_wait_s": round(totals.data_wait_s, 6),
            "save_stall_s": round(totals.save_stall_s, 6),
            "saving": doing.kind is RankActivity.SAVING,
            "at_ms": now_ms,
            "pulse_at_ms": now_ms,
            "activity": str(doing.kind),
            "activity_since_ms": doing.since_ms,
            "activity_limit_s": doing.limit_s,
            "step_time_p99_ms": self.times.percentile_ms(TAIL_SHARE),
            "longest_step_ms": self.times.longest_ms,
            "work_time_ms": self.work_time_ms,
            "fastest_work_time_ms": self.fastest_work_time_ms,
            "saved_alone": self.saved_alone or None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def measured(self) -> dict[str, float]:
        """Returns the metrics for a checkpoint's manifest: the newest value of each that is a finite number, MOST_MEASURED at most."""
        values = ((name, _number(value)) for name, value in (self.fresh | self.latest | self.fresh).items())
        finite = ((name, value) for name, value in values if value is not None and math.isfinite(value))
        return dict(islice(finite, MOST_MEASURED))

    def _newest(self, *names: str) -> float | None:
        for name in names:
            value = self.fresh.get(name, self.latest.get(name))
            if value is not None:
                return _number(value)
        return None


def _number(value: Any) -> float | None:
    return None if value is None else float(value.item() if hasattr(value, "item") else value)
