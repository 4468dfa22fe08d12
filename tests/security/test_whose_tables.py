"""Reports in another's name on control: the tables show none of them, and what the named one said stays, however it is replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from tests.security.test_whose_heartbeats import keyed, known
from tests.security.test_whose_nodes import STRICT, A, B, Control, registered, stopped
from tests.security.test_whose_telemetry import checkpoint
from tests.support.fakes.memory_source import MemoryLog
from tests.support.tables.projecting import alike_however_cut, drain, engine_in, spec_of
from tests.support.tables.senders import senders_of
from trainhouse.events import AttemptStopped, CheckpointCompleted, CheckpointRestored, Event, NodeRegistered, encode, envelope_of
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS
from trainhouse.projections.exporter.followed_topics import FOLLOWED
from trainhouse.projections.exporter.reading import Reading
from trainhouse.projections.ingest.node_keys import NodeKeys
from trainhouse.projections.record import Record
from trainhouse.projections.store.clickhouse import ConnectClickHouse
from trainhouse.projections.store.schema import read_schemas
from trainhouse.projections.store.table_hashes import TableHash, table_hashes
from trainhouse.projections.store.tables import TABLES

NODES = "SELECT node_id, address FROM node_facts FINAL WHERE fact = 'registered' ORDER BY node_id"
STOPS = "SELECT node_id, source_topic, source_offset FROM attempt_facts FINAL WHERE fact = 'stopped' ORDER BY node_id"


def at(node_id: str, key: SigningKey, address: str) -> Event:
    return registered(node_id, key, address).model_copy(update={"address": address})


def told() -> tuple[MemoryLog, MemoryLog]:
    """The journal and the control topic: of two nodes, and of a thief who has the second one's key."""
    said: list[list[tuple[Event, SigningKey | None]]] = [
        [(at("a", A, "own"), A), (at("b", B, "own"), B)],
        # Newer, so that they would take the place of what node a said.
        [(at("a", B, "thief"), B), (at("a", A, "thief"), B), (stopped("a"), B), (stopped("a"), None)],
        [(stopped("b"), B)],
    ]
    c, journal, control = Control(STRICT), MemoryLog(), MemoryLog()
    journal.append(topics.DECISIONS, c.record.encode())
    control.skip(topics.CONTROL)
    for number, batch in enumerate(said):
        refused = c.take(*batch)
        assert len(refused) == (4 if number == 1 else 0)
        journal.append(topics.DECISIONS, c.record.encode())
        for event, _ in batch:
            control.append(topics.CONTROL, encode(envelope_of(event, id=f"e{control.ends[(topics.CONTROL, 0)]}", source="s", now_ms=1)))
    return journal, control


def run(clickhouse: Any, journal: MemoryLog, at_once: int) -> None:
    drain("reports", clickhouse, journal, at_once)


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    monkeypatch.setattr("tests.support.tables.projecting.of_lane", lambda log, spec: log)
    return told()[0]


def shown(clickhouse: ConnectClickHouse) -> list[TableHash]:
    assert clickhouse.rows(NODES) == [("a", "own"), ("b", "own")]
    assert clickhouse.rows(STOPS) == [("b", topics.CONTROL, 7)]
    assert clickhouse.rows("SELECT count() FROM events_rows FINAL") == [(4,)], "the pool's, two registrations, one stop"
    return table_hashes(clickhouse)


def test_what_was_refused_is_in_no_table_and_hides_nothing(journal: MemoryLog, tmp_path: Path) -> None:
    alike_however_cut(tmp_path, lambda clickhouse, at_once: run(clickhouse, journal, at_once), shown, (2, 3, 4), "after", (2, 1))


def test_another_owners_record_of_the_same_seq_is_not_shown(journal: MemoryLog, tmp_path: Path) -> None:
    journal.append(topics.DECISIONS, journal.records[1].value)
    with engine_in(tmp_path / "clickhouse") as clickhouse:
        run(clickhouse, journal, 3)
        shown(clickhouse)


def test_control_itself_makes_no_rows(tmp_path: Path) -> None:
    with engine_in(tmp_path / "clickhouse") as clickhouse:
        built = spec_of("facts").builder(read_schemas(clickhouse, TABLES), NodeKeys(), senders_of()).build(told()[1].records, {})
        assert built.tables == {} and topics.CONTROL not in spec_of("facts").topics


def test_traces_and_lineage_are_told_what_the_scheduler_took(journal: MemoryLog) -> None:
    reading = Reading()

    def seen(topic: str, record: Record) -> list[Event]:
        made = Message(topic=topic, partition=0, offset=record.offset, value=record.value, timestamp=(1, 5), headers=list(HEADERS))
        return [each.envelope.event for each in reading.seen_in(made)]

    assert topics.CONTROL not in FOLLOWED
    found = [seen(topics.DECISIONS, record) for record in journal.records]
    took = [event for events in found for event in events]
    assert [e.address for e in took if isinstance(e, NodeRegistered)] == ["own", "own"]
    assert [e.node_id for e in took if isinstance(e, AttemptStopped)] == ["b"]
    again = [seen(topics.DECISIONS, record) for record in journal.records]
    assert again == [[]] * len(again), "another owner's records of the same seqs"
    junk = [Record(topics.DECISIONS, 0, 99, 0, None, value) for value in (None, b"", b"{}", b'{"seq": 77, "inputs": [], "decisions": []}')]
    assert [seen(topics.DECISIONS, record) for record in junk] == [[]] * 4


def restored(epoch: int = 1) -> CheckpointRestored:
    about = {"job_id": "j", "attempt": 0, "epoch": epoch, "commit": 1, "step": 1, "uri": "s3://x", "restore_s": 1.0, "at_ms": 1}
    return CheckpointRestored.model_validate(about)


@pytest.mark.parametrize(
    ("key", "required", "signers"),
    [(A, True, {"a"}), (B, True, {"b"}), (None, True, set()), (None, False, None), (SigningKey.made(), False, set())],
)
def test_what_an_attempt_began_from_is_told_with_the_nodes_that_signed_it(
    key: SigningKey | None, required: bool, signers: set[str] | None
) -> None:
    value = encode(envelope_of(restored(), id="r", source="s", now_ms=1))
    headers = [*HEADERS, *([] if key is None else [key.header(topics.CHECKPOINTS, value)])]
    reading = Reading(known(keyed("a", A), keyed("b", B), required=required))
    made = Message(topic=topics.CHECKPOINTS, partition=0, offset=0, value=value, timestamp=(1, 50), headers=headers)
    (found,) = reading.seen_in(made)
    assert found.signers == signers
    forged = Message(topic=topics.CHECKPOINTS, partition=0, offset=1, value=value + b" ", timestamp=(1, 50), headers=headers)
    assert [seen.signers for seen in reading.seen_in(forged)] == [None if key is None and not required else set()]
    completed = encode(envelope_of(checkpoint(1), id="c", source="s", now_ms=1))
    copy = Message(topic=topics.CHECKPOINTS, partition=0, offset=2, value=completed, timestamp=(1, 50), headers=list(HEADERS))
    assert reading.seen_in(copy) == [], "the journal has it"


def test_checkpoints_of_a_job_that_the_scheduler_does_not_know_are_no_rows_by_its_journal(journal: MemoryLog, tmp_path: Path) -> None:
    """A node may sign for itself alone: what it says of another's job that is over is in the journal, and counts for nothing."""
    c = Control(STRICT)
    assert c.take((at("b", B, "own"), B)) == []
    log = MemoryLog()
    log.append(topics.DECISIONS, c.record.encode())
    assert c.take((checkpoint(9, job_id="over"), B)) == [], "the scheduler cannot tell"
    log.append(topics.DECISIONS, c.record.encode())
    with engine_in(tmp_path / "clickhouse") as clickhouse:
        drain("reports", clickhouse, log)
        assert clickhouse.rows("SELECT count() FROM checkpoint_facts") == [(0,)]
    assert not [e for r in log.records for e in Reading().seen_in(message(r)) if isinstance(e.envelope.event, CheckpointCompleted)]


def message(record: Record) -> Message:
    return Message(topic=record.topic, partition=0, offset=record.offset, value=record.value, timestamp=(1, 5), headers=list(HEADERS))
