"""An emulated fleet for the detector's bench: nodes with one gang each that train, save, wait, are disturbed; some hang, some die.

Holds: everything comes from the seed, in virtual time. What is true (since when a gang hangs, since when a node is dead) is known here and
nowhere else. Steps take a lognormal time; the p99 that a rank tells is the one of that distribution.
"""

import math
import random
from dataclasses import dataclass
from typing import Any

from trainhouse.events import (
    AttemptHeartbeat,
    DeviceHealth,
    JobId,
    NodeHeartbeat,
    NodeId,
    PoolName,
    RankActivity,
    RankHeartbeat,
    RankState,
)

HOUR_MS = 3_600_000
EPOCH_MS = 1_800_000_000_000
SPREAD = 0.15
P99 = math.exp(2.326 * SPREAD)
PHASES: tuple[tuple[RankActivity, float, float, float | None], ...] = (
    # what, from and to how many seconds, and the limit that is announced
    (RankActivity.SAVING, 0.5, 8, None),
    (RankActivity.WAITING_FOR_DATA, 0.5, 12, None),
    (RankActivity.BUSY, 10, 300, 600.0),
    (RankActivity.STEPPING, 0.5, 20, None),  # something that was not announced: a compilation, the garbage collector, a slow collective
)


@dataclass(slots=True)
class EmulatedGang:
    """The ranks of one attempt on one node, in step with one another."""

    rng: random.Random
    ranks: int
    now_ms: int
    step_ms: float
    epoch: int = 1
    steps: int = 0
    moved_ms: int = 0
    longest_ms: float = 0.0
    activity: RankActivity = RankActivity.STEPPING
    since_ms: int = 0
    phase_at_ms: int = 0
    resume_ms: int | None = None
    announced_s: float | None = None
    data_wait_s: float = 0.0
    save_stall_s: float = 0.0
    hung_ms: int | None = None
    deaf: int | None = None

    def __post_init__(self) -> None:
        self.moved_ms = self.since_ms = self.now_ms
        self.longest_ms = 1.2 * self.p99_ms
        self._plan()

    def _plan(self) -> None:
        self.phase_at_ms = self.now_ms + int(self.rng.expovariate(1 / 300_000)) + 60_000
        self.resume_ms = None

    @property
    def p99_ms(self) -> float:
        return self.step_ms * P99

    def hang(self, at_ms: int, deaf: int | None) -> None:
        """No step any more from here on; one rank is stopped, or (None) all live and wait."""
        self.advance(at_ms)
        self.hung_ms, self.deaf = at_ms, deaf

    def advance(self, to_ms: int) -> None:
        """Trains up to a time."""
        while self.hung_ms is None and self.now_ms < to_ms:
            if self.resume_ms is not None:
                self._phase(min(to_ms, self.resume_ms))
            else:
                self._train(min(to_ms, max(self.phase_at_ms, self.now_ms)))
                if self.now_ms >= self.phase_at_ms:
                    self._begin()
        self.now_ms = max(self.now_ms, to_ms)

    def _train(self, to_ms: int) -> None:
        count = int((to_ms - self.moved_ms) / self.step_ms)
        if count > 0:
            noise = self.rng.lognormvariate(0, SPREAD)
            self.steps += count
            self.moved_ms += int(count * self.step_ms)
            self.longest_ms = max(self.longest_ms, self.step_ms * noise)
        self.data_wait_s += 0.05 * (to_ms - self.now_ms) / 1000
        self.now_ms = to_ms

    def _begin(self) -> None:
        self.activity, least_s, most_s, self.announced_s = self.rng.choice(PHASES)
        self.resume_ms = self.now_ms + int(1000 * self.rng.uniform(least_s, most_s))
        if self.activity is not RankActivity.STEPPING:
            self.since_ms = self.now_ms

    def _phase(self, to_ms: int) -> None:
        passed_s = (to_ms - self.now_ms) / 1000
        self.data_wait_s += passed_s if self.activity is RankActivity.WAITING_FOR_DATA else 0
        self.save_stall_s += passed_s if self.activity is RankActivity.SAVING else 0
        self.now_ms = to_ms
        if self.resume_ms is not None and to_ms >= self.resume_ms:
            if self.activity in (RankActivity.STEPPING, RankActivity.WAITING_FOR_DATA):
                self.longest_ms = max(self.longest_ms, to_ms - self.moved_ms)
            if self.activity is not RankActivity.STEPPING:
                self.activity, self.since_ms, self.announced_s = RankActivity.STEPPING, to_ms, None
            self.moved_ms = to_ms
            self.steps += 1
            self._plan()

    def told(self, at_ms: int) -> list[RankHeartbeat]:
        """The ranks as an agent tells them at a time by which `advance` went."""
        pulse_ms, work_ms = at_ms - self.rng.randrange(1000), 0.8 * self.step_ms
        common: dict[str, Any] = {
            "pid": 4242,
            "state": RankState.RUNNING,
            "step": self.steps,
            "step_at_ms": self.moved_ms,
            "step_time_ms": self.step_ms,
            "data_wait_s": self.data_wait_s,
            "save_stall_s": self.save_stall_s,
            "activity": self.activity,
            "activity_since_ms": self.since_ms,
            "activity_limit_s": self.announced_s,
            "step_time_p99_ms": self.p99_ms,
            "longest_step_ms": self.longest_ms,
            "fastest_work_time_ms": work_ms,
        }
        found = []
        for n in range(self.ranks):
            alive_ms = self.hung_ms if n == self.deaf and self.hung_ms is not None else pulse_ms
            own = {"rank": n, "device_id": f"d{n}", "pulse_at_ms": alive_ms, "work_time_ms": work_ms * (1 + 0.02 * n)}
            found.append(RankHeartbeat.model_construct(**common, **own))
        return found


@dataclass(slots=True)
class EmulatedNode:
    """A node and its agent. `skew_ms`: how far its clock is off."""

    number: int
    rng: random.Random
    interval_ms: int
    gang: EmulatedGang
    next_ms: int
    devices: tuple[DeviceHealth, ...]
    sequence: int = 0
    incarnation: int = 0
    skew_ms: int = 0
    dead_ms: int | None = None

    @property
    def name(self) -> str:
        return f"node-{self.number:05}"

    def beat(self, at_ms: int) -> NodeHeartbeat:
        """Unvalidated on purpose: it is what the agent's model would be, and there are hundreds of thousands."""
        self.gang.advance(at_ms)
        self.sequence += 1
        attempt = AttemptHeartbeat.model_construct(
            job_id=JobId(f"job-{self.number}"), attempt=1, epoch=self.gang.epoch, ranks=tuple(self._skewed(self.gang.told(at_ms)))
        )
        return NodeHeartbeat.model_construct(
            node_id=NodeId(self.name),
            boot_id="b",
            incarnation=f"i{self.incarnation}",
            pool=PoolName("p"),
            sequence=self.sequence,
            at_ms=at_ms + self.skew_ms,
            interval_s=self.interval_ms / 1000,
            attempts=(attempt,),
            devices=self.devices,
            spool_lag_bytes=0,
        )

    def _skewed(self, ranks: list[RankHeartbeat]) -> list[RankHeartbeat]:
        if self.skew_ms:
            for rank in ranks:
                told = rank.__dict__
                told.update({name: told[name] + self.skew_ms for name in ("step_at_ms", "pulse_at_ms", "activity_since_ms")})
        return ranks

    def restart_agent(self, at_ms: int) -> None:
        """It is away for 3 to 9 s (or less than its interval); its ranks run on."""
        self.incarnation, self.sequence = self.incarnation + 1, 0
        self.next_ms = max(self.next_ms, at_ms + self.rng.randrange(3_000, 9_000))

    def stall(self, at_ms: int, stall_ms: int) -> None:
        """The whole machine stands still for a while."""
        gang = self.gang
        gang.advance(at_ms)
        gang.now_ms += stall_ms
        gang.moved_ms += stall_ms
        gang.phase_at_ms += stall_ms
        gang.resume_ms = None if gang.resume_ms is None else gang.resume_ms + stall_ms
        self.next_ms = max(self.next_ms, at_ms + stall_ms)

    def restart_gang(self, at_ms: int) -> None:
        """A new attempt in place of one that hung."""
        old = self.gang
        self.gang = EmulatedGang(self.rng, old.ranks, at_ms, old.step_ms, old.epoch + 1)


def fleet(seed: int, count: int, ranks: int, interval_ms: int, first: int = 0) -> list[EmulatedNode]:
    """Nodes that are all in the middle of something."""
    nodes = []
    for number in range(first, first + count):
        rng = random.Random(f"{seed}-{number}")
        step_ms = 1000 * math.exp(rng.uniform(math.log(0.05), math.log(20)))
        devices = tuple(
            DeviceHealth.model_construct(
                device_id=f"d{n}",
                utilization_pct=97.0,
                memory_used_bytes=7 << 33,
                temperature_c=60.0,
                power_w=500.0,
                sm_clock_mhz=1755.0,
                max_sm_clock_mhz=1980.0,
                ecc_corrected=0,
                ecc_uncorrected=0,
                throttled=False,
            )
            for n in range(ranks)
        )
        gang = EmulatedGang(rng, ranks, EPOCH_MS, step_ms)
        nodes.append(EmulatedNode(number, rng, interval_ms, gang, EPOCH_MS + rng.randrange(interval_ms), devices))
    return nodes
