"""Quick reads of whole topics: a deleted key has no event, and a model that no module has yet is loaded or left to the whole client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from trainhouse.client.quick.quick_topics import NotQuickError, QuickTopics
from trainhouse.events import encode, envelope_of
from trainhouse.events.model.base import Event
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


def test_a_deleted_key_has_no_newest_event() -> None:
    topics = Records(created("a"), created("b"), Record("a", None), Record("c", None), created("c"))
    assert [event.pool for event in topics.newest("t", PoolCreated)] == ["b", "c"]
    assert [key for key, _ in topics.events("t", PoolCreated)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("kind", [PoolCreated, Event])
def test_a_version_that_is_not_known_here_is_for_the_whole_client(kind: type[Event]) -> None:
    newer = created("a", PoolCreated.event_type.removesuffix("1") + "99")
    for ask in (lambda: Records(newer).events("t", kind), lambda: Records(newer).newest("t", kind)):
        with pytest.raises(NotQuickError):
            ask()


# A process that knows projects alone.
READS_PROJECTS = """
import sys
from trainhouse.client.quick.quick_topics import NotQuickError, QuickTopics
from trainhouse.events.model.base import Event, registered
from trainhouse.events.model.project import ProjectApplied

class Record:
    def key(self): return b"a"
    def value(self): return sys.argv[1].encode()

QuickTopics.messages = lambda self, topic: iter([Record()])
assert registered("trainhouse.pool.created.v1") is None
try:
    print(len(QuickTopics({}).newest("t", ProjectApplied)))
except NotQuickError:
    print("not quick")
print(*(type(event).__name__ for _, event in QuickTopics({}).events("t", Event)))
"""


def test_a_model_that_no_module_has_yet_is_never_passed_over() -> None:
    value = created("a").value()
    assert value is not None
    done = subprocess.run([sys.executable, "-c", READS_PROJECTS, value.decode()], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:2] == ["not quick", "PoolCreated"], done.stderr
