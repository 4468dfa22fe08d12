"""Which process is killed when: a plan drawn from a seed.

Holds: the same seed gives the same plan. An instant is a training step (read from the rank's own spool) plus a delay, or the
moment at which a checkpoint's commit is under way.
"""

import random
from dataclasses import dataclass

TARGETS = ("rank", "agent", "scheduler", "intake", "projector", "kafka", "store")

# Faults that come later than this share of the steps might find the job at its end.
LATEST = 0.7


@dataclass(frozen=True, order=True)
class Fault:
    """Kill -9 of `target` once training has reached `step`, `delay_s` later; `mid_commit`: as soon as a save after it begins."""

    step: int
    target: str
    delay_s: float
    mid_commit: bool = False

    def __str__(self) -> str:
        moment = "the commit after step" if self.mid_commit else "step"
        return f"kill -9 {self.target} at {moment} {self.step} + {self.delay_s * 1000:.0f} ms"


def plan(seed: int, targets: tuple[str, ...], each: int, steps: int, jobs: int) -> list[list[Fault]]:
    """`each` faults of every target, dealt over `jobs` runs of `steps` steps; every third of a rank's or store's is mid-commit."""
    rng = random.Random(seed)
    runs: list[list[Fault]] = [[] for _ in range(jobs)]
    deck = [(target, n) for n in range(each) for target in targets]
    rng.shuffle(deck)
    for i, (target, n) in enumerate(deck):
        mid_commit = target in ("rank", "store") and n % 3 == 0
        delay_s = rng.uniform(0, 0.03 if mid_commit else 0.3)
        runs[i % jobs].append(Fault(rng.randrange(2, int(steps * LATEST)), target, delay_s, mid_commit))
    return [sorted(run) for run in runs]
