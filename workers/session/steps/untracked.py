"""The warning of a job that asks for checkpoints and tracks nothing: once, when the first checkpoint was due.

Holds: the first checkpoint is due by the policy's steps or clock, whichever comes first. The clock runs from the first step or logged
point, so that what a program loads before it calls `track` is no part of it, or from SETUP_S after the session's start. An event in the
job's story and a line on standard error say what to do. The pulse's thread asks by the clock, the training thread by steps.
Never: warns of a job whose spec says nothing of checkpoints.
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from trainhouse.events.model.spec import CheckpointPolicy
from trainhouse.workers.session.step_schedule import save_by_step

EVENT: Final = "CheckpointSkipped"
SETUP_S: Final = 600.0
REASON: Final = (
    "a checkpoint was due, but the code tracks nothing, so nothing is saved: call session.track(model=..., optimizer=...) "
    "before the first step, or remove `checkpoint` from the spec"
)


class Untracked:
    """One rank's. `emit` writes an event; None: another rank warns."""

    def __init__(self, policy: CheckpointPolicy, emit: Callable[[str, Mapping[str, Any]], None] | None) -> None:
        self.opened_s = time.monotonic()
        self.began_s: float | None = None
        self._emit = emit if policy.asked else None
        self._policy = policy

    def asked_anew(self, policy: CheckpointPolicy) -> None:
        """The program itself says when to save."""
        self._policy = policy

    def begin(self) -> None:
        """Training goes on by now; a repeat changes nothing."""
        if self.began_s is None:
            self.began_s = time.monotonic()

    def tracks(self) -> None:
        """Something is tracked: there is nothing to warn of."""
        self._emit = None

    def look(self, step: int, now_s: float) -> None:
        """Warns if a checkpoint was due after `step` finished steps, or by now."""
        if self._emit is None or not (save_by_step(self._policy, step) or now_s >= self._due_at_s()):
            return
        emit, self._emit = self._emit, None
        emit(EVENT, {"step": step, "reason": REASON, "at_ms": time.time_ns() // 1_000_000})
        print(f"trainhouse: {REASON}", file=sys.stderr, flush=True)

    def _due_at_s(self) -> float:
        """Returns the time at which the first checkpoint is due by the clock."""
        longest_s = self._policy.longest_s
        return self.opened_s + max(longest_s, SETUP_S) if self.began_s is None else self.began_s + longest_s
