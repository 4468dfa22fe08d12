"""One emulated campaign: jobs come, faults happen, all is healed, every job must end, and the judge reads what is left."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from structlog.testing import capture_logs

from tests.chaos.emulated.faults import Kind, Striker, dealt
from tests.chaos.emulated.judge import judge
from tests.chaos.emulated.world import PARTITIONS, EmulatedWorld
from tests.simulation.schedule_load import OURS, ask_now_and_then, draw_job, fleet, policy_event, review
from tests.support.fakes.journal_fakes import run_virtually
from trainhouse.events import CancelJob, PolicyChanged, ReviewAction, UncordonNode
from trainhouse.events.model.phases import UnderReview
from trainhouse.events.wire import topics

PAUSE_S = (0.5, 7.0)
A_JOB_EVERY_S = 20.0
# The longest fault, and what comes after it by itself: a reboot at the end of a notice, a late repeat.
SETTLE_S = 150.0
END_S = 6_000.0
DAY_S = 86_400


@dataclass
class Outcome:
    """What was done, and what the judge says. `virtual_s`: how long it was on the clocks in it. `before`: how long each journal was when
    the faults were over."""

    seed: int
    faults: Counter[Kind] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    jobs: int = 0
    records: int = 0
    lost_races: int = 0
    held: int = 0
    starts: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    journal_bytes: int = 0
    virtual_s: float = 0.0
    before: dict[int, int] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """For people."""
        a_day = self.journal_bytes * DAY_S / max(self.virtual_s, 1.0) / 1024**2
        kinds = ", ".join(f"{n} {kind}" for kind, n in self.faults.most_common())
        return [
            f"seed {self.seed}: {sum(self.faults.values())} faults in {self.virtual_s:.0f} virtual s: {kinds}",
            f"{self.jobs} jobs, {self.records} records of {PARTITIONS} journals ({self.lost_races} lost the race for their seq), "
            f"{self.starts} starts of schedulers, {self.held} held right before a step",
            f"journals: {a_day:.0f} MiB a day at this pace, uncompressed",
            *(f"a scheduler ended by itself {n} times: {why}" for why, n in self.ended.most_common()),
            *([f"COMPLAINT: {complaint}" for complaint in self.complaints] or ["no complaints"]),
        ]


def emulate(seed: int, faults: int) -> Outcome:
    """A whole campaign. Blocks; takes a tenth of a second a fault at most."""
    return emulated(seed, faults)[0]


def emulated(seed: int, faults: int) -> tuple[Outcome, EmulatedWorld]:
    """The same, and the world as it was left."""
    with capture_logs():
        found: tuple[Outcome, EmulatedWorld] = run_virtually(_campaign(seed, faults))
    return found


async def _campaign(seed: int, faults: int) -> tuple[Outcome, EmulatedWorld]:
    world, outcome = EmulatedWorld(seed), Outcome(seed)
    striker, rng = Striker(world, seed, faults), random.Random(f"campaign {seed}")
    fleet(world)
    world.ask(policy_event(["ours", "backfill", "fair", "eager"][seed % 4]))
    ask_now_and_then(world, 40_000)
    until_next_job_s = 0.0
    for kind in dealt(seed, faults):
        pause_s = rng.uniform(*PAUSE_S)
        until_next_job_s -= pause_s
        if until_next_job_s <= 0:
            draw_job(world, len(world.jobs))
            until_next_job_s = rng.uniform(0, 2 * A_JOB_EVERY_S)
        await asyncio.sleep(pause_s)
        striker.strike(kind)
        outcome.faults[kind] += 1
    await asyncio.sleep(SETTLE_S)
    before = await _healed(world)
    outcome.before = before
    _told(world, outcome)
    world.close()
    return outcome, world


async def _healed(world: EmulatedWorld) -> dict[int, int]:
    """No more faults; waits for the end of every job. How long each journal was when the faults were over."""
    world.faulty = False
    for process in world.processes:
        process.hold = None
        process.faults.lose = process.faults.lose_ack = process.faults.late = 0.0
    world.ask(PolicyChanged.model_validate({"pool": "default", "policy": OURS | {"teams": [], "name": "free"}, "user": "ada"}))
    for node in world.nodes.values():
        if node.cut:
            node.mend()
        world.ask(UncordonNode.model_validate({"pool": node.pool, "node_id": node.name}))
    before = {p: _seq(world, p) for p in range(PARTITIONS)}
    end_s = world.loop.time() + END_S
    while not world.jobs <= world.ended and world.loop.time() < end_s:
        for state in world.states():
            for job_id, job in sorted(state.jobs.items()):
                if isinstance(job.phase, UnderReview) and job_id in world.jobs:
                    world.ask(review(str(job_id), ReviewAction.GO_ON))
        await asyncio.sleep(30)
    for pool in ("default", "lab"):  # whatever else there is to do, this must be decided on
        world.jobs_pool(f"last-{pool}", pool)
        world.ask(CancelJob.model_validate({"job_id": f"last-{pool}"}))
    await asyncio.sleep(20)
    return before


def _seq(world: EmulatedWorld, partition: int) -> int:
    return max(p.host.followers[partition].folded.seq for p in world.processes if partition in p.host.followers)


def _told(world: EmulatedWorld, outcome: Outcome) -> None:
    entries = [e for p in range(PARTITIONS) for e in world.broker.committed(topics.DECISIONS, p)]
    outcome.complaints = judge(world, outcome.before)
    outcome.jobs, outcome.starts = len(world.jobs), sum(p.starts for p in world.processes)
    outcome.records, outcome.held = sum(_seq(world, p) for p in range(PARTITIONS)), sum(p.held for p in world.processes)
    outcome.lost_races = len(entries) - outcome.records
    outcome.journal_bytes, outcome.virtual_s = sum(len(e.value or b"") for e in entries), world.loop.time()
    outcome.ended = Counter(why[:200] for p in world.processes for why in p.ended)
