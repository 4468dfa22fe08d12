"""Pools that move between partitions while jobs run, agents die, owners are killed, and people ask for things: nothing is lost or doubled.

`TRAINHOUSE_SIM_SEEDS=200` runs more seeds than the few of every test run.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

from tests.simulation import checkers, promise_checkers
from tests.simulation.moving_world import MovingWorld
from tests.simulation.schedule_load import FAULTS_MS, HEALED_WITHIN_MS, REVIEWED_WITHIN_MS, faults, fleet, heal, people, policy_event
from trainhouse.events.model.handover import DetourEnded, InputRedirected, PoolHandedOver, PoolTaken
from trainhouse.events.wire.journal import InputRefused
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.replay import LogEntry, verify

SEEDS = range(1, 1 + int(os.environ.get("TRAINHOUSE_SIM_SEEDS", "4")))


def lived(seed: int, jobs: int = 40) -> MovingWorld:
    """A life with a move every 40 s or so, until all jobs have ended."""
    world = MovingWorld(seed)
    fleet(world)
    world.ask(policy_event(["ours", "backfill", "fair", "eager"][seed % 4]))
    world.own(300, 3_000)
    people(world, jobs, 20_000)
    faults(world, 40_000)
    at_ms = world.now_ms + 20_000
    while at_ms < world.now_ms + FAULTS_MS + 60_000:
        pool, to = world.rng.choice(["default", "default", "lab"]), world.rng.randrange(len(world.sides))
        world.at(at_ms, lambda pool=pool, to=to: world.move(pool, to))
        at_ms += world.rng.randrange(5_000, 80_000)
    world.go(world.now_ms + FAULTS_MS)
    heal(world)
    for late_ms in range(0, REVIEWED_WITHIN_MS, 30_000):
        world.at(world.now_ms + late_ms, world.end_reviews)
    world.go(world.now_ms + HEALED_WITHIN_MS, stop_when_idle=True)
    return world


@cache
def world_of(seed: int) -> MovingWorld:
    print(f"seed {seed}")
    return lived(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_or_doubled_whatever_moves_and_fails(seed: int) -> None:
    world = world_of(seed)
    judges = [
        checkers.no_device_twice,
        checkers.whole_gangs,
        checkers.closed_nodes_get_nothing,
        checkers.broken_gangs_stop,
        checkers.all_over,
        checkers.nothing_failed,
        promise_checkers.quotas_kept,
    ]
    for pool in ("default", "lab"):
        records = world.records_of(pool)
        wrong = {judge.__name__: found for judge in judges if (found := list(judge(records))[:5])}
        assert not wrong, f"seed {seed}, pool {pool}: {wrong}"
    assert world.jobs <= world.ended
    assert not [d for r, _ in world.records for d in r.decisions if isinstance(d, InputRefused)]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_partition_replays_to_the_same_decisions_and_states(seed: int) -> None:
    world = world_of(seed)
    for side in world.sides:
        entries = [LogEntry(side.partition, n, value) for n, value in enumerate(side.journal)]
        hashes = {place: digest for place, digest in world.snapshots.items() if place[0] == side.partition}
        assert verify(entries, ScheduleMachine(), hashes).same


def test_the_lives_had_moves_there_and_back_and_redirected_inputs() -> None:
    decided = [d for seed in SEEDS for r, _ in world_of(seed).records for d in r.decisions]
    count = {kind: sum(isinstance(d, kind) for d in decided) for kind in (PoolHandedOver, PoolTaken, InputRedirected, DetourEnded)}
    print(count)
    assert (
        count[PoolHandedOver] == count[PoolTaken] > 2 * len(SEEDS)
        and count[InputRedirected] > 50 * len(SEEDS)
        and count[DetourEnded] >= len(SEEDS) // 2
    )
    for seed in SEEDS:
        for side in world_of(seed).sides:
            assert not [m for m in side.folded.state.moved.values() if m.returned] and not side.folded.state.arriving
