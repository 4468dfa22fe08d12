"""Divergence of the logged loss: not finite, or far beyond its usual size; or a gradient norm that is not finite. Pure.

Holds: the usual size is a running mean of |loss| over about the last WINDOW values, and an explosion is judged only after WARM_UP of them.
What has diverged stays so. A rank knows the steps in which it may have begun: those after the last sound loss, up to the bad one.
"""

import math

from trainhouse.events import Divergence, OnDivergence
from trainhouse.events.model.spec import DEFAULT_SKIP_STEPS

WARM_UP = 20
WINDOW = 20


class LossWatch:
    """The losses of one rank. `explode_factor` None: only what is no finite number counts."""

    def __init__(self, explode_factor: float | None = None) -> None:
        self._factor = explode_factor
        self._seen = 0
        self.usual: float | None = None
        self.diverged_at: float | None = None
        self.by_norm = False
        self.bad_steps = (0, 0)
        """First and last number of the steps in which it began, once it diverged."""
        self._sound_end = 0

    @property
    def diverged(self) -> bool:
        return self.diverged_at is not None

    def begin(self, step: int) -> None:
        """Steps before this one are sound."""
        self._sound_end = step

    def saw(self, loss: float, step: int = 0) -> bool:
        """Take in one more, of this step; False when it, or an earlier one, is no loss to go on from."""
        if self.diverged:
            return False
        if not math.isfinite(loss) or self._explodes(abs(loss)):
            self.diverged_at, self.bad_steps = loss, (min(self._sound_end, step), step)
            return False
        self._sound_end = step + 1
        size = abs(loss)
        self._seen += 1
        self.usual = size if self.usual is None else self.usual + (size - self.usual) / min(self._seen, WINDOW)
        return True

    def saw_norm(self, norm: float | None, first_step: int = 0, last_step: int = 0) -> None:
        """Take in a gradient norm that is not finite, if there is one, of one of these steps."""
        if norm is not None and not self.diverged:
            self.diverged_at, self.by_norm, self.bad_steps = norm, True, (first_step, last_step)

    def _explodes(self, size: float) -> bool:
        return self._factor is not None and self._seen >= WARM_UP and bool(self.usual) and size > self._factor * (self.usual or 0.0)


def skipped_steps(policy: Divergence, first_bad: int, last_bad: int) -> tuple[int, int]:
    """The first step whose data are left out, and the step after the last one."""
    return max(0, min(first_bad, last_bad + 1 - (policy.skip_steps or DEFAULT_SKIP_STEPS))), last_bad + 1


def watch_for(policy: Divergence | None) -> LossWatch | None:
    """The watch that a job's policy asks for; None: nobody watches."""
    return None if policy is None or policy.action is OnDivergence.IGNORE else LossWatch(policy.explode_factor)


def in_words(value: float, by_norm: bool) -> str:
    """The value that diverged: a loss, or a norm of gradients by its name."""
    return f"{value:.6g}" + (" (gradient norm)" if by_norm else "")


def describe(rank: int, step: int, loss: float, usual: float | None, good_commit: int | None, by_norm: bool = False) -> str:
    """Describes the divergence, for a person."""
    against = "" if usual is None or not math.isfinite(loss) else f", where about {usual:.4g} is usual"
    kept = "no checkpoint is known to be good" if good_commit is None else f"the last good checkpoint is commit {good_commit}"
    return (
        f"the loss diverged: {in_words(loss, by_norm)} on rank {rank} after step {step}{against}. Training stops and this state is not "
        f"saved; {kept}."
        " What follows is the spec's `divergence`: action = halt, rollback, skip_data or ignore"
    )
