"""When to save, stop or ask the other ranks: pure decisions from counts and clocks.

Holds: what depends on a clock or a file of one rank is only a wish; it becomes a decision when all ranks have agreed on it (Wishes,
joined by maximum). What depends on the step alone is the same on all ranks and needs no agreement.
"""

import math
from dataclasses import dataclass

from trainhouse.events.spec import CheckpointPolicy

AGREE_EVERY_S = 0.25
MAX_STRIDE = 10_000
ASSUMED_FAILURE_INTERVAL_S = 4 * 3600.0


def save_by_step(policy: CheckpointPolicy, step: int) -> bool:
    """True when the policy names this count of finished steps."""
    return policy.every_steps is not None and step > 0 and step % policy.every_steps == 0


def interval_s(policy: CheckpointPolicy, save_cost_s: float, failure_interval_s: float = ASSUMED_FAILURE_INTERVAL_S) -> float | None:
    """Seconds between saves by the clock; None when the policy counts steps only.

    Without `every_*`: sqrt(2 * cost * mean time between failures) within the policy's bounds (Young 1974, Daly 2006).
    """
    if policy.every_s is not None:
        return policy.every_s
    if policy.every_steps is not None:
        return None
    best = math.sqrt(2 * max(save_cost_s, 1e-3) * failure_interval_s)
    return min(max(best, policy.min_interval_s), policy.max_interval_s)


@dataclass(frozen=True)
class Wishes:
    """What one rank wants at a step boundary; what all get is the maximum of each. `stride`: steps until the next agreement."""

    save: bool = False
    stop: bool = False
    stride: int = 1

    def numbers(self) -> tuple[float, float, float]:
        return float(self.save), float(self.stop), float(self.stride)

    @classmethod
    def of(cls, numbers: list[float]) -> "Wishes":
        return cls(numbers[0] > 0, numbers[1] > 0, int(numbers[2]))


def stride_for(step_s: float) -> int:
    """So many steps that ranks agree about four times a second, however fast they step."""
    if step_s <= 0:
        return 1
    return max(1, min(MAX_STRIDE, int(AGREE_EVERY_S / step_s)))
