"""Quick reads of whole topics: a deleted key has no event, and a model that no module has yet is loaded or left to the whole client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from trainhouse.client.quick.quick_topics import NotQuickError, QuickTopics
from trainhouse.events import encode, envelope_of
from trainhouse.events.model.job import PoolCreated


class Record:
    """A record as the library gives it."""

    def __init__(self, key: str, value: bytes | None) -> None:
        self._key, self._value = key.encode(), value

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return self._value


class Records(QuickTopics):
    """A topic of these records."""

    def __init__(self, *records: Record) -> None:
        super().__init__({})
        object.__setattr__(self, "records", records)

    def messages(self, topic: str) -> Iterator[Any]:
        yield from self.records  # type: ignore[attr-defined]


def created(pool: str, type_string: str = "") -> Record:
    event = PoolCreated(pool=pool, partition=1)
    value = encode(envelope_of(event, id="e", source="test", now_ms=1))
    return Record(pool, value.replace(event.event_type.encode(), type_string.encode()) if type_string else value)


POOL = PoolCreated.event_type


def test_a_deleted_key_has_no_newest_event() -> None:
    topics = Records(created("a"), created("b"), Record("a", None), Record("c", None), created("c"))
    assert [event.pool for event in topics.newest_of("t", POOL)] == ["b", "c"]
    assert [key for key, event in topics.read("t", POOL) if event is not None] == [b"a", b"b", b"c"]


def test_a_version_that_is_not_known_here_is_for_the_whole_client() -> None:
    newer = created("a", POOL.removesuffix("1") + "99")
    for ask in (lambda: Records(newer).read("t", POOL), lambda: Records(newer).newest_of("t", POOL)):
        with pytest.raises(NotQuickError):
            ask()


def test_an_event_that_is_not_plain_is_read_by_its_model_and_no_other_is() -> None:
    data = orjson.loads(created("a").value() or b"")
    odd = Record("a", orjson.dumps(data | {"data": data["data"] | {"partition": 1.0}}))
    (_, plain), (_, by_model), (_, next_one) = Records(created("a"), odd, created("b")).read("t", POOL)
    assert isinstance(by_model, PoolCreated) and not isinstance(plain, PoolCreated) and not isinstance(next_one, PoolCreated)
    assert plain.model_dump(mode="json") == by_model.model_dump(mode="json")


def test_an_event_of_an_older_writer_needs_no_model() -> None:
    older = Record("a", orjson.dumps(orjson.loads(created("a").value() or b"") | {"data": {"pool": "a", "partition": 1}}))
    (_, found), (_, whole) = Records(older, created("a")).read("t", POOL)
    assert not isinstance(found, PoolCreated) and found.model_dump(mode="json") == whole.model_dump(mode="json")


def test_events_of_other_types_are_passed_over() -> None:
    assert Records(created("a")).read("t", "trainhouse.project.applied.v1") == []


def test_a_record_without_the_attributes_of_an_event_is_for_the_whole_client() -> None:
    for value in (b"{}", b"[]", b"none", b'{"specversion": "1.0", "data": {}}'):
        with pytest.raises(NotQuickError):
            Records(Record("a", value)).read("t", POOL)
