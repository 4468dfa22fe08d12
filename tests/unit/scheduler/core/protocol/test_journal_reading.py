"""Readers of a journal read what they need: an input of before stops none of them, and an older decision is lifted."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.counting_machine import CountingMachine, Counts, cancel, proposed
from tests.support.profiles import examples
from trainhouse.client.kafka.journal_answers import JournalAnswers
from trainhouse.events import Event, InvalidEvent, JobState, JobStatus
from trainhouse.events.model.base import _registry
from trainhouse.events.model.bounds import Count
from trainhouse.events.wire.codec import decode
from trainhouse.events.wire.journal import (
    NO_HASH,
    InputRefused,
    InvalidRecordError,
    JournaledInput,
    JournalRecord,
    decisions_json,
    read_decision,
    record_hash,
)
from trainhouse.events.wire.topics import CONTROL, DEAD_LETTERS, DECISIONS
from trainhouse.events.wire.upcast import UPCASTERS
from trainhouse.projections.exporter.reading import Reading
from trainhouse.projections.ingest.builders.report_rows import readable_inputs
from trainhouse.projections.record import Record
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.protocol.batch import Limits, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import Folded, begin, fold_bytes
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.protocol.publication import outgoing
from trainhouse.scheduler.replay import LogEntry, verify
from trainhouse.scheduler.time_travel import past

MACHINE = CountingMachine()
LIMITS = Limits()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "id", "data", "job_id", "x"]), inner, max_size=4),
    max_leaves=8,
)


def life(records: int = 4) -> list[dict[str, Any]]:
    """The records of a partition as JSON, one input each."""
    folded, made = begin(MACHINE, 0), []
    for number in range(records):
        waiting = [pending(number, cancel(number), (), LIMITS)]
        record = proposed(Proposer(MACHINE, "me"), folded, 1_000 + number, waiting, 0, tick=True)
        folded, _ = fold_bytes(MACHINE, folded, record.encode())
        made.append(orjson.loads(record.encode()))
    return made


def chained(heads: list[dict[str, Any]]) -> list[LogEntry]:
    """Their bytes, with the hashes that they have now."""
    entries: list[LogEntry] = []
    last = heads[0]["previous_hash"]
    for offset, head in enumerate(heads):
        value = orjson.dumps(head | {"previous_hash": last})
        last = record_hash(value)
        entries.append(LogEntry(0, offset, value))
    return entries


def folded(entries: list[LogEntry]) -> Folded[Counts]:
    found = begin(MACHINE, 0)
    for entry in entries:
        found, record = fold_bytes(MACHINE, found, entry.value)
        assert record is not None
        outgoing(MACHINE, CONTROL, 0, record)
    return found


def unknown(event: dict[str, Any]) -> None:
    event["type"] = "trainhouse.job.cancelled-by-a-later-version.v3"


def tightened(event: dict[str, Any]) -> None:
    event["data"]["job_id"] = "An id that was allowed once!"


def without_data(event: dict[str, Any]) -> None:
    del event["data"]


@pytest.mark.parametrize("change", [unknown, tightened, without_data])
def test_an_input_that_cannot_be_read_any_more_stops_no_reader(change: Any) -> None:
    heads = life()
    change(heads[1]["inputs"][0]["event"])
    entries = chained(heads)
    with pytest.raises(InvalidEvent):
        _ = JournalRecord.decode(entries[1].value).inputs[0].envelope
    assert folded(entries).state == folded(chained(life())).state
    assert past(entries, MACHINE, 10**9).partitions[0].state == folded(entries).state
    report = verify(entries, MACHINE)
    assert report.same and (report.records, report.recomputed, report.unreadable, report.folded_only) == (4, 3, 1, 0)
    assert len(report.not_recomputed) == 1 and report.not_recomputed[0].startswith("partition 0, seq 2: an input cannot be read: ")


@settings(max_examples=examples(200))
@given(JSON)
def test_whatever_stands_for_an_old_input_the_record_is_folded_and_counted(event: Any) -> None:
    heads = life(2)
    heads[0]["inputs"][0]["event"] = event
    entries = chained(heads)
    assert folded(entries).seq == 2
    report = verify(entries, MACHINE)
    assert report.records == 2 and report.unreadable + report.recomputed == 2
    readable_inputs(heads[0])


def test_a_refused_input_that_cannot_be_read_is_the_dead_letter_that_it_was_in_the_journal() -> None:
    head = life(1)[0]
    tightened(head["inputs"][0]["event"])
    refusal = InputRefused(offset=0, reason="handling it failed", event_id="input-0")
    head["decisions"] = [{"type": refusal.event_type, "data": refusal.model_dump(mode="json")}]
    record = JournalRecord.decode(orjson.dumps(head))
    with pytest.raises(InvalidEvent):
        decode(record.inputs[0].as_came())
    made = {o.topic: o for o in outgoing(MACHINE, CONTROL, 0, record) if o.topic == DEAD_LETTERS}
    assert orjson.loads(made[DEAD_LETTERS].value) == head["inputs"][0]["event"]


def test_a_readers_input_says_what_it_is_without_being_decoded() -> None:
    event = life(1)[0]["inputs"][0]["event"]
    unknown(event)
    item = JournaledInput.stored({"offset": 7, "event": event})
    assert (item.is_event, item.type, item.event_id, item.job_id) == (True, event["type"], "input-0", "job0")
    with pytest.raises(InvalidEvent):
        _ = Input(7, item).event
    for junk in (None, 3, [], "x", {"type": 4, "id": [], "data": "x"}):
        item = JournaledInput.stored({"offset": 7, "event": junk})
        assert (item.type, item.event_id, item.job_id) == ("", "", "")
    raw = JournaledInput.stored({"offset": 7, "raw": "anVuaw=="})
    assert (raw.is_event, raw.envelope, raw.as_came(), raw.type) == (False, None, b"junk", "")
    with pytest.raises(InvalidRecordError):
        JournalRecord.decode(orjson.dumps(life(1)[0] | {"inputs": [{"offset": 1}]}))


def test_the_projector_and_exporter_pass_over_one_input_alone() -> None:
    head = life(2)[0]
    other = life(2)[1]["inputs"][0]
    tightened(head["inputs"][0]["event"])
    head["inputs"].insert(1, other)
    head["inputs"].insert(0, {"offset": 9, "event": {"type": "trainhouse.attempt.started.v1", "data": {}}})
    assert [item["offset"] for item in readable_inputs(head)] == [0, 1]

    class Message:
        """What of a record's message is read."""

        def value(self) -> bytes:
            return orjson.dumps(head)

        def topic(self) -> str:
            return DECISIONS

        def timestamp(self) -> tuple[int, int]:
            return 1, 5

        def partition(self) -> int:
            return 0

    message: Any = Message()
    assert [str(seen.envelope.id) for seen in Reading().seen_in(message)] == ["input-1"]
    assert JournalAnswers().decided(message, "input-1") is not None and JournalAnswers().decided(message, "no input") is None


OLD, NEW = "trainhouse.testing.counted.v1", "trainhouse.testing.counted.v2"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Event]]:
    """A decision in its second version, of which the first called the count `number`."""
    monkeypatch.setattr(UPCASTERS, "_steps", dict(UPCASTERS._steps))
    monkeypatch.setattr(UPCASTERS, "_back", dict(UPCASTERS._back))

    class Counted(Event, type=NEW):
        job_id: str
        count: Count

    UPCASTERS.add(OLD, NEW, lambda data: {"job_id": data["job_id"], "count": data["number"]})
    yield Counted
    _registry.pop(NEW)


def status(data: Any) -> JobStatus:
    return JobStatus(job_id=data.job_id, status_seq=data.count, state=JobState.PENDING, project="counted")


def test_a_decision_of_an_older_version_is_lifted_for_every_reader(counted: type[Event]) -> None:
    class Lifting(CountingMachine):
        """Folds the second version."""

        def fold(self, state: Counts, now_ms: int, inputs: Any, decisions: Any) -> Counts:
            return super().fold(state, now_ms, inputs, [status(d) if isinstance(d, counted) else d for d in decisions])

    heads = life(2)
    for head, (kind, name) in zip(heads, ((OLD, "number"), (NEW, "count")), strict=True):
        head["decisions"] = [{"type": kind, "data": {"job_id": head["decisions"][0]["data"]["job_id"], name: 5}}]
    found = begin(Lifting(), 0)
    for entry in chained(heads):
        found, record = fold_bytes(Lifting(), found, entry.value)
        assert record is not None and [type(d) for d in record.decisions] == [counted]
    assert found.state.counts == {"job0": 5, "job1": 5}
    assert [type(read_decision(d)) for head in heads for d in head["decisions"]] == [counted, counted]


def test_a_decision_that_no_step_can_lift_halts_the_reader(counted: type[Event]) -> None:
    head = life(1)[0]
    head["decisions"] = [{"type": OLD, "data": {"job_id": "j"}}]
    with pytest.raises(BrokenInvariant, match=r"counted\.v1 cannot be read as trainhouse\.testing\.counted\.v2"):
        fold_bytes(MACHINE, begin(MACHINE, 0), orjson.dumps(head))
    assert readable_inputs(head) == []
    assert Record(DECISIONS, 0, 0, 0, None, b"").value == b""


def test_until_an_update_is_finished_a_decision_is_written_in_its_older_version(counted: type[Event]) -> None:
    since = {NEW: 2}
    UPCASTERS._back[NEW] = (OLD, lambda data: {"job_id": data["job_id"], "number": data["count"]})
    made = counted.model_validate({"job_id": "j", "count": 3})
    for level, kind, data in ((1, OLD, {"job_id": "j", "number": 3}), (2, NEW, {"job_id": "j", "count": 3})):
        record = JournalRecord(1, "o", 1, -1, (), (made,), 0, 2, level, NO_HASH)
        value = record.encode(since)
        assert orjson.loads(value)["decisions"] == [{"type": kind, "data": data}]
        assert JournalRecord.decode(value) == record and decisions_json([made], level, since) == orjson.loads(value)["decisions"]


def test_a_decision_that_only_newer_programs_know_is_not_written_before_the_update_is_finished(counted: type[Event]) -> None:
    class Early(CountingMachine):
        """Decides at its old level what it may not."""

        fold_version = 2
        since: Mapping[str, int] = {NEW: 2}

        def decide(self, state: Counts, now_ms: int, inputs: Any) -> list[Event]:
            return [counted.model_validate({"job_id": "j", "count": 1})]

        def effects(self, seq: int, now_ms: int, inputs: Any, decisions: Any) -> Any:
            return []

    waiting = [pending(0, cancel(0), (), LIMITS)]
    old = replace(begin(Early(), 0), level=1)
    refused = proposed(Proposer(Early(), "me"), old, 1, waiting, 0, tick=False).decisions
    assert len(refused) == 1 and isinstance(refused[0], InputRefused) and "before the update is finished" in refused[0].reason
    new = replace(old, level=2)
    assert [type(d) for d in proposed(Proposer(Early(), "me"), new, 1, waiting, 0, tick=False).decisions] == [counted]
