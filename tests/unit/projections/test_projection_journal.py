"""Rows of the journal: each record that counts once, also where records cannot be read, are missing, or are nobody's."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest

from trainhouse.events import ChangeJob, CordonNode, Envelope, Event, EventId, JobId, JobState, JobStatus, NodeRestricted, Order
from trainhouse.events.model.decisions import JobRetuned, TokenSeen
from trainhouse.events.model.handover import PoolFence, PoolPart
from trainhouse.events.wire.journal import ClockTicked, InputRefused, JournaledInput, JournalRecord, record_hash
from trainhouse.events.wire.request_decisions import request_decisions
from trainhouse.events.wire.topics import DECISIONS
from trainhouse.projections.ingest.builders import decision_rows
from trainhouse.projections.ingest.builders.decision_rows import JournalBuilder, requests_by_decision
from trainhouse.projections.ingest.builders.report_rows import readable_inputs
from trainhouse.projections.ingest.builders.row_batch import Built
from trainhouse.projections.record import Record, Row
from trainhouse.projections.rows.dead_letters import unreadable_row


def of(seq: int, offset: int, *, owner: str = "o", partition: int = 0) -> Record:
    value = JournalRecord(seq, owner, 1000 + seq, 0, (), (ClockTicked(),), 0, 1, 1, "0" * 64).encode()
    return Record(DECISIONS, partition, offset, 0, None, value)


def junk(offset: int, value: bytes | None = b"no record") -> Record:
    return Record(DECISIONS, 0, offset, 0, None, value)


def builder(emptied: frozenset[str] = frozenset()) -> JournalBuilder:
    letter = unreadable_row(junk(0), "why").values
    letters = pa.schema([(name, pa.int64() if isinstance(value, int) else pa.string()) for name, value in letter.items()])
    seqs = pa.schema([("seq", pa.uint64()), ("source_offset", pa.uint64())])
    rows = lambda envelope, record: [Row("seqs", {"seq": envelope.order.seq})]  # noqa: E731
    return JournalBuilder({DECISIONS: (rows,)}, {"seqs": seqs, "dead_letters_rows": letters}, emptied)


def told(records: list[Record], at_once: int, made: JournalBuilder | None = None) -> tuple[list[tuple[int, int]], list[str], int]:
    """(seq, offset) of what counted, the gaps, and how many dead letters: the records in batches of `at_once`."""
    made, marks = made or builder(), dict[str, int]()
    rows: list[tuple[int, int]] = []
    gaps: list[str] = []
    dead = 0
    for first in range(0, len(records), at_once):
        batch = records[first : first + at_once]
        before = dict.fromkeys(made.streams(batch), 0) | marks
        built: Built = made.build(batch, before)
        assert made.build(batch, before) == built, "a replay gives the same"
        if "seqs" in built.tables:
            rows += [(r["seq"], r["source_offset"]) for r in built.tables["seqs"].to_pylist()]
        gaps += built.gaps
        dead += built.unreadable
        assert built.marks.keys() == before.keys() and all(mark >= 0 for mark in built.marks.values())
        marks |= built.marks
    return rows, gaps, dead


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_of_two_owners_the_first_counts_and_what_came_twice_once(at_once: int) -> None:
    records = [of(1, 0), of(2, 1), of(2, 2, owner="late"), of(3, 3), of(1, 4, owner="very late"), of(1, 9, partition=1), of(4, 5)]
    assert told(records, at_once) == ([(1, 0), (2, 1), (3, 3), (1, 9), (4, 5)], [], 0)


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_the_tables_go_on_behind_a_gap_and_say_what_is_missing(at_once: int) -> None:
    rows, gaps, dead = told([of(1, 0), junk(1), of(3, 2), of(4, 3), of(5, 4), of(9, 5), of(10, 6), of(11, 7)], at_once)
    assert rows == [(1, 0), (4, 3), (5, 4), (10, 6), (11, 7)] and dead == 1
    assert [gap.split(" decided")[0].split("seq ")[1] for gap in gaps] == ["2 to 3", "6 to 9"]
    assert all(f"{DECISIONS}-0" in gap and "rebuild" in gap for gap in gaps)


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_a_record_that_is_nobodys_stops_nothing(at_once: int) -> None:
    far = 2**63
    records = [of(far, 0), of(1, 1), of(2, 2), of(far, 3), of(-5, 4), junk(5, None), junk(6, b"[]"), of(3, 7), of(7, 8), of(4, 9)]
    assert told(records, at_once) == ([(1, 1), (2, 2), (3, 7), (4, 9)], [], 1)


def test_a_record_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read, parsed = decision_rows.record_head, list[bytes | None]()
    monkeypatch.setattr(decision_rows, "record_head", lambda value: (parsed.append(value), read(value))[1])
    made = builder()
    records = [of(n + 1, n) for n in range(10)]
    built = made.build(records, dict.fromkeys(made.streams(records), 0))
    assert built.tables["seqs"].num_rows == len(parsed) == 10


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_an_emptied_record_makes_no_row_and_leaves_no_gap(at_once: int) -> None:
    records = [of(1, 0), of(2, 1), of(3, 2), of(4, 3)]
    emptied = frozenset({record_hash(records[1].value or b"")})
    assert told(records, at_once, builder(emptied)) == ([(1, 0), (3, 2), (4, 3)], [], 0)


@pytest.mark.parametrize(
    "head",
    [
        {"seq": 1, "owner": "x", "now_ms": 1, "decisions": []},
        {"seq": 1, "inputs": [], "now_ms": 1},
        {"seq": 1, "owner": "x", "now_ms": 1, "decisions": [{"type": "trainhouse.input.refused.v1"}], "inputs": []},
        {"seq": 1, "now_ms": 1, "decisions": [], "inputs": [{"offset": 3, "event": {"type": "trainhouse.attempt.started.v1", "data": {}}}]},
        {"seq": 1, "now_ms": 1, "decisions": [7], "inputs": "x"},
    ],
)
def test_the_lane_of_reports_goes_on_behind_a_record_of_another_shape(head: dict[str, Any]) -> None:
    assert readable_inputs(head) == []


def test_a_decision_belongs_to_a_request_only_where_it_answers_one() -> None:
    """A tick's and those on reports may stand behind the last request of a record."""
    asked = Envelope(EventId("asked"), "directory", ChangeJob.model_validate({"job_id": "j", "priority": 3}), order=Order(0, 7, 0))
    retuned = JobRetuned.model_validate({"job_id": "j", "priority": 3, "limits": {}})
    status = JobStatus(job_id=JobId("k"), status_seq=1, state=JobState.PENDING, updated_at_ms=1)
    decisions = [TokenSeen(partition=0, seq=7, ordinal=0), retuned, status, InputRefused(offset=2, reason="broken", event_id="other")]
    stored = orjson.loads(JournalRecord(1, "o", 1, 1, (JournaledInput(1, asked),), tuple(decisions), 0, 1, 9, "0" * 64).encode())
    assert requests_by_decision(stored["inputs"], decisions) == {0: "asked", 1: "asked"}


def test_a_node_that_a_person_closes_names_the_request_and_one_that_the_platform_closes_names_none() -> None:
    asked = CordonNode.model_validate({"pool": "p", "node_id": "n", "user": "ada"})
    inputs = [JournaledInput(1, Envelope(EventId("asked"), "directory", asked, order=Order(0, 7, 0)))]

    def closed(by: str) -> Event:
        return NodeRestricted.model_validate({"node_id": "n", "pool": "p", "restriction": "CORDONED", "by": by, "at_ms": 1})

    decisions = [TokenSeen(partition=0, seq=7, ordinal=0), closed("ada"), closed("trainhouse")]
    stored = orjson.loads(JournalRecord(1, "o", 1, 1, tuple(inputs), tuple(decisions), 0, 1, 9, "0" * 64).encode())
    assert requests_by_decision(stored["inputs"], decisions) == {0: "asked", 1: "asked"}


@pytest.mark.parametrize("kind", [PoolPart, PoolFence])
def test_what_another_scheduler_sends_takes_no_requests_token(kind: type[Event]) -> None:
    about = {"pool": "p", "move": "m", "from_partition": 0, "to_partition": 1, "at_ms": 1, "number": 0, "of": 2, "sha256": "", "data": ""}
    sent = kind.model_validate({name: value for name, value in about.items() if name in kind.model_fields})
    asked = ChangeJob.model_validate({"job_id": "j", "priority": 3})
    order = Order(0, 7, 0)  # two numberings, of the scheduler's and of the directory's effects
    inputs = [JournaledInput(n, Envelope(EventId(i), "s", e, order=order)) for n, (i, e) in enumerate([("sent", sent), ("asked", asked)])]
    decisions = [
        TokenSeen(partition=0, seq=7, ordinal=0, by_scheduler=True),
        TokenSeen(partition=0, seq=7, ordinal=0),
        JobRetuned.model_validate({"job_id": "j", "priority": 3, "limits": {}}),
    ]
    assert list(request_decisions(inputs, decisions)) == [("sent", range(1)), ("asked", range(1, 3))]
