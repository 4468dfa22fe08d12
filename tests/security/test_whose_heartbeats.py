"""Heartbeats in another's name: no table shows them, whoever wrote them and whenever their time says that it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.security.test_whose_nodes import A, B, beat
from tests.support.fakes.memory_source import MemoryLog
from tests.support.tables.projecting import alike_however_cut, drain
from trainhouse.events import NodeHeartbeat, NodeKeyed, encode, envelope_of
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS, decode
from trainhouse.projections.ingest.node_keys import KafkaNodeKeys, NodeKeys
from trainhouse.projections.record import Record
from trainhouse.projections.store.clickhouse import ConnectClickHouse
from trainhouse.projections.store.table_hashes import TableHash, table_hashes

SHOWN = "SELECT node_id, incarnation FROM node_facts FINAL WHERE fact = 'beat' ORDER BY node_id"


def keyed(node_id: str, key: SigningKey | None, at_ms: int = 10, pool: str = "default") -> NodeKeyed:
    about: dict[str, Any] = {"node_id": node_id, "pool": pool, "public_key": key.public_key if key else "", "at_ms": at_ms}
    return NodeKeyed.model_validate(about)


def said(node_id: str, key: SigningKey | None, at_ms: int = 100, by: str = "own", topic: str = topics.HEARTBEATS) -> Record:
    """A record of heartbeats, signed for a topic."""
    event = beat(node_id, at_ms).model_copy(update={"at_ms": at_ms, "incarnation": by})
    value = encode(envelope_of(event, id=f"{node_id}-{at_ms}-{by}", source="s", now_ms=at_ms))
    signature = () if key is None else (key.header(topic, value),)
    return Record(topics.HEARTBEATS, 0, 0, at_ms, node_id.encode(), value, (*HEADERS, *signature))


def refused(keys: NodeKeys, record: Record) -> bool:
    found = beat_of(record)
    return bool(keys.why_not_theirs(found, record))


def beat_of(record: Record) -> NodeHeartbeat:
    event = decode(record.value, record.headers).event
    assert isinstance(event, NodeHeartbeat)
    return event


def known(*events: NodeKeyed, required: bool = False) -> NodeKeys:
    keys = NodeKeys(required)
    for event in events:
        keys.note(event)
    return keys


def test_a_node_with_a_key_is_spoken_for_by_that_key_alone() -> None:
    keys = known(keyed("a", A), keyed("b", B))
    assert not refused(keys, said("a", A)) and not refused(keys, said("b", B))
    assert refused(keys, said("a", B)) and refused(keys, said("a", None))
    assert refused(keys, said("a", A, topic=topics.CONTROL)), "a signature for another topic"
    taken = said("a", A).headers
    assert refused(keys, replace(said("a", B, 101), headers=taken)), "another record's signature"


def test_before_it_has_a_key_a_node_is_spoken_for_by_all_or_by_whom_signs() -> None:
    assert not refused(known(), said("a", None)) and not refused(known(), said("a", A))
    assert refused(known(required=True), said("a", None)) and not refused(known(required=True), said("a", A))


def test_a_key_in_another_pool_is_the_nodes_here_too() -> None:
    keys = known(keyed("a", A, pool="other"))
    assert not refused(keys, said("a", A)) and refused(keys, said("a", B)) and refused(keys, said("a", None))


def test_what_was_signed_before_a_key_was_forgotten_is_shown_and_nothing_that_it_signs_after() -> None:
    keys = known(keyed("a", A, 10), keyed("a", None, 50), keyed("a", B, 60))
    assert not refused(keys, said("a", A, at_ms=49)) and not refused(keys, said("a", B, at_ms=61))
    assert refused(keys, said("a", A, at_ms=61)), "the key that was forgotten"
    assert refused(keys, said("a", None, at_ms=55)), "without a key in between, for which it had none"
    assert not refused(keys, said("a", B, at_ms=40)), "by its key of now, with a clock that is behind"
    assert refused(keys, said("a", None, at_ms=1)) and refused(keys, said("a", B.made(), at_ms=1)), "of a time before its first key"


def test_what_is_noted_again_or_late_changes_nothing() -> None:
    events = [keyed("a", A, 10), keyed("a", None, 50), keyed("a", B, 60)]
    for order in (events, events[::-1], [*events, *events]):
        keys = known(*order)
        assert not refused(keys, said("a", B, at_ms=90)) and refused(keys, said("a", A, at_ms=90))


def told() -> MemoryLog:
    log = MemoryLog()
    records = (said("a", A), said("b", B), said("a", B, 200, "thief"), said("b", None, 200, "thief"), said("b", B, 101, "own"))
    for record in records:
        log.append(record.topic, record.value, key=record.key, timestamp_ms=record.timestamp_ms, headers=record.headers)
    return log


def hashes(clickhouse: ConnectClickHouse) -> list[TableHash]:
    assert clickhouse.rows(SHOWN) == [("a", "own"), ("b", "own")], "the thief's are newer, and would have taken their place"
    return table_hashes(clickhouse)


def test_no_table_shows_one_however_it_is_replayed(tmp_path: Path) -> None:
    keys, log = known(keyed("a", A), keyed("b", B)), told()
    alike_however_cut(
        tmp_path, lambda clickhouse, at_once: drain("beats", clickhouse, log, at_once, keys), hashes, (2, 3), "before", (5, 5)
    )


@pytest.fixture
def followed(kafka: str) -> Iterator[tuple[KafkaNodeKeys, Callable[[NodeKeyed], None]]]:
    settings = KafkaSettings(bootstrap=kafka)
    create_topics(settings)
    producer = EventProducer(settings)

    def tell(event: NodeKeyed) -> None:
        producer.send(topics.NODE_KEYS, envelope_of(event, id=f"{event.node_id}:{time.time_ns()}", source="s", now_ms=1))
        producer.flush()

    keys = KafkaNodeKeys(settings)
    yield keys, tell
    keys.close()


@pytest.mark.stack
def test_keys_are_followed_as_they_are_given(followed: tuple[KafkaNodeKeys, Callable[[NodeKeyed], None]]) -> None:
    keys, tell = followed
    node_id = f"node-{time.time_ns()}"
    keys.follow()
    assert not refused(keys, said(node_id, B))
    for key, other in ((A, B), (None, A), (B, A)):
        tell(keyed(node_id, key, time.time_ns() // 1_000_000))
        keys.follow()
        now_ms = time.time_ns() // 1_000_000 + 1
        assert refused(keys, said(node_id, other, now_ms)) is (key is not None)
        assert not refused(keys, said(node_id, key, now_ms))
        assert keys.assigned == [], "between two looks nothing is fetched: brokers would be asked 50 times a second"


def test_without_brokers_a_start_fails_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainhouse.projections.ingest.node_keys._LOOK_TIMEOUT_S", 0.5)
    keys = KafkaNodeKeys(KafkaSettings(bootstrap="127.0.0.1:1"))
    with pytest.raises(BusUnavailableError, match=f"{topics.NODE_KEYS}-0"):
        keys.follow()
    keys.close()
