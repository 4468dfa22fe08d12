"""Laws of the directory under any order of submissions, requests, pools, repeats and time; and that no table's order matters."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.core_world import Driver, admitted, exited, progress, registered, spec, started
from tests.support.profiles import examples
from trainhouse.events import CancelJob, ChangeJob, Envelope, Event, EventId, GangAllocated, JobAdmitted, JobState, JobStatus, PoolCreated
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.protocol.machine import Effect, Input
from trainhouse.scheduler.core.state.state import ScheduleState

jobs = st.sampled_from(["j1", "j2", "j3"])
event = st.one_of(
    st.builds(lambda p, n: PoolCreated.model_validate({"pool": p, "partition": n}), st.sampled_from(["p1", "p2"]), st.integers(0, 2)),
    st.builds(lambda j, p, s: _submitted(j, p, s), jobs, st.sampled_from(["p1", "p2", "p3"]), st.integers(0, 1)),
    st.builds(lambda j: CancelJob.model_validate({"job_id": j}), jobs),
    st.builds(lambda j, p: ChangeJob.model_validate({"job_id": j, "priority": p}), jobs, st.integers(0, 3)),
    st.just(ClockTicked()),
)
history = st.lists(st.tuples(event, st.integers(0, 25), st.sampled_from([0, 0, 1000, 400_000])), max_size=40)


def _submitted(job_id: str, pool: str, seed: int) -> Event:
    from trainhouse.events import JobSubmitted

    return JobSubmitted.model_validate({"job_id": job_id, "spec": spec(pool=pool, seed=seed)})


@settings(max_examples=examples(80))
@given(history)
def test_one_id_is_one_job_whatever_comes(steps: list[tuple[Event, int, int]]) -> None:
    machine = DirectoryMachine(control_partitions=2)
    state, now_ms = machine.initial(0), 0
    effects: list[Effect] = []
    records: list[tuple[int, list[Event], bytes]] = []
    handled: set[str] = set()
    for seq, (what, number, wait_ms) in enumerate(steps, 1):
        now_ms += wait_ms
        event_id = f"{type(what).__name__}-{number}"
        inputs = [Input(seq, Envelope(EventId(event_id), "test", what))]
        decisions = machine.decide(state, now_ms, inputs)
        if not isinstance(what, ClockTicked):
            assert (decisions == []) == (event_id in handled), "a repeated event does nothing, a new one is noted"
            handled.add(event_id)
        state = machine.fold(state, now_ms, inputs, decisions)
        effects += machine.effects(seq, now_ms, inputs, decisions)
        records.append((now_ms, decisions, machine.dump(state)))
    _judge(effects)
    folded = machine.initial(0)
    for at_ms, decisions, dumped in records:
        folded = machine.fold(folded, at_ms, [], decisions)
        assert machine.dump(folded) == dumped == machine.dump(machine.load(dumped))


def _judge(effects: list[Effect]) -> None:
    partition_of: dict[str, int | None] = {}
    told: Counter[str] = Counter()
    for effect in effects:
        e = effect.event
        if isinstance(e, JobAdmitted):
            assert e.job_id not in partition_of, "admitted twice"
            partition_of[e.job_id] = effect.partition
        elif isinstance(e, CancelJob | ChangeJob):
            assert partition_of[e.job_id] == effect.partition, "a request goes after its job, to the same partition"
        elif isinstance(e, JobStatus):
            assert e.state is JobState.REJECTED and e.reason and e.submission_id == effect.key
            told[effect.key] += 1
    assert all(count == 1 for count in told.values())


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_states_tables_changes_nothing(seed: int) -> None:
    d = Driver()
    d.feed(*(registered(n, slots=2) for n in "cab"))
    d.feed(*(admitted(f"j{i}", ranks=1 + i % 2, limits={"run_time_s": 10}) for i in range(8)))
    for gang in d.all(GangAllocated):
        d.feed(*(started(gang, p.node_id) for p in gang.placements), progress(gang, 1))
    shuffled = _shuffled(d.machine.load(d.machine.dump(d.state)), Random(seed))
    assert d.machine.dump(shuffled) == d.machine.dump(d.state)
    gang = d.all(GangAllocated)[0]
    events: list[Event] = [exited(gang, 0, 1), ClockTicked(), registered("b", boot_id="boot-2"), ClockTicked()]
    inputs = [d._input(e) for e in events]
    later = d.now_ms + 20_000
    assert d.machine.decide(shuffled, later, inputs) == d.machine.decide(d.state, later, inputs)


def _shuffled(state: ScheduleState, dice: Random) -> ScheduleState:
    def mix(table: dict[Any, Any]) -> dict[Any, Any]:
        items = list(table.items())
        dice.shuffle(items)
        return dict(items)

    for name in ("pools", "jobs", "nodes", "tokens", "claims", "reservations", "nodes_of_pool"):
        setattr(state, name, mix(getattr(state, name)))
    for name in ("running", "claims", "reservations", "policies"):
        setattr(state.book, name, mix(getattr(state.book, name)))
    return state
