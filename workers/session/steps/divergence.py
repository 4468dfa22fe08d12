"""Divergence of the logged loss: not finite, or far beyond its usual size; or a gradient norm that is not finite. Pure.

Holds: the usual size is a running mean of |loss| over about the last WINDOW values, and an explosion is judged only after WARM_UP of them.
What has diverged stays so.
"""

import math

from trainhouse.events import Divergence, OnDivergence

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

    @property
    def diverged(self) -> bool:
        return self.diverged_at is not None

    def saw(self, loss: float) -> bool:
        """Take in one more; False when it, or an earlier one, is no loss to go on from."""
        if self.diverged:
            return False
        if not math.isfinite(loss) or self._explodes(abs(loss)):
            self.diverged_at = loss
            return False
        size = abs(loss)
        self._seen += 1
        self.usual = size if self.usual is None else self.usual + (size - self.usual) / min(self._seen, WINDOW)
        return True

    def saw_norm(self, norm: float | None) -> None:
        """Take in a gradient norm that is not finite, if there is one."""
        if norm is not None and not self.diverged:
            self.diverged_at, self.by_norm = norm, True

    def _explodes(self, size: float) -> bool:
        return self._factor is not None and self._seen >= WARM_UP and bool(self.usual) and size > self._factor * (self.usual or 0.0)


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
        " What follows is the spec's `divergence`: action = halt, rollback or ignore"
    )
