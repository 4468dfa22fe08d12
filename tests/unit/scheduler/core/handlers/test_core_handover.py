"""A pool that moves to another partition: all of it goes, once, what comes about it follows, and what cannot be moved is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import orjson
import pytest

from tests.support.core_world import (
    Driver,
    admitted,
    exited,
    going,
    gone,
    lost,
    policy_changed,
    progress,
    registered,
    running,
    saved,
    started,
)
from trainhouse.client.kafka.journal_answers import JournalAnswers
from trainhouse.client.kafka.present import being_moved
from trainhouse.events import (
    CancelJob,
    ChangeRefused,
    CordonNode,
    Envelope,
    Event,
    EventId,
    ForgetNodeKey,
    GangAllocated,
    JobState,
    JobStatus,
    MovePool,
    NodeDesiredState,
    Order,
    PoolCreated,
    UncordonNode,
    envelope_of,
)
from trainhouse.events.model.decisions import JobForgotten, NodeJoined
from trainhouse.events.model.handover import (
    DetourEnded,
    HandoverClosed,
    InputRedirected,
    PoolFence,
    PoolHandedOver,
    PoolPart,
    PoolPartRefused,
    PoolTaken,
    RedirectedInput,
)
from trainhouse.events.model.ids import JobId, PoolName
from trainhouse.events.model.node import AttemptRef
from trainhouse.events.model.upgrade import LevelRaised
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.security.vetting import VettingRules
from trainhouse.events.wire.codec import HEADERS, decode, encode
from trainhouse.events.wire.journal import InputRefused, JournaledInput, JournalRecord
from trainhouse.events.wire.topics import CONTROL, DAY_MS, MAX_INPUT_BYTES, POOLS, VERDICTS
from trainhouse.projections.record import Record
from trainhouse.projections.rows import decisions as decision_rows
from trainhouse.projections.rows.lines.verdict_lines import verdict_line
from trainhouse.scheduler.core.errors import BrokenInvariant, StateLost, UnexpectedInput
from trainhouse.scheduler.core.handlers.handover import has_left, on_its_way
from trainhouse.scheduler.core.protocol.batch import Limits, Pending, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import begin, fold_bytes
from trainhouse.scheduler.core.protocol.machine import Effect, Input
from trainhouse.scheduler.core.protocol.publication import sent_of
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.pool_records import PoolRecords
from trainhouse.scheduler.core.state.state import Pool, ScheduleState
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.scheduling.vetting import vetted


class Partition(Driver):
    """A driver of a partition with a number, whose inputs have offsets."""

    def __init__(self, number: int, machine: ScheduleMachine | None = None) -> None:
        super().__init__(machine)
        self.state = self.machine.initial(number)
        self.number, self.offset = number, 0
        self.delivered = 0

    def _input(self, event: Event | Envelope) -> Input:
        self.offset += 1
        envelope = event if isinstance(event, Envelope) else Envelope(EventId(f"e{self.number}-{self.offset}"), "test", event)
        return Input(self.offset, envelope)

    def sent(self) -> list[Envelope]:
        """What goes to other partitions since the last call, as they read it."""
        new, self.delivered = self.effects[self.delivered :], len(self.effects)
        return [self._on_the_wire(e, n) for n, e in enumerate(new) if e.topic == CONTROL]

    def _on_the_wire(self, effect: Effect, ordinal: int) -> Envelope:
        assert effect.partition is not None and effect.partition != self.number
        return decode(sent_of(effect, "schedule", Order(self.number, self.seq, ordinal), self.now_ms)[0].value, HEADERS)

    def passes_on_to(self, other: Partition) -> list[Event]:
        """Hands everything over that it has for another partition, in one batch."""
        return other.feed(*self.sent(), wait_ms=max(0, self.now_ms - other.now_ms))


def move(to: int = 1, pool: str = "default", id_: str = "move-1") -> Envelope:
    event = MovePool.model_validate({"pool": pool, "to_partition": to, "reason": "room", "user": "ada"})
    return Envelope(EventId(id_), "test", event)


def two() -> tuple[Partition, Partition]:
    """The first with two nodes, a running and a waiting job and a policy of its own; the second with a pool and a job of its own."""
    a, b = Partition(0), Partition(1)
    a.feed(PoolCreated.model_validate({"pool": "default", "partition": 0}))
    a.feed(registered("n1"), registered("n2"), policy_changed(name="ours", backfill={"reservations": 2}))
    running(a, "runs", ranks=2)
    a.feed(admitted("waits", ranks=4), wait_ms=10_000)
    b.feed(PoolCreated.model_validate({"pool": "other", "partition": 1}), registered("o1", pool="other"))
    running(b, "local", ranks=2, pool="other")
    a.sent(), b.sent()
    return a, b


def moved() -> tuple[Partition, Partition]:
    """The same after the move of the first one's pool."""
    a, b = two()
    a.feed(move())
    a.passes_on_to(b)
    return a, b


def reason_of(decisions: list[Event]) -> str:
    [refused] = [d for d in decisions if isinstance(d, ChangeRefused)]
    assert refused.event_id == "move-1" and not [d for d in decisions if isinstance(d, PoolHandedOver)]
    return refused.reason


def test_a_job_between_two_partitions_is_on_its_way_and_one_that_ended_there_is_not() -> None:
    a, b = two()
    assert on_its_way([a.state, b.state], "runs") is None
    a.feed(move())
    assert on_its_way([a.state, b.state], "runs") == ("default", 0, 1)
    assert being_moved([a.state, b.state], "runs").startswith("pool default of runs is being moved: partition 0 has handed it over")
    assert on_its_way([a.state, b.state], "local") is None and on_its_way([a.state, b.state], "never") is None
    a.passes_on_to(b)
    assert on_its_way([a.state, b.state], "runs") is None
    b.feed(CancelJob(job_id=JobId("waits")))
    assert "waits" not in b.state.jobs and on_its_way([a.state, b.state], "waits") is None
    b.feed(move(to=0, id_="move-2"))
    assert on_its_way([a.state, b.state], "runs") == ("default", 1, 0)
    b.passes_on_to(a)
    assert on_its_way([a.state, b.state], "runs") is None


# ---- the hand-over


def test_all_of_a_pool_goes_and_nothing_of_another() -> None:
    a, b = two()
    before = dict(a.state.jobs.items())
    usage = a.state.book.usage.rows_of("default")
    a.feed(move())
    handed = a.last(PoolHandedOver)
    assert (handed.move, handed.to_partition, handed.jobs, handed.nodes, handed.user) == ("move-1", 1, 2, 2, "ada")
    assert not a.state.jobs and not a.state.nodes and not a.state.pools and not a.state.book.pools() and not a.state.book.policies
    assert a.state.moved["default"].to_partition == 1 and set(a.state.moved["default"].jobs) == {"runs", "waits"}
    a.passes_on_to(b)
    taken = b.last(PoolTaken)
    assert (taken.pool, taken.from_partition, taken.partition, taken.jobs, taken.nodes) == ("default", 0, 1, 2, 2)
    assert sorted(b.state.jobs) == ["local", "runs", "waits"] and sorted(b.state.nodes) == ["n1", "n2", "o1"]
    for job_id, job in before.items():
        assert b.state.jobs[job_id].model_copy(update={"number": job.number}) == job
    assert b.state.jobs["local"].number < b.state.jobs["runs"].number < b.state.jobs["waits"].number < b.state.next_number
    assert b.state.book.policy("default").name == "ours" and b.state.book.usage.rows_of("default") == usage
    assert sorted(node.index for node in b.state.nodes.values()) == [0, 1, 2]
    [pool] = [e for e in b.effects if e.topic == POOLS and e.key == "default"]
    assert pool.event == PoolCreated.model_validate({"pool": "default", "partition": 1})


@pytest.mark.parametrize("number", [0, 1])
def test_both_states_are_the_same_when_they_are_read_back(number: int) -> None:
    state = moved()[number].state
    machine = ScheduleMachine()
    back = machine.load(machine.dump(state))
    assert machine.dump(back) == machine.dump(state)
    assert (back.moved, back.arriving, back.scheduler_tokens) == (state.moved, state.arriving, state.scheduler_tokens)


def test_jobs_go_on_with_their_devices_and_their_numbers() -> None:
    a, b = moved()
    gang = a.last(GangAllocated, job_id="runs")
    last = a.status("runs").status_seq
    b.feed(saved(gang, 1), wait_ms=1000)
    assert b.status("runs").public_seq == last + 1
    b.feed(*(exited(gang, r) for r in range(2)), *gone(gang))
    assert b.status("runs").state is JobState.SUCCEEDED
    b.tick()
    assert b.last(GangAllocated, job_id="waits").epoch == 1


def test_jobs_left_the_partition_that_handed_them_over_and_no_other() -> None:
    a, b = moved()
    assert has_left(a.state, "runs") and not has_left(a.state, "nothing") and not has_left(b.state, "runs")
    b.feed(move(0, id_="move-2"))
    b.passes_on_to(a)
    assert has_left(b.state, "runs") and not has_left(a.state, "runs")


def test_what_runs_is_not_given_to_others_there() -> None:
    a, b = moved()
    b.feed(CancelJob.model_validate({"job_id": "waits"}))
    b.feed(admitted("more", ranks=3), wait_ms=60_000)
    b.feed(CancelJob.model_validate({"job_id": "more"}), admitted("small", ranks=2))
    free = {p.node_id for p in b.last(GangAllocated, job_id="small").placements}
    assert free.isdisjoint({p.node_id for p in a.last(GangAllocated, job_id="runs").placements})
    assert not b.all(GangAllocated, job_id="more")


# ---- what comes about it


def test_each_input_about_the_pool_goes_on_whole_in_order_and_under_its_id() -> None:
    a, b = moved()
    gang = a.last(GangAllocated, job_id="runs")
    inputs: list[Event | Envelope] = [
        registered("n1", incarnation="inc-2"),
        progress(gang, 9),
        saved(gang, 7),
        exited(gang, 0, 1),
        lost(registered("n2")),
        envelope_of(admitted("new", ranks=1), id="new:admitted", source="test", now_ms=5, order=Order(3, 900, 0)),
        Envelope(EventId("c1"), "test", CancelJob.model_validate({"job_id": "waits"}), order=Order(3, 901, 0)),
        Envelope(EventId("c2"), "test", CancelJob.model_validate({"job_id": "new"}), pool="default", order=Order(3, 902, 0)),
        Envelope(EventId("k1"), "test", CordonNode.model_validate({"pool": "default", "node_id": "n1"}), order=Order(3, 903, 0)),
    ]
    a.feed(*inputs)
    assert len(a.all(InputRedirected)) == len(inputs) and not a.state.jobs and not a.state.nodes
    sent = a.sent()
    assert [e.id for e in sent][5:] == ["new:admitted", "c1", "c2", "k1"]
    came = [decode(orjson.dumps(e.event.event), HEADERS) for e in sent if isinstance(e.event, RedirectedInput)]
    assert [type(e.event) for e in came] == [type(i.event if isinstance(i, Envelope) else i) for i in inputs]
    b.feed(*sent)
    assert b.last(NodeJoined, node_id="n1").relayed and b.last(NodeDesiredState, node_id="n1").incarnation == "inc-2"
    assert {d.job_id for d in b.all(JobForgotten)} == {"waits", "new"}


def test_repeats_are_dropped_at_both_partitions() -> None:
    a, b = moved()
    asked = Envelope(EventId("c1"), "test", CancelJob.model_validate({"job_id": "waits"}), order=Order(3, 901, 0))
    a.feed(asked)
    a.feed(asked)
    [sent] = a.sent()
    b.feed(sent)
    decided = len(b.decisions)
    assert b.feed(sent) == [] or len(b.decisions) == decided
    assert len(b.all(JobForgotten, job_id="waits")) == 1


def test_a_registration_that_came_the_long_way_round_counts_no_more_once_the_node_registered_itself() -> None:
    a, b = moved()
    a.feed(registered("n1", incarnation="inc-2"))
    late = a.sent()
    b.feed(registered("n1", incarnation="inc-3"))
    b.feed(*late)
    assert b.state.nodes["n1"].incarnation == "inc-3" and not b.state.nodes["n1"].relayed


def test_an_input_about_a_pool_that_is_nowhere_is_refused() -> None:
    b = Partition(1)
    with pytest.raises(UnexpectedInput, match="pool default is not on partition 1"):
        b.feed(RedirectedInput.model_validate({"pool": "default", "to_partition": 1, "event": {}}))


def test_where_the_pool_moved_on_inputs_follow_it_once_more() -> None:
    a, b = moved()
    c = Partition(2)
    b.feed(move(2, id_="move-2"))
    b.passes_on_to(c)
    a.feed(Envelope(EventId("c1"), "test", CancelJob.model_validate({"job_id": "waits"}), order=Order(3, 901, 0)))
    a.passes_on_to(b)
    [redirected] = b.sent()
    assert isinstance(redirected.event, RedirectedInput) and redirected.id == "c1"
    c.feed(redirected)
    assert c.all(JobForgotten, job_id="waits")


# ---- there and back


def test_a_pool_that_comes_back_takes_inputs_where_they_arrive_once_nothing_is_on_its_way() -> None:
    a, b = moved()
    a.feed(Envelope(EventId("early"), "test", CancelJob.model_validate({"job_id": "nobody"}), pool="default", order=Order(3, 900, 0)))
    early = a.sent()
    b.feed(move(0, id_="move-2"))
    b.passes_on_to(a)
    assert a.state.moved["default"].returned and "default" in a.state.pools
    # Behind the fence another input goes round: what comes directly must not overtake it.
    a.feed(Envelope(EventId("c1"), "test", CancelJob.model_validate({"job_id": "waits"}), order=Order(3, 901, 0)))
    assert not a.all(JobForgotten, job_id="waits")
    b.feed(*early, *a.sent())
    b.passes_on_to(a)
    assert a.all(JobForgotten, job_id="waits") and not a.all(DetourEnded), "something was redirected behind the fence: another one follows"
    a.feed(move(1))
    b.feed(*a.sent())
    assert reason_of(b.passes_on_to(a)).endswith("try again in a few seconds")
    while a.state.moved:
        b.feed(*a.sent())
        b.passes_on_to(a)
    assert a.all(DetourEnded) and not a.state.moved
    a.feed(Envelope(EventId("c2"), "test", CancelJob.model_validate({"job_id": "runs"}), order=Order(3, 902, 0)))
    assert a.status("runs").reason == "cancelled by its user" and not a.sent()


def test_a_fence_that_nobody_waits_for_changes_nothing() -> None:
    _a, b = moved()
    decided = b.feed(RedirectedInput(pool=b.last(PoolTaken).pool, to_partition=1, event=orjson.loads(encode(_fence("old")))))
    assert not [d for d in decided if isinstance(d, DetourEnded)]


def _fence(move_id: str) -> Envelope:
    return envelope_of(PoolFence.model_validate({"pool": "default", "move": move_id}), id="f", source="test", now_ms=1)


# ---- what is refused


def test_a_pool_that_cannot_be_moved_stays_and_the_reason_says_what_to_do() -> None:
    a, _ = two()
    assert "is on partition 0 already" in reason_of(a.feed(move(0)))
    assert "no such pool" in reason_of(a.feed(move(1, pool="nothing")))
    old = Partition(0, ScheduleMachine().at(8))
    old.feed(PoolCreated.model_validate({"pool": "default", "partition": 0}))
    assert "trainhouse upgrade finish" in reason_of(old.feed(move()))


def test_a_pool_whose_state_is_too_large_for_one_record_is_refused() -> None:
    a = Partition(0)
    a.feed(PoolCreated.model_validate({"pool": "default", "partition": 0}), registered("n1"))
    rng = random.Random(1)
    for n in range(60):
        a.feed(admitted(f"j{n}", ranks=8, env={"X": rng.randbytes(100_000).hex()}))
    assert "MiB are handed over at once: move it with fewer jobs" in reason_of(a.feed(move()))
    assert len(a.state.jobs) == 60


def _ref(gang: GangAllocated) -> AttemptRef:
    return AttemptRef(job_id=gang.job_id, attempt=gang.attempt, epoch=gang.epoch)


@pytest.mark.parametrize("pool", ["default", "lab"])
def test_a_pool_stays_while_a_job_has_devices_of_a_node_that_is_in_another_pool_by_now(pool: str) -> None:
    a, b = Partition(0), Partition(1)
    for name in ("default", "lab"):
        a.feed(PoolCreated.model_validate({"pool": name, "partition": 0}))
    a.feed(registered("n1"), registered("n2"))
    gang = running(a, "j", ranks=4)
    a.feed(registered("n1", pool="lab", incarnation="inc-2", running=[_ref(gang)]))
    assert "job j of pool default has devices of node n1, which is in pool lab by now" in reason_of(a.feed(move(1, pool=pool)))
    a.feed(CancelJob.model_validate({"job_id": "j"}), *gone(gang))
    a.feed(move(1, pool=pool, id_="move-2"))
    a.passes_on_to(b)
    assert b.last(PoolTaken).pool == pool


def test_a_node_that_registered_at_the_wrong_partition_keeps_no_pool_from_coming_there() -> None:
    a, b = two()
    b.feed(registered("stray"), registered("n1", incarnation="not-n1"))
    a.feed(move())
    a.passes_on_to(b)
    assert {"runs", "waits"} < set(b.state.jobs) and b.state.nodes["n1"].incarnation == "inc-1" and b.state.nodes["n1"].relayed
    assert b.state.nodes_of_pool["default"] == ("n1", "n2", "stray")
    assert b.machine.dump(b.machine.load(b.machine.dump(b.state))) == b.machine.dump(b.state)


def test_what_is_for_one_partition_counts_at_no_other() -> None:
    a, b = two()
    a.feed(move())
    [part] = a.sent()
    with pytest.raises(UnexpectedInput, match="is for partition 1, not 2"):
        Partition(2).feed(part)
    b.feed(part)
    a.feed(Envelope(EventId("c1"), "test", CancelJob.model_validate({"job_id": "waits"}), order=Order(3, 901, 0)))
    [sent] = a.sent()
    with pytest.raises(UnexpectedInput, match="this partition's own"):
        a.feed(sent)


# ---- several parts


def large() -> tuple[Partition, Partition]:
    a, b = Partition(0), Partition(1)
    a.feed(PoolCreated.model_validate({"pool": "default", "partition": 0}), registered("n1"))
    rng = random.Random(2)
    for n in range(10):
        a.feed(admitted(f"j{n}", ranks=8, env={"X": rng.randbytes(50_000).hex()}))
    a.sent()
    a.feed(move())
    return a, b


def test_a_large_state_goes_in_parts_of_an_input_each_and_is_whole_with_the_last() -> None:
    a, b = large()
    parts = a.sent()
    assert len(parts) > 2 and max(len(encode(p)) for p in parts) <= MAX_INPUT_BYTES
    for part in parts[:-1]:
        b.feed(part)
        assert not b.state.jobs and b.state.arriving["default"].move == "move-1"
        b.state = b.machine.load(b.machine.dump(b.state))
    b.feed(parts[-1])
    assert len(b.state.jobs) == 10 and not b.state.arriving


def test_a_part_that_is_not_due_and_parts_that_make_no_state_are_refused() -> None:
    a, b = large()
    parts = a.sent()
    with pytest.raises(UnexpectedInput, match="was not due: the pool is at part 0"):
        b.feed(parts[1])
    for part in parts[:-1]:
        b.feed(part)
    event = parts[-1].event
    assert isinstance(event, PoolPart)
    with pytest.raises(BrokenInvariant, match="their hash differs"):
        b.feed(replace(parts[-1], event=event.model_copy(update={"sha256": "0" * 64})))
    with pytest.raises(BrokenInvariant, match="cannot be unpacked"):
        b.feed(replace(parts[-1], event=event.model_copy(update={"data": "AAAA"})))
    b.feed(parts[-1])
    assert len(b.state.jobs) == 10


@pytest.mark.parametrize("bad", [{"sha256": "0" * 64}, {"number": 1, "of": 2}], ids=["another-hash", "not-due"])
def test_a_refused_part_is_reported_to_people_with_the_pool_and_both_partitions(bad: dict[str, Any]) -> None:
    a, _ = two()
    a.feed(move())
    [part] = a.sent()
    assert isinstance(part.event, PoolPart)
    value = encode(replace(part, event=part.event.model_copy(update=bad)))
    machine = ScheduleMachine()
    written = Proposer(machine, "me").propose(begin(machine, 1), 5, [pending(0, value, HEADERS, Limits())], 0, tick=False)
    assert written is not None
    [told] = [decode(out.value, HEADERS).event for out in written.published if out.topic == VERDICTS]
    assert isinstance(told, PoolPartRefused)
    assert (told.pool, told.move, told.from_partition, told.to_partition, told.offset) == ("default", "move-1", 0, 1, 0)
    line = verdict_line(told)
    assert "partition 1" in line and "partition 0 moved it" in line and told.reason in line and "pool show default" in line


def test_a_pools_state_is_read_once_for_the_decision_and_the_fold_and_then_let_go() -> None:
    a, _ = two()
    a.feed(move())
    machine, waiting = ScheduleMachine(), [_pending(part) for part in a.sent()]
    folded = begin(machine, 1)
    written = Proposer(machine, "me").propose(folded, a.now_ms, waiting, 0, tick=True)
    assert written is not None
    [read] = [folded.state.pool_reader.kept]
    assert read is not None and {job.job_id for job in read.jobs} == {"runs", "waits"}
    other, _ = fold_bytes(machine, begin(machine, 1), written.value)
    after, _ = fold_bytes(machine, folded, written.value, written.record)
    assert after.state.pool_reader.kept is None and other.state.pool_reader.kept is None
    assert all(after.state.jobs[job.job_id].spec is job.spec for job in read.jobs), "the same records, not read again"
    assert machine.dump(after.state) == machine.dump(other.state), "as who only follows has it"


def test_sql_shows_nothing_of_what_a_part_holds() -> None:
    a, b = Partition(0), Partition(1)
    a.feed(PoolCreated.model_validate({"pool": "default", "partition": 0}), admitted("j", env={"NAME": "hidden-value"}))
    a.feed(move())
    a.passes_on_to(b)
    a.feed(envelope_of(admitted("k", env={"NAME": "hidden-value"}), id="k", source="test", now_ms=1))
    a.passes_on_to(b)
    shown = [row.values["json"] for d in (*a.decisions, *b.decisions) for row in decision_rows.rows(_decided(d), _RECORD)]
    assert any('"number":0' in text for text in shown)
    assert not [text for text in shown if "hidden-value" in text]
    assert not [text for text in shown if '"data":"' in text]


_RECORD: Any = Record("trainhouse.decisions", 0, 1, 1, b"", b"", ())


def _decided(event: Event) -> Envelope:
    return envelope_of(event, id="d", source="test", now_ms=1, order=Order(0, 1, 0))


# ---- keys, and what is forgotten


def _entry(event: Event, key: SigningKey | None) -> Entry:
    value = encode(envelope_of(event, id="r", source="test", now_ms=1))
    return Entry(0, 0, 1, None, value, (*HEADERS, *([key.header(CONTROL, value)] if key else [])))


def _vetted(state: ScheduleState, event: Event, key: SigningKey | None, rules: VettingRules | None = None) -> Pending:
    entry = _entry(event, key)
    (found,) = vetted(rules or VettingRules(), CONTROL, state, [entry], [pending(0, entry.value, entry.headers, Limits())])
    return found


def _refusal(state: ScheduleState, event: Event, key: SigningKey | None, rules: VettingRules | None = None) -> str:
    return _vetted(state, event, key, rules).refusal


def test_reports_that_still_come_to_the_former_partition_are_vetted_by_the_keys_that_went_along() -> None:
    own, stranger = SigningKey.made(), SigningKey.made()
    a, b = Partition(0), Partition(1)
    a.feed(PoolCreated.model_validate({"pool": "default", "partition": 0}), registered("n1", public_key=own.public_key))
    gang = running(a, "j", ranks=1)
    a.feed(move())
    for state in (a.state, a.machine.load(a.machine.dump(a.state))):
        assert not _refusal(state, started(gang, "n1"), own) and _refusal(state, started(gang, "n1"), stranger)
        assert not _refusal(state, saved(gang, 1), own) and _refusal(state, saved(gang, 1), stranger)
        assert "forget-key n1" in _refusal(state, registered("n1", public_key=stranger.public_key), stranger)
    a.passes_on_to(b)
    assert b.state.nodes["n1"].public_key == own.public_key
    asked = ForgetNodeKey.model_validate({"pool": "default", "node_id": "n1"})
    a.feed(Envelope(EventId("f1"), "test", asked, order=Order(3, 900, 0)))
    a.passes_on_to(b)
    assert not b.state.nodes["n1"].public_key
    assert not _refusal(a.state, registered("n1", public_key=stranger.public_key), stranger)


def test_a_job_that_left_is_spoken_for_by_its_own_nodes_alone() -> None:
    own, other = SigningKey.made(), SigningKey.made()
    a = Partition(0)
    for name in ("default", "lab"):
        a.feed(PoolCreated.model_validate({"pool": name, "partition": 0}))
    a.feed(registered("n1", public_key=own.public_key), registered("x", pool="lab", public_key=other.public_key))
    gang = running(a, "j", ranks=1)
    a.feed(move())
    for state in (a.state, a.machine.load(a.machine.dump(a.state))):
        assert not _refusal(state, saved(gang, 1), own) and "a node that job j runs on" in _refusal(state, saved(gang, 1), other)


def test_a_forgotten_key_of_a_node_that_left_speaks_for_no_job() -> None:
    own = SigningKey.made()
    a = Partition(0)
    a.feed(PoolCreated.model_validate({"pool": "default", "partition": 0}), registered("n1", public_key=own.public_key))
    gang = running(a, "j", ranks=1)
    a.feed(move())
    required = VettingRules(required=True)
    other_job = saved(gang, 1).model_copy(update={"job_id": JobId("unknown")})
    assert not _refusal(a.state, other_job, own, required)
    a.feed(Envelope(EventId("f1"), "test", ForgetNodeKey.model_validate({"pool": "default", "node_id": "n1"}), order=Order(3, 900, 0)))
    assert _refusal(a.state, other_job, own, required) and _refusal(a.state, saved(gang, 1), own, required)


def test_keys_of_forgotten_nodes_go_along_and_are_bound_at_one_partition_alone() -> None:
    own, stranger = SigningKey.made(), SigningKey.made()
    a, b = Partition(0), Partition(1)
    a.feed(PoolCreated.model_validate({"pool": "default", "partition": 0}), registered("gone", public_key=own.public_key))
    a.feed(lost(registered("gone")))
    a.tick(7 * DAY_MS)
    assert "gone" not in a.state.nodes and len(a.state.kept_keys) == 1
    a.feed(move())
    a.passes_on_to(b)
    assert len(a.state.kept_keys) == 0 and len(b.state.kept_keys) == 1
    for state in (a.state, b.state):
        assert "forget-key gone" in _refusal(state, registered("gone", public_key=stranger.public_key), stranger)


def test_what_went_along_is_forgotten_when_no_input_of_before_is_left() -> None:
    a, _b = moved()
    a.tick(7 * DAY_MS - 1000)
    assert not a.all(HandoverClosed)
    a.tick(2000)
    assert a.all(HandoverClosed) and not a.state.moved["default"].jobs and a.state.moved["default"].to_partition == 1
    assert not [d for d in a.tick() if isinstance(d, HandoverClosed)]
    a.feed(UncordonNode.model_validate({"pool": "default", "node_id": "n1"}))
    assert len(a.sent()) == 1


def test_a_scheduler_that_must_sign_and_has_no_key_moves_no_pool() -> None:
    required = VettingRules(required=True, more_platform_keys=frozenset({"another"}))
    state = Partition(0).state
    event = move().event
    key = SigningKey.made()
    rules = replace(required, more_platform_keys=frozenset({key.public_key}))
    assert "TRAINHOUSE_SCHEDULER_SIGNING_KEY" in _refusal(state, event, key, rules)
    assert not _refusal(state, event, key, replace(rules, platform_key=key.public_key))
    assert _refusal(state, RedirectedInput.model_validate({"pool": "default", "to_partition": 1, "event": {}}), None, rules)


# ---- records


def _pending(envelope: Envelope, offset: int = 0) -> Pending:
    return pending(offset, encode(envelope), HEADERS, Limits())


def test_a_partition_that_was_not_raised_yet_is_raised_before_it_takes_a_part() -> None:
    a, _ = two()
    a.feed(move())
    [part] = a.sent()
    machine = ScheduleMachine()
    folded = replace(begin(machine, 1), level=8)
    record = _proposed(machine, folded, [_pending(part)])
    assert [type(d) for d in record.decisions] == [LevelRaised] and not record.inputs and record.fold_version == 9
    record = _proposed(machine, replace(folded, level=9), [_pending(part)])
    assert any(isinstance(d, PoolTaken) for d in record.decisions)


def test_journal_time_is_not_behind_the_hand_over() -> None:
    a, _ = two()
    a.feed(move())
    [part] = a.sent()
    machine = ScheduleMachine()
    record = _proposed(machine, begin(machine, 1), [_pending(part)], clock_ms=a.now_ms - 5_000)
    assert record.now_ms == a.last(PoolHandedOver).at_ms == a.now_ms


@pytest.mark.parametrize("redirected", [False, True])
def test_a_hand_over_is_the_first_in_its_record(redirected: bool) -> None:
    """Its parts are sent before the record's other effects: those of before would come behind what the other scheduler says."""
    asked = move(1)
    if redirected:
        asked = replace(
            asked, event=RedirectedInput.model_validate({"pool": "default", "to_partition": 0, "event": orjson.loads(encode(asked))})
        )
    machine = ScheduleMachine()
    folded = begin(machine, 0)
    folded.state.pools["default"] = Pool(PoolName("default"), created=True)
    waiting = [_pending(envelope_of(admitted("j"), id="j", source="test", now_ms=1)), _pending(asked, 1)]
    first = _proposed(machine, folded, waiting)
    assert [i.offset for i in first.inputs] == [0, None] and any(isinstance(d, JobStatus) for d in first.decisions)
    second = _proposed(machine, replace(folded, cursor=0), waiting)
    assert second.inputs[0].offset == 1 and isinstance(second.decisions[0], PoolHandedOver)


def test_marks_that_are_due_in_each_record_keep_no_move_from_its_turn() -> None:
    machine = ScheduleMachine()
    folded = begin(machine, 0)
    folded.state.pools["default"] = Pool(PoolName("default"), created=True)
    waiting = [_pending(move(1)), _pending(envelope_of(admitted("j"), id="j", source="test", now_ms=1), 1)]
    proposer, marks = Proposer(machine, "me"), [progress(_gang("j"), 1)]
    first = proposer.propose(folded, 5, waiting, 0, tick=True, marks=marks)
    assert first is not None and [i.offset for i in first.record.inputs] == [0], "alone: what is decided beside it may rest on the marks"
    assert {type(d) for d in first.record.decisions} == {PoolHandedOver, PoolPart}
    after, _ = fold_bytes(machine, folded, first.value, first.record)
    second = proposer.propose(after, 5, waiting, 0, tick=True, marks=marks)
    assert second is not None and [i.offset for i in second.record.inputs] == [None, 1, None]


def _gang(job_id: str) -> GangAllocated:
    a, _ = two()
    return a.last(GangAllocated, job_id="runs").model_copy(update={"job_id": JobId(job_id)})


def _proposed(machine: ScheduleMachine, folded: Any, waiting: list[Pending], clock_ms: int = 5) -> JournalRecord:
    written = Proposer(machine, "me").propose(folded, clock_ms, waiting, 0, tick=True)
    assert written is not None
    return written.record


def test_an_input_of_the_greatest_size_can_be_passed_on_and_no_other_may_be_larger() -> None:
    a, b = moved()
    event = admitted("big", ranks=1, env={"X": "x" * 250_000})
    envelope = envelope_of(event, id="big", source="test", now_ms=1)
    padded = replace(envelope, correlation_id="y" * (MAX_INPUT_BYTES - len(encode(envelope))))
    whole = encode(replace(padded, correlation_id=(padded.correlation_id or "") + "big"))
    assert len(whole) == MAX_INPUT_BYTES and not pending(0, whole, HEADERS, Limits()).refusal
    a.feed(decode(whole, HEADERS))
    [sent] = a.sent()
    value = encode(sent)
    assert len(value) > MAX_INPUT_BYTES and not pending(0, value, HEADERS, Limits()).refusal
    larger = encode(replace(padded, correlation_id=(padded.correlation_id or "") + "bigger"))
    assert "at most 262144 are allowed" in pending(0, larger, HEADERS, Limits()).refusal
    b.feed(sent)
    assert "big" in b.state.jobs


def test_a_redirected_input_that_cannot_be_handled_sends_its_job_to_review() -> None:
    a, b = moved()
    gang = a.last(GangAllocated, job_id="runs")
    event = RedirectedInput(
        pool=gang.pool, to_partition=1, event=orjson.loads(encode(envelope_of(saved(gang, 3), id="s", source="test", now_ms=1)))
    )
    asked = ScheduleMachine().after_refusal(b.state, envelope_of(event, id="r", source="test", now_ms=1), "it broke")
    assert asked is not None and getattr(asked, "job_id", None) == "runs"


def test_a_record_with_a_part_is_read_back_as_it_was_written() -> None:
    a, _ = two()
    decisions = tuple(a.feed(move()))
    asked = replace(move(), subject="default", time_ms=5)
    record = JournalRecord(1, "me", 5, 0, (JournaledInput(0, asked),), decisions, 0, 11, 9, "0" * 64)
    assert JournalRecord.decode(record.encode(ScheduleMachine.since)) == record


def test_an_open_node_with_a_closed_device_leaves_nothing_behind_when_its_pool_leaves() -> None:
    a, _ = two()
    a.state.book.cluster.shut_devices(a.state.nodes["n2"].index, 1)
    a.feed(move())
    assert not any(any(bay.by_free) or any(bay.of_size) or bay.free for bay in a.state.book.cluster.bays.values())


def test_statuses_are_those_of_one_scheduler() -> None:
    a, b = moved()
    gang = a.last(GangAllocated, job_id="runs")
    b.feed(*(exited(gang, r) for r in range(2)), *gone(gang))
    b.tick()
    going(b, "waits")
    told = [e.event for e in (*a.effects, *b.effects) if isinstance(e.event, JobStatus) and e.event.job_id == "waits"]
    assert [t.status_seq for t in told] == list(range(1, len(told) + 1))


# ---- who asked


class _Message:
    """What a client reads of a journal's record."""

    def __init__(self, inputs: list[Envelope], decisions: list[Event]) -> None:
        items = tuple(JournaledInput(n, envelope) for n, envelope in enumerate(inputs))
        numbered = [d.model_copy(update={"offset": 0}) if isinstance(d, InputRedirected) else d for d in decisions]
        self._value = JournalRecord(1, "me", 5, 9, items, tuple(numbered), 0, 11, 9, "0" * 64).encode(ScheduleMachine.since)

    @classmethod
    def of(cls, record: JournalRecord) -> _Message:
        made = cls([], [])
        made._value = record.encode(ScheduleMachine.since)
        return made

    def value(self) -> bytes:
        return self._value

    def partition(self) -> int:
        return 0


def test_who_asked_hears_from_the_scheduler_that_has_the_pool_and_once() -> None:
    a, b = moved()
    asked = Envelope(EventId("c1"), "test", CancelJob.model_validate({"job_id": "waits"}), order=Order(3, 901, 0))
    # Twice in one record, as after a kill of who sent it: the second one says nothing.
    message: Any = _Message([asked, asked], a.feed(asked, asked))
    assert JournalAnswers().decided(message, "c1") is None
    message = _Message([asked], a.feed(asked))
    assert JournalAnswers().decided(message, "c1") is None
    [sent] = a.sent()
    told = b.feed(sent)
    message = _Message([sent], told)
    assert JournalAnswers().decided(message, "c1") == tuple(told)


def test_a_redirected_input_that_is_refused_says_which_job_it_was_about() -> None:
    _, b = moved()
    asked = Envelope(EventId("c1"), "test", CancelJob.model_validate({"job_id": "runs"}))
    event = RedirectedInput.model_validate({"pool": "default", "to_partition": 7, "event": orjson.loads(encode(asked))})
    machine = ScheduleMachine()
    record = _proposed(machine, replace(begin(machine, 1), state=b.state), [_pending(replace(asked, event=event))])
    [refused] = [d for d in record.decisions if isinstance(d, InputRefused)]
    assert (refused.job_id, refused.event_id, refused.refused_type) == ("runs", "c1", CancelJob.event_type)
    assert "is for partition 7, not 1" in refused.reason


def test_a_move_for_which_the_scheduler_has_no_key_is_answered_and_one_in_another_name_is_not() -> None:
    machine, (a, _) = ScheduleMachine(), two()
    for rules, answered in ((VettingRules(True), True), (VettingRules(True, SigningKey.made().public_key), False)):
        record = _proposed(machine, replace(begin(machine, 0), state=a.state), [_vetted(a.state, move().event, None, rules)])
        [refused] = [d for d in record.decisions if isinstance(d, InputRefused)]
        message: Any = _Message.of(record)
        assert JournalAnswers().decided(message, "r") == ((refused,) if answered else None), refused.reason


def test_a_part_of_a_time_that_no_clock_has_moves_no_journal_time() -> None:
    a, _ = two()
    a.feed(move())
    [part] = a.sent()
    event = part.event
    assert isinstance(event, PoolPart)
    late = replace(part, event=event.model_copy(update={"at_ms": a.now_ms + 2 * DAY_MS}))
    machine = ScheduleMachine()
    assert _proposed(machine, begin(machine, 1), [_pending(late)], clock_ms=a.now_ms).now_ms == a.now_ms


def test_a_pool_that_this_program_cannot_take_in_halts_the_partition_and_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    a, _ = two()
    a.feed(move())
    [part] = a.sent()
    machine = ScheduleMachine()

    def broken(_: bytes) -> PoolRecords:
        raise KeyError("a node")

    with monkeypatch.context() as patch:
        patch.setattr("trainhouse.scheduler.core.state.pool_records.pool_records", broken)
        with pytest.raises(StateLost, match="pool default of partition 0 cannot be taken in: KeyError"):
            _proposed(machine, begin(machine, 1), [_pending(part)])
    record = _proposed(machine, begin(machine, 1), [_pending(part)])
    assert any(isinstance(d, PoolTaken) for d in record.decisions)


def test_a_partition_names_pools_that_get_their_requests_by_way_of_it() -> None:
    a, b = moved()
    assert a.machine.condition(a.state).pools == ("default",) and b.machine.condition(b.state).pools == ("default", "other")
