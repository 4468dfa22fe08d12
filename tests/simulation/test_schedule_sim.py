"""The whole scheduler under virtual time and faults, judged from its journal; and each judge shown to complain.

`TRAINHOUSE_SIM_SEEDS=200` runs more seeds than the few of every test run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import orjson
import pytest

from tests.simulation import checkers, promise_checkers
from tests.simulation.schedule_load import BACKFILL, simulate
from tests.simulation.schedule_world import World
from tests.support.core_world import admitted
from trainhouse.events import Event, GangAllocated, JobStatus, PolicyChanged
from trainhouse.events.model.decisions import DevicesFreed, JobForgotten, JobMoved, PartEnded
from trainhouse.events.model.phases import StopKind, UnderReview
from trainhouse.events.model.pool import ClaimDropped, DevicesClaimed, NodeRestricted, Restriction, StartReserved
from trainhouse.events.wire.journal import InputRefused, JournalRecord
from trainhouse.scheduler.core.explain.explainer import answers
from trainhouse.scheduler.core.protocol.journal import begin, fold_bytes, machine_part
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.replay import LogEntry, verify

SEEDS = range(1, 1 + int(os.environ.get("TRAINHOUSE_SIM_SEEDS", "4")))
JOBS = 60
MOST_EVICTIONS = 12
SEEN: Counter[str] = Counter()
Records = list[JournalRecord]


def bounded(records: checkers.Records) -> Iterator[str]:
    yield from checkers.evictions_bounded(records, MOST_EVICTIONS)


JUDGES: list[Callable[[checkers.Records], Iterator[str]]] = [
    checkers.no_device_twice,
    checkers.whole_gangs,
    checkers.closed_nodes_get_nothing,
    checkers.broken_gangs_stop,
    checkers.all_over,
    checkers.nothing_failed,
    bounded,
    promise_checkers.quotas_kept,
    promise_checkers.preemptors_start,
    promise_checkers.promises_kept,
]


@cache
def world_of(seed: int) -> World:
    """One simulation for all tests of a seed."""
    print(f"seed {seed}")
    return simulate(seed, JOBS)


def records_of(world: World) -> Records:
    return [JournalRecord.decode(value) for value in world.journal]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_judge_is_content_whatever_happens(seed: int) -> None:
    records = records_of(world_of(seed))
    SEEN.update(type(d).__name__ for r in records for d in r.decisions)
    SEEN.update(f"{d.phase.cause.kind}" for r in records for d in r.decisions if isinstance(d, JobMoved) and checkers.cause_of(d.phase))
    wrong = {judge.__name__: found for judge in JUDGES if (found := list(judge(records))[:5])}
    assert not wrong, f"seed {seed}: {wrong}"


def test_the_simulations_were_not_too_tame_to_prove_anything() -> None:
    wanted = {"StartReserved", "StartUnreserved", "DevicesClaimed", "ClaimDropped", "NodeRestricted", "PolicyApplied", "NodeGivenUp"}
    wanted |= {"CheckpointRequested", "JobRetuned", *StopKind} - {StopKind.FATAL}
    assert not SEEN or wanted <= set(SEEN), wanted - set(SEEN)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_prefix_of_the_journal_is_its_snapshot_and_explains_who_waits(seed: int) -> None:
    """Read by another process: the fold of the bytes has the hash of the owner's state, and an answer for each job that waits, no other."""
    world, machine = world_of(seed), ScheduleMachine()
    folded = begin(machine, 0)
    for value in world.journal:
        folded, record = fold_bytes(machine, folded, value)
        assert record is not None
        waiting = _waiting(folded.state)
        told = list(answers(folded.state, record.now_ms))
        assert sorted(a.job_id for a in told) == waiting, f"seed {seed}, seq {record.seq}"
        whole = told if record.seq % 10 == 0 else told[:2]
        for explained in (a.build() for a in whole):
            assert explained.text and explained.obstacle and explained.needs, f"seed {seed}, seq {record.seq}: {explained}"
        if record.seq % 40 == 0:
            dump = machine.dump(folded.state)
            assert machine.dump(machine.load(dump)) == dump, f"seed {seed}, seq {record.seq}"


def _waiting(state: ScheduleState) -> list[str]:
    """By the jobs' own records: those without a gang that no person must judge."""
    return sorted(str(job_id) for job_id, job in state.jobs.items() if job.allotment is None and not isinstance(job.phase, UnderReview))


@pytest.mark.parametrize("seed", SEEDS)
def test_replay_decides_the_same(seed: int) -> None:
    world = world_of(seed)
    entries = [LogEntry(0, offset, value) for offset, value in enumerate(world.journal)]
    report = verify(entries, ScheduleMachine(), world.snapshots)
    assert report.same, f"seed {seed}: {[str(d) for d in report.differences[:3]]}"
    assert report.records == report.recomputed == len(world.journal) and report.snapshots == len(world.snapshots)


@pytest.mark.parametrize("seed", SEEDS)
def test_other_batches_and_other_tables_decide_the_same(seed: int) -> None:
    """Inputs of one instant come one by one or all together, and the state is loaded from a snapshot with its tables in another order."""
    machine, dice, state = ScheduleMachine(), Random(seed), ScheduleMachine().initial(0)
    for at, (now_ms, inputs, decisions) in enumerate(_instants(records_of(world_of(seed)))):
        if at % 25 == 24:
            state = _shuffled(machine, state, dice)
        found: list[Event] = []
        for batch in _cut(inputs, dice):
            made = machine.decide(state, now_ms, batch)
            state = machine.fold(state, now_ms, batch, made)
            found += made
        assert found == decisions, f"seed {seed}: at {now_ms}"


def _instants(records: Records) -> Iterator[tuple[int, list[Input], list[Event]]]:
    """Records of one time together."""
    now_ms, inputs, decisions = 0, list[Input](), list[Event]()
    for record in records:
        if record.now_ms != now_ms and inputs:
            yield now_ms, inputs, decisions
            inputs, decisions = [], []
        now_ms = record.now_ms
        more, made = machine_part(record)
        inputs, decisions = [*inputs, *more], [*decisions, *made]
    yield now_ms, inputs, decisions


def _cut(inputs: list[Input], dice: Random) -> list[list[Input]]:
    if dice.random() < 0.5:
        return [inputs]
    return [[i] for i in inputs]


def _shuffled(machine: ScheduleMachine, state: ScheduleState, dice: Random) -> ScheduleState:
    raw: dict[str, Any] = orjson.loads(machine.dump(state))
    for table in ("jobs", "claims", "reservations", "pools", "tokens"):
        dice.shuffle(raw[table])
    found = machine.load(orjson.dumps(raw))
    assert machine.dump(found) == machine.dump(state)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_with_exact_run_times_a_held_start_is_kept_to_the_millisecond(seed: int) -> None:
    """Backfill in order of submission; nothing fails, limits are the run times, and nodes answer at once: no promise is ever put off."""
    world = World(1000 + seed, exact=True)
    for n in range(6):
        world.join(f"n{n}", 8, "h100", "default", {"rack": f"r{n // 2}"})
    world.ask(PolicyChanged.model_validate({"pool": "default", "policy": BACKFILL | {"backfill": {"reservations": 1 + seed % 4}}}))
    for number in range(70):
        world.at(world.now_ms + world.rng.randrange(120_000), lambda n=number: _exact_job(world, n))
    world.own(700, 1_300)
    world.go(world.now_ms + 120_000)
    world.go(world.now_ms + 4_000_000, stop_when_idle=True)
    records = records_of(world)
    assert sum(isinstance(d, StartReserved) for r in records for d in r.decisions) > 5, "nobody was promised anything"
    wrong = [x for judge in JUDGES if judge is not promise_checkers.promises_kept for x in judge(records)]
    assert [*wrong, *promise_checkers.promises_kept(records, exact=True)] == [], f"seed {seed}"


def _exact_job(world: World, number: int) -> None:
    ranks, run_s = world.rng.choice([1, 2, 4, 8, 8, 16, 24, 40, 48]), world.rng.randrange(3, 60)
    require = {"require": "node"} if ranks <= 8 and world.rng.random() < 0.2 else {}
    job = admitted(f"j{number}", gang={"ranks": ranks} | require, limits={"run_time_s": float(run_s), "restarts": 0})
    world.submit(job, f"j{number}", run_s * 1000)


# ---- each judge can complain


def _edit(records: Records, change: Callable[[JournalRecord, Event], list[Event] | None], *, times: int = 1) -> Records:
    """The records with a decision replaced where `change` gives others for it; the first `times` times."""
    out, left = [], times
    for record in records:
        decisions: list[Event] = []
        for decision in record.decisions:
            others = change(record, decision) if left else None
            left -= others is not None
            decisions += [decision] if others is None else others
        out.append(replace(record, decisions=tuple(decisions)))
    assert left < times, "nothing was changed"
    return out


def _second_gang(records: Records) -> Records:
    """A gang's devices go to another job too."""

    def twice(_: JournalRecord, d: Event) -> list[Event] | None:
        alone = isinstance(d, GangAllocated) and not d.spec.shares_device
        return [d, d.model_copy(update={"job_id": "thief"})] if alone else None

    return _edit(records, twice)


def _early_free(records: Records) -> Records:
    def free(_: JournalRecord, d: Event) -> list[Event] | None:
        if not isinstance(d, GangAllocated):
            return None
        return [d, DevicesFreed(node_id=d.placements[0].node_id, job_id=d.job_id, epoch=d.epoch)]

    return _edit(records, free)


def _partial(records: Records) -> Records:
    def fewer(_: JournalRecord, d: Event) -> list[Event] | None:
        if not isinstance(d, GangAllocated) or d.spec.gang.min_ranks or len(d.placements) < 2:
            return None
        return [d.model_copy(update={"placements": d.placements[:-1]})]

    return _edit(records, fewer)


def _closed(records: Records) -> Records:
    def close(r: JournalRecord, d: Event) -> list[Event] | None:
        if not isinstance(d, GangAllocated):
            return None
        node = d.placements[0].node_id
        return [NodeRestricted(node_id=node, pool=d.pool, restriction=Restriction.CORDONED, at_ms=r.now_ms), d]

    return _edit(records, close)


def _lame(records: Records) -> Records:
    """A part of a gang is lost, and the gang goes on."""

    def lose(_: JournalRecord, d: Event) -> list[Event] | None:
        if not isinstance(d, GangAllocated):
            return None
        return [d, PartEnded.model_validate({"job_id": d.job_id, "epoch": d.epoch, "node_id": d.placements[0].node_id, "how": "LOST"})]

    return _edit(records, lose, times=20)


def _endless(records: Records) -> Records:
    return _edit(records, lambda _, d: [] if isinstance(d, JobForgotten) else None)


def _unfinal(records: Records) -> Records:
    return _edit(records, lambda _, d: [] if isinstance(d, JobStatus) and d.state.final else None)


def _refused(records: Records) -> Records:
    return _edit(records, lambda _, d: [d, InputRefused(offset=1, reason="it raised")])


def _hunted(records: Records) -> Records:
    """One job is asked to leave again and again."""
    asked = next(d for r in records for d in r.decisions if isinstance(d, JobMoved) and checkers.cause_of(d.phase) in checkers.FOR_OTHERS)
    gang = next(d for r in records for d in r.decisions if isinstance(d, GangAllocated) and d.job_id == asked.job_id)
    return _edit(records, lambda _, d: [d, *[asked, gang] * (MOST_EVICTIONS + 1)] if d is asked else None)


def _greedy(records: Records) -> Records:
    """All jobs turn out to be of the team with the least limit."""

    def other(_: JournalRecord, d: Event) -> list[Event] | None:
        if not isinstance(d, GangAllocated):
            return None
        return [d.model_copy(update={"spec": d.spec.model_copy(update={"team": "lm"})})]

    return _edit(records, other, times=1_000)


def _for_nothing(records: Records) -> Records:
    """Somebody leaves, and the preemptor then fails: its start is not there."""
    claim = next(d for r in records for d in r.decisions if isinstance(d, DevicesClaimed) and d.victims)
    drop = ClaimDropped(job_id=claim.job_id)
    return _edit(records, lambda _, d: [d, drop] if d is claim else None)


def _unclaimed(records: Records) -> Records:
    """Somebody is stopped, and nobody's claim says for what."""

    def forget(r: JournalRecord, d: Event) -> list[Event] | None:
        stopped = {m.job_id for m in r.decisions if isinstance(m, JobMoved) and checkers.cause_of(m.phase) is StopKind.PREEMPTED}
        return [] if isinstance(d, DevicesClaimed) and stopped & set(d.victims) else None

    return _edit(records, forget)


def _put_off(records: Records) -> Records:
    def later(_: JournalRecord, d: Event) -> list[Event] | None:
        return [d, d.model_copy(update={"start_ms": d.start_ms + 1})] if isinstance(d, StartReserved) else None

    return _edit(records, later)


CORRUPTIONS: list[tuple[Callable[[Records], Records], Callable[[checkers.Records], Iterator[str]]]] = [
    (_second_gang, checkers.no_device_twice),
    (_early_free, checkers.no_device_twice),
    (_partial, checkers.whole_gangs),
    (_closed, checkers.closed_nodes_get_nothing),
    (_lame, checkers.broken_gangs_stop),
    (_endless, checkers.all_over),
    (_unfinal, checkers.all_over),
    (_refused, checkers.nothing_failed),
    (_hunted, bounded),
    (_greedy, promise_checkers.quotas_kept),
    (_for_nothing, promise_checkers.preemptors_start),
    (_unclaimed, promise_checkers.preemptors_start),
    (_put_off, lambda records: promise_checkers.promises_kept(records, exact=True)),
]


@pytest.mark.parametrize("corrupt, judge", CORRUPTIONS, ids=[c.__name__.strip("_") for c, _ in CORRUPTIONS])
def test_a_judge_complains_of_a_journal_with_one_thing_wrong(corrupt: Any, judge: Any) -> None:
    assert list(judge(corrupt(records_of(world_of(0)))))
