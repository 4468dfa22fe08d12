"""What happens to which process when: a plan drawn from a seed.

Holds: the same seed gives the same plan. An instant is a training step (read from the rank's own spool) plus a delay, or the moment at
which a checkpoint's commit is under way.
"""

import math
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.chaos import outsiders, refusals


class Kind(StrEnum):
    """KILL: SIGKILL. PAUSE: SIGSTOP, later SIGCONT. PARTITION: no byte between an agent and the brokers for a while.

    CLOCK: the wall clock of one process is off for a while (see `clock`). RESTART: a server is stopped, and started again later.
    SLOW: a server runs a tenth of its time for a while, as on a disk that is an order slower (see `slow`). HOLD: a process is stopped
    right before its next append, publication, commit or snapshot pointer (see `passage`). REFUSE: brokers refuse what they are sent, by its
    size or time (see `refusals`). EXTREMES: events made from schemas, with values at and beyond every edge, come to a topic (see
    `outsiders`).
    """

    KILL = "kill"
    PAUSE = "pause"
    PARTITION = "partition"
    CLOCK = "clock"
    RESTART = "restart"
    SLOW = "slow"
    HOLD = "hold"
    REFUSE = "refuse"
    EXTREMES = "extremes"


What = tuple[Kind, str]
PROCESSES: Final = ("rank", "agent", "beside", "scheduler", "standby", "intake", "detector", "projector", "kafka", "store")
# `beside` is the agent behind the proxy; ranks start without the shifted clock, and the servers are no Python programs.
TARGETS: Final = {
    Kind.KILL: PROCESSES,
    Kind.PAUSE: PROCESSES,
    Kind.PARTITION: ("beside",),
    Kind.CLOCK: ("agent", "beside", "scheduler", "standby", "intake", "detector", "projector"),
    Kind.RESTART: ("kafka", "store"),
    Kind.SLOW: ("kafka", "store"),
    # `scheduler`: or its standby, whichever comes to the moment first.
    Kind.HOLD: ("scheduler", "intake"),
    Kind.REFUSE: ("kafka",),
    Kind.EXTREMES: ("kafka",),
}
# In what way: each comes to pass before any comes again. Intake's directory has few records, and publishes without transactions.
WAYS: Final[dict[What, tuple[str, ...]]] = {
    (Kind.HOLD, "scheduler"): ("append", "publish", "commit", "pointer"),
    (Kind.HOLD, "intake"): ("append", "publish"),
    (Kind.REFUSE, "kafka"): refusals.WAYS,
    (Kind.EXTREMES, "kafka"): outsiders.WAYS,
}
# Nobody trains or saves through these: whatever befalls them, a healthy gang goes on.
BLINDING: Final = frozenset({"scheduler", "standby", "intake", "detector", "projector", "kafka"})
# How many of a hundred faults are of which kind.
SHARES: Final = {
    Kind.KILL: 26,
    Kind.PAUSE: 16,
    Kind.PARTITION: 7,
    Kind.CLOCK: 10,
    Kind.RESTART: 5,
    Kind.SLOW: 6,
    Kind.HOLD: 10,
    Kind.REFUSE: 6,
    Kind.EXTREMES: 14,
}
# Faults that come later than this share of the steps might find the job at its end.
LATEST: Final = 0.7
LONGEST_S: Final = 60.0
LONGEST_AWAY_S: Final = 15.0
# Longer than any lease: group sessions, transactions and take-overs all end meanwhile.
HELD_S: Final = 30.0
LARGEST_JUMP_S: Final = 600.0
# As where a time zone or a date was set wrong.
WHOLE_JUMPS_S: Final = (3600.0, 86_400.0)


@dataclass(frozen=True, order=True)
class Fault:
    """`kind` befalls `target` once training has reached `step`, `delay_s` later; `mid_commit`: as soon as a save after it begins.

    `lasts_s`: how long it lasts (0: at once over). `jump_s`: how far a clock is off meanwhile. `way`: which of its kind's ways.
    """

    step: int
    kind: Kind
    target: str
    delay_s: float
    lasts_s: float = 0.0
    jump_s: float = 0.0
    mid_commit: bool = False
    way: str = ""

    @property
    def blinds(self) -> bool:
        """Whether nobody trains or saves through what it befalls: a healthy gang goes on."""
        return self.target in BLINDING and not self.way.startswith("reports")

    def __str__(self) -> str:
        moment = "the commit after step" if self.mid_commit else "step"
        how = f" by {self.jump_s:+.0f} s" if self.kind is Kind.CLOCK else f" ({self.way})" if self.way else ""
        lasts = f" for {self.lasts_s:.1f} s" if self.lasts_s else ""
        return f"{self.kind} {self.target}{how}{lasts} at {moment} {self.step} + {self.delay_s * 1000:.0f} ms"


def mixed(seed: int, count: int, only: Collection[str] = PROCESSES, kinds: Collection[Kind] = tuple(Kind)) -> list[What]:
    """`count` faults of these kinds in the usual shares; each kind goes through its targets in `only` before it comes to one again."""
    rng = random.Random(f"mix {seed}")
    targets = {kind: [target for target in TARGETS[kind] if target in only and kind in kinds] for kind in SHARES}
    whole = sum(share for kind, share in SHARES.items() if targets[kind])
    found: list[What] = []
    for kind, share in SHARES.items():
        wanted = max(1, round(share * count / whole)) if targets[kind] else 0
        deck: list[str] = []
        while len(deck) < wanted:
            deck += rng.sample(targets[kind], len(targets[kind]))
        found += [(kind, target) for target in deck[:wanted]]
    return found


def plan(seed: int, whats: list[What], steps: int, jobs: int, longest_s: float = LONGEST_S) -> list[list[Fault]]:
    """These faults, dealt over `jobs` runs of `steps` steps; every third of a rank's or store's is mid-commit."""
    rng = random.Random(seed)
    deck = list(enumerate(whats))
    rng.shuffle(deck)
    runs: list[list[Fault]] = [[] for _ in range(jobs)]
    jumps_s, ways = _jumps_s(rng), {what: _ways(rng, each) for what, each in WAYS.items()}
    for i, (n, (kind, target)) in enumerate(deck):
        mid_commit = target in ("rank", "store") and kind is not Kind.CLOCK and n % 3 == 0
        delay_s = rng.uniform(0, 0.03 if mid_commit else 0.3)
        step = rng.randrange(2, int(steps * LATEST))
        jump_s = next(jumps_s) if kind is Kind.CLOCK else 0.0
        way = next(ways[kind, target]) if (kind, target) in ways else ""
        runs[i % jobs].append(Fault(step, kind, target, delay_s, _lasts_s(rng, kind, longest_s), jump_s, mid_commit, way))
    return [sorted(run) for run in runs]


def _lasts_s(rng: random.Random, kind: Kind, longest_s: float) -> float:
    """From one second to the longest, short ones as likely as long ones on a scale of ratios."""
    if kind in (Kind.KILL, Kind.EXTREMES):
        return 0.0
    if kind is Kind.HOLD:
        return min(longest_s, HELD_S)
    longest_s = min(longest_s, LONGEST_AWAY_S) if kind in (Kind.RESTART, Kind.REFUSE) else longest_s
    return math.exp(rng.uniform(0.0, math.log(longest_s)))


def _ways(rng: random.Random, ways: Sequence[str]) -> Iterator[str]:
    """Each of them before any comes again."""
    while True:
        yield from rng.sample(ways, len(ways))


def _jumps_s(rng: random.Random) -> Iterator[float]:
    """How far clocks are off: a small jump and each whole one, both ways, before any size comes again."""
    while True:
        small_s = math.exp(rng.uniform(0.0, math.log(LARGEST_JUMP_S)))
        jumps_s = [sign * size_s for sign in (-1, 1) for size_s in (small_s, *WHOLE_JUMPS_S)]
        yield from rng.sample(jumps_s, len(jumps_s))
