"""The simulator is the same scheduler: a trace through it, and through the journal's machine with nodes that answer at once, starts alike.

By design they differ in what this comparison takes away: ranks that take time to start and nodes that take time to say that they are free
(here both take none); a restart's cost and lost work (here nothing fails); the sizes of batches (here the owner makes a record whenever
anything came, and ticks when a held start is due; between those the simulator looks as little as the owner here). What is left must be
equal: which job starts when, on which devices of which nodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.simulation.schedule_world import BEGIN_MS, World
from tests.support.core_world import admitted
from trainhouse.events import GangAllocated, PolicyChanged, SchedulingPolicy
from trainhouse.events.model.pool import StartReserved
from trainhouse.events.wire.journal import JournalRecord
from trainhouse.scheduler.sim.build import ONE_POOL
from trainhouse.scheduler.sim.loop import simulate
from trainhouse.scheduler.sim.types import ANY_TYPE, SimNode, TraceJob

BEGIN_S = BEGIN_MS // 1000
POOL_SETTLED_S = 20
NODES = [SimNode(f"n{i}", 8, rack=f"r{i // 2}") for i in range(6)]
POLICIES: dict[str, dict[str, Any]] = {
    "fifo": {"order": "submit", "blocking": "strict", "run_times": "limits"},
    "backfill": {"order": "submit", "blocking": "backfill", "run_times": "limits"},
    "backfill-many": {"order": "submit", "blocking": "backfill", "run_times": "history", "backfill": {"reservations": 4}},
    "fair": {"order": "fair", "blocking": "backfill", "run_times": "history", "fair_share": {"half_life_h": 0.05}},
    "shortest-first": {"order": "shortest", "blocking": "skip", "run_times": "limits"},
    "score": {"order": "score", "blocking": "backfill", "run_times": "history", "backfill": {"reservations": 2}},
    "quotas": {"order": "fair", "blocking": "skip", "run_times": "limits", "teams": [{"name": "a", "limit": {"any": 20}}]},
    "best-fit": {"order": "submit", "blocking": "skip", "run_times": "limits", "packing": "best-fit"},
}
Start = tuple[int, str, str, tuple[int, ...]]
"""Second, job, node, positions of devices."""


def trace(seed: int) -> list[TraceJob]:
    """Sixty gangs in four minutes on 48 devices; their limits are a little more than their run times."""
    dice, jobs = Random(seed), []
    for number in range(60):
        gpus = dice.choice([1, 1, 2, 3, 4, 6, 8, 8, 12, 16, 24, 40, 48])
        tenant, duration_s = dice.choice("abc"), dice.randrange(1, 90)
        jobs.append(
            TraceJob(
                job_id=f"j{number:02}",
                tenant=tenant,
                submit_s=BEGIN_S + POOL_SETTLED_S + dice.randrange(240),
                duration_s=duration_s,
                gpus=gpus,
                priority=dice.choice([20, 50, 50, 80]),
                limit_s=duration_s + dice.choice([0, 0, 5, 60]),
                kin=(tenant, "unknown", "job", str(gpus)),
            )
        )
    return sorted(jobs, key=lambda j: j.submit_s)


def by_simulator(jobs: list[TraceJob], policy: dict[str, Any]) -> set[Start]:
    """The starts of `trainhouse simulate`."""
    result = simulate(jobs, NODES, SchedulingPolicy.model_validate(policy))
    assert all(row.end_s is not None or row.refused for row in result.rows)
    return {(s.from_s, s.job_id, s.node_id, _positions(s.devices)) for s in result.segments}


def _positions(mask: int) -> tuple[int, ...]:
    return tuple(p for p in range(mask.bit_length()) if mask >> p & 1)


class Exact(World):
    """The machine with nodes that answer at once. At one instant what ends comes before what is submitted, as the simulator has it."""

    def __init__(self) -> None:
        super().__init__(0, exact=True)
        self.due: set[int] = set()

    def last(self, at_ms: int, act: Callable[[], Any], levels: int = 6) -> None:
        """Does something at the end of an instant: when all that nodes say then has come."""
        self.at(at_ms, act if not levels else lambda: self.last(self.now_ms, act, levels - 1))

    def submit_job(self, job: TraceJob) -> None:
        """As a user would."""
        assert job.limit_s is not None
        limits = {"run_time_s": float(job.limit_s)}
        fields: dict[str, Any] = {"ranks": job.gpus, "team": job.tenant, "priority": job.priority, "pool": ONE_POOL, "limits": limits}
        self.submit(admitted(job.job_id, **fields), job.job_id, job.duration_s * 1000)

    def flush(self) -> None:
        """The owner ticks again when a held start is due, on the whole second."""
        super().flush()
        for decision in JournalRecord.decode(self.journal[-1]).decisions:
            if isinstance(decision, StartReserved):
                at_ms = -(-decision.start_ms // 1000) * 1000
                if at_ms > self.now_ms and at_ms not in self.due:
                    self.due.add(at_ms)
                    self.last(at_ms, self.flush)


def by_machine(jobs: list[TraceJob], policy: dict[str, Any]) -> set[Start]:
    """The starts in the journal of the machine."""
    world = Exact()
    for node in NODES:
        world.join(node.node_id, node.gpus, ANY_TYPE, ONE_POOL, {"rack": node.rack})
    world.ask(PolicyChanged.model_validate({"pool": ONE_POOL, "policy": policy}))
    for job in jobs:
        world.last(job.submit_s * 1000, lambda job=job: world.submit_job(job))
    world.go(BEGIN_MS + 10_000_000)
    assert len(world.ended) == len(jobs)
    found: set[Start] = set()
    for record in map(JournalRecord.decode, world.journal):
        for gang in record.decisions:
            if isinstance(gang, GangAllocated):
                assert record.now_ms % 1000 == 0
                for part in gang.placements:
                    positions = tuple(sorted(int(d.rsplit("-", 1)[1]) for d in part.devices))
                    found.add((record.now_ms // 1000, gang.job_id, part.node_id, positions))
    return found


@pytest.mark.parametrize("seed", range(int(os.environ.get("TRAINHOUSE_SIM_SEEDS", "2"))))
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_simulator_starts_what_the_machine_starts(name: str, seed: int) -> None:
    jobs, policy = trace(seed), POLICIES[name] | {"elastic": {"enabled": False}}
    simulated, decided = by_simulator(jobs, policy), by_machine(jobs, policy)
    assert len({job for _, job, _, _ in decided}) > len(jobs) // 2
    first = min(simulated ^ decided, default=None)
    assert simulated == decided, f"{name}, seed {seed}: from {first} on, {len(simulated - decided)} of {len(decided)} differ"


def test_the_traces_were_not_too_easy_to_prove_anything() -> None:
    """Under each policy most jobs wait, and policies differ."""
    jobs = trace(0)
    starts = {name: by_simulator(jobs, policy | {"elastic": {"enabled": False}}) for name, policy in POLICIES.items()}
    submitted = {job.job_id: job.submit_s for job in jobs}
    for name, found in starts.items():
        assert sum(at > submitted[job] for at, job, _, _ in found) > 30, name
    assert len({frozenset(s) for s in starts.values()}) >= len(starts) - 1
