"""The directory's table becomes a segment at a tick: all decisions and lookups stay the same, and all readers have the same segments."""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.core_world import spec
from tests.support.profiles import examples
from trainhouse.events import CancelJob, ChangeJob, Envelope, Event, EventId, JobSubmitted, PoolCreated, ReviewJob
from trainhouse.events.model.routing import JobDirected, JobsSettled
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.scheduler.core.errors import StateLost
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.intake.directory_state import DirectoryState
from trainhouse.scheduler.core.intake.settled_memory import MemorySettledJobs
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.protocol.settled import Segment

POOLS = ("p1", "p2")
Batch = list[tuple[Event, str]]


def inputs_of(batch: Batch) -> list[Input]:
    return [
        Input(None if isinstance(event, ClockTicked) else number, Envelope(EventId(name), "test", event))
        for number, (event, name) in enumerate(batch)
    ]


class Life:
    """A directory with its journal."""

    def __init__(self, settle_at: int, index: MemorySettledJobs | None = None) -> None:
        self.machine = DirectoryMachine(2, index, settle_at)
        self.state = self.machine.initial(0)
        self.now_ms = 1_000
        self.journal: list[tuple[int, list[Event]]] = []
        self.feed([(PoolCreated.model_validate({"pool": p, "partition": n}), p) for n, p in enumerate(POOLS)])

    def feed(self, batch: Batch) -> list[Event]:
        inputs, before = inputs_of(batch), self.machine.dump(self.state)
        decisions = self.machine.decide(self.state, self.now_ms, inputs)
        assert self.machine.dump(self.state) == before, "decide changed the state"
        self.state = self.machine.fold(self.state, self.now_ms, inputs, decisions)
        self.journal.append((self.now_ms, decisions))
        return decisions

    def submit(self, *jobs: str, **fields: Any) -> list[Event]:
        return self.feed([(submission(job, **fields), f"s-{job}-{self.now_ms}") for job in jobs] + [(ClockTicked(), "")])

    def folded_anew(self, settle_at: int = 3) -> bytes:
        machine = DirectoryMachine(2, settle_at=settle_at)
        state = machine.initial(0)
        for now_ms, decisions in self.journal:
            state = machine.fold(state, now_ms, [], decisions)
        return machine.dump(state)


def submission(job: str, **fields: Any) -> JobSubmitted:
    return JobSubmitted.model_validate({"job_id": job, "spec": spec(**({"pool": "p1"} | fields))})


jobs = st.sampled_from([f"j{n}" for n in range(12)])
events = st.one_of(
    st.builds(lambda j, p, s: submission(j, pool=p, seed=s), jobs, st.sampled_from([*POOLS, "p3"]), st.integers(0, 1)),
    st.builds(lambda j: CancelJob.model_validate({"job_id": j}), jobs),
    st.builds(lambda j: ChangeJob.model_validate({"job_id": j, "priority": 3}), jobs),
    st.builds(lambda j: ReviewJob.model_validate({"job_id": j, "action": "send", "reason": "r"}), jobs),
    st.just(ClockTicked()),
)
history = st.lists(st.lists(st.tuples(events, st.integers(0, 30).map(lambda n: f"e{n}")), max_size=6), max_size=14)


@settings(max_examples=examples(120), deadline=None)
@given(history, st.integers(1, 4), st.integers(0, 3))
def test_nothing_is_decided_otherwise(batches: list[Batch], settle_at: int, reload: int) -> None:
    """Beside a directory that settles nothing; read back from snapshots now and then."""
    life, whole = Life(settle_at), Life(10**6)
    for number, batch in enumerate(batches):
        batch = [*batch, (ClockTicked(), "")]
        found = [d for d in life.feed(batch) if not isinstance(d, JobsSettled)]
        assert found == whole.feed(batch)
        if not any(isinstance(event, ClockTicked) for event, _ in batch[:-1]):
            assert life.state.in_table() < settle_at, "a tick leaves no table of that size"
        if reload and number % reload == 0:
            life.state = life.machine.load(life.machine.dump(life.state))
    for job in [f"j{n}" for n in range(12)]:
        assert life.state.job(job) == whole.state.job(job)
        assert life.state.pool_of(job) == whole.state.pool_of(job)
        if whole.state.job(job) is not None:
            assert life.state.fingerprint_of(job) == whole.state.fingerprint_of(job)
            assert life.state.project_of(job) == whole.state.project_of(job)
            assert [life.state.belongs(job, p) for p in (None, "default", "x")] == [
                whole.state.belongs(job, p) for p in (None, "default", "x")
            ]
    assert life.folded_anew() == life.machine.dump(life.state), "every reader has the same segments, whatever its own bound"


def test_a_table_is_settled_at_a_tick_and_only_there() -> None:
    life = Life(2)
    batch: Batch = [(submission(j), j) for j in ("a", "b", "c")]
    assert not [d for d in life.feed(batch) if isinstance(d, JobsSettled)]
    decisions = life.feed([(ClockTicked(), ""), (submission("d"), "d"), (submission("a"), "again"), (ClockTicked(), "")])
    assert [d for d in decisions if isinstance(d, JobsSettled)] == [JobsSettled(jobs=3)]
    assert [d.admission.job_id for d in decisions if isinstance(d, JobDirected)] == ["d"], "what was settled in this record is known"
    assert life.state.in_table() == 1 and life.state.segments() == 1


def test_a_directory_of_the_level_before_settles_nothing_and_does_at_its_next_tick_after_the_update() -> None:
    old = Life(10**6)
    old.submit(*(f"j{n}" for n in range(9)))
    dumped = old.machine.dump(old.state)
    raw = orjson.loads(dumped)
    assert sorted(raw) == ["format", "held", "jobs", "partition", "pools", "seen", "settled"] and raw["settled"] == []
    new = DirectoryMachine(2, settle_at=4)
    before = new.at(3)
    lowered = before.dump(old.state)
    assert "settled" not in orjson.loads(lowered) and orjson.loads(lowered)["format"] == 1
    state = before.load(lowered)
    assert new.dump(state) == dumped and before.capture(state)() == lowered
    tick = inputs_of([(ClockTicked(), "")])
    assert before.decide(state, 5_000, tick) == []
    decisions = new.decide(state, 5_000, tick)
    assert decisions == [JobsSettled(jobs=9)]
    state = new.fold(state, 5_000, tick, decisions)
    raw = orjson.loads(new.dump(state))
    assert raw["jobs"] == {} and [row[0] for row in raw["settled"]] == [9]
    old.journal.append((5_000, decisions))
    assert old.folded_anew() == new.dump(state), "from the journal's beginning it is the same"


def test_segments_depend_on_no_order() -> None:
    names = [f"job-{n}" for n in range(5_000)]
    hashes = set()
    for seed in range(3):
        Random(seed).shuffle(names)
        state = DirectoryMachine().initial(0)
        state.put_pool("p1", 0)
        for name in names:
            state.put_job(name, "p1", hashlib.sha256(name.encode()).digest()[:16])
        state.settle()
        assert state.settled is not None
        hashes.add(str(state.settled.rows()))
    assert len(hashes) == 1


def test_jobs_of_a_record_that_was_repaired_away_are_missing_and_nothing_halts() -> None:
    life = Life(10)
    for jobs in (2, 7):
        life.machine.fold(life.state, 1, [], [JobsSettled(jobs=jobs)])
    assert life.state.segments() == 0, "there was nothing to settle"
    life.submit("a", "b")
    life.machine.fold(life.state, 1, [], [JobsSettled(jobs=7)])
    assert [part.segment().jobs for part in life.machine.segments(life.state)] == [2]


def test_a_snapshot_whose_segments_are_nowhere_is_not_loaded() -> None:
    life = Life(2)
    life.submit("a", "b")
    with pytest.raises(StateLost, match="segment 0"):
        DirectoryMachine(2).load(life.machine.dump(life.state))


class Lost(MemorySettledJobs):
    """An index that was damaged."""

    damaged = False

    def entry(self, partition: int, job_id: str, segments: int) -> bytes | None:
        if self.damaged:
            raise StateLost("the index is damaged")
        return super().entry(partition, job_id, segments)


def test_an_index_that_is_lost_is_no_inputs_fault() -> None:
    """It was bisected, and an input journaled as the one to blame."""
    from tests.support.counting_machine import cancel
    from trainhouse.events import encode, envelope_of
    from trainhouse.scheduler.core.protocol.batch import Limits, Proposer, pending
    from trainhouse.scheduler.core.protocol.journal import Folded

    index = Lost()
    life = Life(2, index)
    life.submit("a", "b")
    index.damaged = True
    proposer = Proposer(life.machine, "owner")
    values = [cancel(0), encode(envelope_of(submission("c"), id="c", source="test", now_ms=0))]
    waiting = [pending(n, value, (), Limits()) for n, value in enumerate(values)]
    with pytest.raises(StateLost):
        proposer.propose(Folded(0, life.state), 1_000, waiting, 0, tick=True)


def test_a_captured_state_is_what_it_was() -> None:
    life = Life(3)
    life.submit("a", "b")
    life.feed([(CancelJob.model_validate({"job_id": "early"}), "early")])
    before, later = life.machine.dump(life.state), life.machine.capture(life.state)
    life.submit("c", "d")
    life.feed([(submission("early"), "s-early"), (PoolCreated.model_validate({"pool": "p9", "partition": 1}), "p9")])
    assert later() == before != life.machine.dump(life.state)


def test_a_segment_by_its_content() -> None:
    life = Life(2)
    life.submit("b", "a")
    [segment] = [part.segment() for part in life.machine.segments(life.state)]
    content = life.machine.content(0, segment)
    assert segment == Segment(0, 2, hashlib.sha256(content).hexdigest())
    assert isinstance(life.state, DirectoryState) and content.index(b"\x01a") < content.index(b"\x01b")
