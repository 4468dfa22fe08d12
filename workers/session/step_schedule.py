"""Schedule of saves, stops and agreements between ranks: pure decisions from counts and clocks.

Holds: what depends on a clock or a file of one rank is only a wish; it becomes a decision when all ranks have agreed on it (Wishes,
joined by maximum). What depends on the step alone is the same on all ranks and needs no agreement.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainhouse.checkpointing.interval import IntervalBounds, Measured, advised_interval_s
from trainhouse.events.model.spec import CheckpointPolicy

AGREE_EVERY_S = 0.25
MAX_STRIDE = 10_000


def save_by_step(policy: CheckpointPolicy, step: int) -> bool:
    """True when the policy names this count of finished steps."""
    return policy.every_steps is not None and step > 0 and step % policy.every_steps == 0


def interval_s(policy: CheckpointPolicy, measured: Measured) -> float:
    """Seconds between saves by the clock; beside `every_steps` the longest. Without `every_*`: Young/Daly within its bounds."""
    if policy.every_s is None and policy.every_steps is not None:
        return policy.max_interval_s
    return advised_interval_s(measured, IntervalBounds(policy.min_interval_s, policy.max_interval_s, policy.every_s))


@dataclass(frozen=True)
class Wishes:
    """Wishes and knowledge of one rank at a step boundary; all get the maximum of each of its numbers.

    `stride`: steps until the next agreement. `proved`: it has seen a sound loss since the newest checkpoint; `doubted`: the first one since
    was none. `diverged`: the rank whose loss diverged, the first of them. `work_ms`: what a step takes on this rank by itself; the fastest
    rank's. `uploading`: it does not know yet how the save under way ended. `bad`: samples of it are bad that the others have to count.
    """

    save: bool = False
    stop: bool = False
    stride: int = 1
    proved: bool = False
    doubted: bool = False
    diverged: int | None = None
    work_ms: float | None = None
    uploading: bool = False
    bad: bool = False

    def numbers(self) -> tuple[float, ...]:
        plain = (self.save, self.stop, self.stride, self.proved, self.doubted, self.uploading, self.bad)
        return *map(float, plain), _negative(self.diverged), _negative(self.work_ms)

    @classmethod
    def of(cls, numbers: Sequence[float]) -> "Wishes":
        save, stop, stride, proved, doubted, uploading, bad, diverged, work = numbers
        first = None if math.isinf(diverged) else -int(diverged)
        fastest = None if math.isinf(work) else -work
        return cls(save > 0, stop > 0, int(stride), proved > 0, doubted > 0, first, fastest, uploading > 0, bad > 0)


def _negative(number: float | None) -> float:
    """So that the maximum is that of the smallest, and of nobody's only if nobody has one."""
    return -math.inf if number is None else -float(number)


def stride_for(step_s: float) -> int:
    """So many steps that ranks agree about four times a second, however fast they step."""
    if step_s <= 0:
        return 1
    return max(1, min(MAX_STRIDE, int(AGREE_EVERY_S / step_s)))
