"""Rows of pools, policies, closed nodes and held start times; and that the newest word about each is the one that stays."""

from __future__ import annotations

from typing import Any

from trainhouse.events import ChangeRefused, NodeRestricted, PolicyApplied, PoolCreated
from trainhouse.events.model.base import Event
from trainhouse.events.model.pool import StartReserved, StartUnreserved
from trainhouse.events.wire import topics
from trainhouse.events.wire.envelope import Order, envelope_of
from trainhouse.projections.ingest.lanes import FACTS
from trainhouse.projections.record import Record
from trainhouse.projections.rows import pools
from trainhouse.projections.store.tables import TABLES

NOW = 1_800_000_000_000


def rows_of(event: Event, topic: str, ordinal: int = 0, now_ms: int = NOW) -> list[tuple[str, dict[str, Any]]]:
    assert pools.rows in FACTS[topic]
    envelope = envelope_of(event, id="e1", source="test", now_ms=now_ms, order=Order(0, 7, ordinal))
    record = Record(topic, 0, 3, NOW, b"k", b"{}")
    found = list(pools.rows(envelope, record))
    assert found == list(pools.rows(envelope, record))
    assert {r.table for r in found} <= set(TABLES)
    return [(r.table, r.values) for r in found]


def restricted(restriction: str, at_ms: int = NOW, **more: Any) -> NodeRestricted:
    return NodeRestricted.model_validate({"node_id": "n", "pool": "p", "restriction": restriction, "at_ms": at_ms} | more)


def test_a_pool_is_a_row() -> None:
    event = PoolCreated.model_validate({"pool": "p", "partition": 2})
    assert rows_of(event, topics.POOLS) == [("pools_rows", {"pool": "p", "partition": 2, "created_at": NOW})]


def test_every_version_of_a_policy_stays_with_its_text_and_its_author() -> None:
    about = {"pool": "p", "policy": {"name": "x"}, "text": "name: x\n", "version": 3, "user": "ada", "applied_at_ms": NOW}
    [(table, row)] = rows_of(PolicyApplied.model_validate(about), topics.POLICIES)
    assert (table, row["pool"], row["version"], row["name"], row["user"]) == ("policies_rows", "p", 3, "x", "ada")
    assert row["text"] == "name: x\n" and '"order":"score"' in row["json"]


def test_a_refused_change_is_known_by_its_event() -> None:
    event = ChangeRefused.model_validate({"pool": "p", "event_id": "ask-1", "reason": "no such device", "refused_at_ms": NOW})
    [(table, row)] = rows_of(event, topics.POLICIES)
    assert (table, row["event_id"], row["reason"]) == ("refused_changes_rows", "ask-1", "no such device")


def test_the_last_restriction_of_a_node_is_the_newest_also_within_one_record() -> None:
    steps = [restricted("CORDONED"), restricted("NONE"), restricted("DRAINING", deadline_ms=NOW + 5), restricted("NONE", NOW + 1)]
    found = [rows_of(event, topics.VERDICTS, ordinal)[0][1] for ordinal, event in enumerate(steps[:3])]
    found.append(rows_of(steps[3], topics.VERDICTS)[0][1])
    assert [r["version"] for r in found] == sorted({r["version"] for r in found})
    assert (found[2]["restriction"], found[2]["deadline_at"]) == ("DRAINING", NOW + 5)
    assert all(0 < r["version"] < 2**64 for r in found)


def test_a_start_time_is_held_until_it_is_not() -> None:
    held = StartReserved.model_validate({"job_id": "j", "start_ms": NOW + 9, "node_ids": ["n"], "made_at_ms": NOW})
    [(table, row)] = rows_of(held, topics.RESERVATIONS)
    [(_, gone)] = rows_of(StartUnreserved.model_validate({"job_id": "j"}), topics.RESERVATIONS, 1)
    assert (table, row["held"], row["start_at"], row["node_ids"]) == ("reservations_rows", 1, NOW + 9, ["n"])
    assert (gone["held"], gone["start_at"], gone["node_ids"]) == (0, None, [])
    assert gone["version"] > row["version"]
