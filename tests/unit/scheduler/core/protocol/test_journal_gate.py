"""Nothing enters the journal that cannot be written, read back, folded and published."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from tests.support.core_world import Driver, admitted, registered, spec
from tests.support.counting_machine import CountingMachine, Counts, cancel, proposed
from trainhouse.events import (
    CancelJob,
    Envelope,
    Event,
    GangAllocated,
    InvalidEvent,
    JobId,
    JobState,
    JobStatus,
    JobSubmitted,
    NodeDesiredState,
    NodeOrders,
    NodePlacement,
    envelope_of,
)
from trainhouse.events.model.bounds import MOST_DURATION_S
from trainhouse.events.model.decisions import JobProgressed
from trainhouse.events.model.phases import Progress
from trainhouse.events.model.pool import StartReserved
from trainhouse.events.wire.codec import decode, encode
from trainhouse.events.wire.journal import InputRefused, JournalRecord, PlacementFrozen
from trainhouse.events.wire.topics import ALLOCATIONS, CONTROL, DEAD_LETTERS, STATUS
from trainhouse.scheduler.core.protocol.batch import Limits, Pending, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import Folded, begin, fold_bytes
from trainhouse.scheduler.core.protocol.machine import Effect, Input
from trainhouse.scheduler.core.protocol.publication import outgoing
from trainhouse.scheduler.core.schedule import ScheduleMachine

LAST_MOMENT = "9999-12-31T23:59:59.9999Z"


def large_status(job_id: JobId) -> JobStatus:
    """A status within all bounds that its topic does not take."""
    place = {"boot_id": "b", "address": "a" * 100, "devices": ("d",)}
    parts = [NodePlacement.model_validate(place | {"node_id": f"n{n}", "first_rank": n}) for n in range(9_000)]
    return JobStatus(job_id=job_id, status_seq=1, state=JobState.PENDING, allocation=tuple(parts))


class Bad(CountingMachine):
    """Counts as ever, but what it decides about a job of this reason cannot be written, read back, or published."""

    def __init__(self, of: str) -> None:
        self.of = of

    def decide(self, state: Counts, now_ms: int, inputs: Sequence[Input]) -> list[Event]:
        decisions = super().decide(state, now_ms, inputs)
        for n, item in enumerate(inputs):
            event = item.event
            if isinstance(event, CancelJob) and event.reason == "bad":
                decisions[n] = getattr(self, self.of)(event.job_id)
        return decisions

    def surrogate(self, job_id: JobId) -> Event:
        return JobStatus.model_construct(job_id=job_id, status_seq=1, state=JobState.PENDING, reason="\ud800")

    def too_many_digits(self, job_id: JobId) -> Event:
        return JobProgressed(job_id=job_id, progress=Progress.model_construct(step=10**300, epoch=1, at_ms=1))

    def beyond_64_bits(self, job_id: JobId) -> Event:
        return JobStatus.model_construct(job_id=job_id, status_seq=2**63, state=JobState.PENDING)

    def not_what_it_says(self, job_id: JobId) -> Event:
        return JobStatus.model_construct(job_id=job_id, status_seq="7", state=JobState.PENDING)

    def not_a_number(self, job_id: JobId) -> Event:
        return JobStatus(job_id=job_id, status_seq=1, state=JobState.RUNNING, loss=float("nan"))

    def too_large(self, job_id: JobId) -> Event:
        return large_status(job_id)


def fed(machine: Any, values: Sequence[bytes], limits: Limits | None = None) -> tuple[Folded[Any], list[JournalRecord]]:
    """Proposes and folds until nothing waits."""
    limits = limits or Limits()
    waiting: list[Pending] = [pending(n, v, (), limits) for n, v in enumerate(values)]
    folded, records = begin(machine, 0), []
    while folded.cursor < len(values) - 1:
        record = proposed(Proposer(machine, "me", limits), folded, 1000, waiting, 0, tick=False)
        folded, counted = fold_bytes(machine, folded, record.encode())
        assert counted is not None and counted.encode() == record.encode()
        records.append(record)
        assert len(records) < 50, "it does not come to an end"
    return folded, records


@pytest.mark.filterwarnings("ignore:Pydantic serializer")
@pytest.mark.parametrize(
    ("of", "why"),
    [
        ("surrogate", "cannot be written"),
        ("too_many_digits", "read back"),
        ("beyond_64_bits", "does not fit in 64 bits"),
        ("not_what_it_says", "something else: decisions[0]"),
        ("too_large", "takes at most 1048576"),
    ],
)
def test_a_decision_that_no_reader_could_take_is_refused_alone_and_says_why(of: str, why: str) -> None:
    values = [cancel(n, reason="bad" if n == 5 else "") for n in range(9)]
    folded, records = fed(Bad(of), values)
    refused = [d for r in records for d in r.decisions if isinstance(d, InputRefused)]
    assert [d.offset for d in refused] == [5] and why in refused[0].reason
    assert sum(folded.state.counts.values()) == 8
    found = [o for r in records for o in outgoing(CountingMachine(), CONTROL, 0, r)]
    assert [o.value for o in found if o.topic == DEAD_LETTERS] == [values[5]], "the bytes as they came"
    told = [decode(o.value, o.headers).event for o in found if o.topic == STATUS and o.key == b"input-5"]
    assert [(e.state, e.job_id) for e in told if isinstance(e, JobStatus)] == [(JobState.NEEDS_REVIEW, "job0")]


def test_what_is_no_number_is_read_back_as_such_and_passes() -> None:
    """NaN equals nothing, itself included: a diverged loss must not be taken for a record that changed on its way."""
    folded, records = fed(Bad("not_a_number"), [cancel(0, reason="bad")])
    assert not [d for r in records for d in r.decisions if isinstance(d, InputRefused)]
    assert folded.cursor == 0


def test_a_time_that_cannot_be_written_again_is_refused_when_it_is_read() -> None:
    value = orjson.dumps(orjson.loads(cancel(0)) | {"time": LAST_MOMENT})
    with pytest.raises(InvalidEvent, match="years 1 to 9999"):
        decode(value)
    for text in ("9999-12-31T23:59:59.999Z", "0001-01-01T00:00:00Z"):
        again = encode(decode(orjson.dumps(orjson.loads(cancel(0)) | {"time": text})))
        assert encode(decode(again)) == again
    for text in ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"):
        with pytest.raises(InvalidEvent):
            decode(orjson.dumps(orjson.loads(cancel(0)) | {"time": text}))
    folded, records = fed(CountingMachine(), [value, cancel(1)])
    assert folded.cursor == 1 and sum(folded.state.counts.values()) == 1 and len(records) == 1


def submitted(run_time_s: float) -> bytes:
    event = {"job_id": "long", "spec": {"runtime": {"command": ["a"]}, "limits": {"run_time_s": run_time_s}}}
    head = {"specversion": "1.0", "id": "s", "source": "test", "type": JobSubmitted.event_type, "data": event}
    return orjson.dumps(head)


@pytest.mark.parametrize("run_time_s", [1e300, 1.9e16, MOST_DURATION_S * 1.01])
def test_a_run_time_without_end_is_refused_at_the_door_and_bounded_behind_it(run_time_s: float) -> None:
    with pytest.raises(InvalidEvent, match=r"spec\.limits\.run_time_s.*less than or equal to 3155760000"):
        decode(submitted(run_time_s))
    within = decode(encode(envelope_of(admitted("long"), id="a", source="test", now_ms=0)))
    head = orjson.loads(encode(within))
    head["data"]["spec"]["limits"]["run_time_s"] = run_time_s
    read = decode(orjson.dumps(head)).event
    assert read.spec.limits.run_time_s == MOST_DURATION_S, "an older part of the platform let it in"  # type: ignore[attr-defined]


def test_promises_behind_a_run_time_without_end_can_be_read() -> None:
    """A gang that needs what a job of 1e300 s has is promised a start: that time must be one."""
    old = spec(ranks=2).model_copy(update={"limits": spec().limits.model_copy(update={"run_time_s": 1e300})})
    events = [registered("n1"), admitted("long").model_copy(update={"spec": old}), admitted("next", ranks=2)]
    machine = ScheduleMachine()
    folded, promised = begin(machine, 0), []
    waiting = []
    for n, event in enumerate(events):
        envelope = envelope_of(event, id=f"e{n}", source="test", now_ms=0)
        waiting.append(Pending(n, 1, pending(n, encode(envelope), (), Limits()).item))
    for now_ms in range(20_000, 60_000, 5_000):
        record = proposed(Proposer(machine, "me"), folded, now_ms, waiting, 0, tick=True)
        folded, _ = fold_bytes(machine, folded, record.encode())
        assert not [d for d in record.decisions if isinstance(d, PlacementFrozen | InputRefused)]
        promised += [d for d in record.decisions if isinstance(d, StartReserved)]
    assert promised and all(p.start_ms < 2**62 for p in promised)


def test_a_journal_of_before_the_bound_is_read_with_the_bound() -> None:
    value = submitted(60)
    record = JournalRecord(1, "o", 1, 0, (pending(0, value, (), Limits()).item,), (), 0, 1, 1, "0" * 64)
    head = orjson.loads(record.encode())
    head["inputs"][0]["event"]["data"]["spec"]["limits"]["run_time_s"] = 1e300
    read = JournalRecord.decode(orjson.dumps(head))
    assert read.inputs[0].envelope is not None
    assert read.inputs[0].envelope.event.spec.limits.run_time_s == MOST_DURATION_S  # type: ignore[attr-defined]


def test_effects_are_held_to_the_size_of_their_topic_at_ticks_too() -> None:
    class Loud(CountingMachine):
        def effects(self, seq: int, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> list[Effect]:
            return [Effect(STATUS, "j", large_status(JobId("j")), "e")] if any(i.offset is None for i in inputs) else []

    machine = Loud()
    record = proposed(Proposer(machine, "me"), begin(machine, 0), 1, [], 0, tick=True)
    assert isinstance(record.decisions[0], PlacementFrozen)
    assert "trainhouse.job.status.v1 for trainhouse.status has" in record.decisions[0].reason


def test_a_node_with_much_to_run_is_told_all_of_it_in_records_that_its_topic_takes() -> None:
    """24 jobs of 240 KB each: one desired state of 5.8 MB was refused by its topic for ever."""
    env = {f"V{n}": "x" * 2_400 for n in range(100)}
    machine = ScheduleMachine()
    folded = begin(machine, 0)
    events: list[Event] = [registered("n1", slots=24), *[admitted(f"j{n:02}", env=env) for n in range(24)]]
    told: list[Event] = []

    def turn(new: Sequence[Event], now_ms: int) -> None:
        nonlocal folded
        first = folded.cursor + 1
        waiting = [
            pending(first + n, encode(envelope_of(e, id=f"e{first + n}", source="test", now_ms=0)), (), Limits()) for n, e in enumerate(new)
        ]
        while True:
            record = proposed(Proposer(machine, "me"), folded, now_ms, waiting, 0, tick=True)
            assert not [d for d in record.decisions if isinstance(d, PlacementFrozen | InputRefused)]
            folded, _ = fold_bytes(machine, folded, record.encode())
            told.extend(decode(o.value, o.headers).event for o in outgoing(machine, CONTROL, 0, record) if o.topic == ALLOCATIONS)
            if folded.cursor == first + len(new) - 1:
                return

    turn(events, 1_000)
    while sum(isinstance(e, GangAllocated) for e in told) < 24:
        turn([], folded.now_ms + 1_000)
    running = [{"job_id": f"j{n:02}", "attempt": 1, "epoch": 1} for n in range(24)]
    told.clear()
    turn([registered("n1", slots=24, incarnation="inc-2", running=running)], folded.now_ms + 1)
    for _ in range(8):
        turn([], folded.now_ms + 1_000)
    desired = [e for e in told if isinstance(e, NodeDesiredState)]
    orders = [a.job_id for e in told if isinstance(e, NodeOrders) for a in e.allocations]
    assert len(desired) == 1 and not desired[0].allocations
    assert [r.job_id for r in desired[0].keeps] == orders == sorted(f"j{n:02}" for n in range(24)), "each once, in order"
    assert all(e.incarnation == "inc-2" for e in told if isinstance(e, NodeOrders))
    assert not folded.state.ordering and machine.load(machine.dump(folded.state)).ordering == {}


def test_what_is_still_due_to_a_node_is_in_the_snapshot() -> None:
    driver = Driver()
    env = {f"V{n}": "x" * 2_400 for n in range(100)}
    driver.feed(registered("n1", slots=8), *[admitted(f"j{n}", env=env) for n in range(8)])
    running = [{"job_id": f"j{n}", "attempt": 1, "epoch": 1} for n in range(8)]
    again = registered("n1", slots=8, incarnation="inc-2", running=running)
    driver.state = driver.machine.fold(
        driver.state, driver.now_ms, [], driver.machine.decide(driver.state, driver.now_ms, [Input(0, driver_envelope(again))])
    )
    assert len(driver.state.node("n1").orders_due) == 8
    restored = driver.machine.load(driver.machine.dump(driver.state))
    assert restored.ordering == {"n1": None} and restored.node("n1") == driver.state.node("n1")
    # One of them ends before its order went out.
    driver.feed(CancelJob(job_id=JobId("j0")))
    for _ in range(4):
        driver.feed(wait_ms=1_000)
    orders = [a.job_id for d in driver.decisions if isinstance(d, NodeOrders) for a in d.allocations]
    assert orders == [f"j{n}" for n in range(1, 8)] and not driver.state.ordering


def driver_envelope(event: Event) -> Envelope:
    return decode(encode(envelope_of(event, id="again", source="test", now_ms=0)))
