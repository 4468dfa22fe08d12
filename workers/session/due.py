"""When to save, stop or ask the other ranks: pure decisions from counts and clocks.

Holds: what depends on a clock or a file of one rank is only a wish; it becomes a decision when all ranks have agreed on it (Wishes,
joined by maximum). What depends on the step alone is the same on all ranks and needs no agreement.
"""

from dataclasses import dataclass

from trainhouse.checkpointing.interval import IntervalBounds, Measured, advise
from trainhouse.events.spec import CheckpointPolicy

AGREE_EVERY_S = 0.25
MAX_STRIDE = 10_000


def save_by_step(policy: CheckpointPolicy, step: int) -> bool:
    """True when the policy names this count of finished steps."""
    return policy.every_steps is not None and step > 0 and step % policy.every_steps == 0


def interval_s(policy: CheckpointPolicy, measured: Measured) -> float | None:
    """Seconds between saves by the clock; None when the policy counts steps only. Without `every_*`: Young/Daly within its bounds."""
    if policy.every_s is None and policy.every_steps is not None:
        return None
    return advise(measured, IntervalBounds(policy.min_interval_s, policy.max_interval_s, policy.every_s)).interval_s


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
