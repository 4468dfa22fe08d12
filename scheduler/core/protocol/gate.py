"""Checks of a journal record before it is appended: it can be written, read back and published.

Holds: a record that passes is read back as exactly what was decided, so every reader folds what `decide` has folded on its own fork; each
of its integers fits in 64 bits; each record that it makes public fits into its topic.
Never: changes a record; lets a failure of any kind pass as another error than NotWritable.
"""

import re
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson

from trainhouse.events.wire.journal import JournalRecord, record_head
from trainhouse.events.wire.project_topics import STATUS_PREFIX
from trainhouse.events.wire.topics import DEAD_LETTERS, STATUS, TOPICS
from trainhouse.scheduler.core.errors import NotWritable
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.core.protocol.publication import Outgoing, outgoing

S = TypeVar("S")
# What Kafka adds to a record and its batch: lengths, timestamps, the checksum.
FRAMING_BYTES: Final = 256
_MOST_BYTES: Final = {t.name: t.max_message_bytes for t in TOPICS}
_MANY_DIGITS: Final = re.compile(rb"[0-9]{19}")
_INT64: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Written:
    """A record with its bytes, and what it makes public: as each reader makes them of the bytes, so its writer need not do it again."""

    record: JournalRecord
    value: bytes
    published: list[Outgoing]


def written(machine: Machine[S], input_topic: str, partition: int, record: JournalRecord, most_bytes: int) -> Written:
    """The record's bytes, once it is known that every reader can take them. Raises NotWritable, which says what of it cannot be."""
    try:
        value = record.encode(machine.since)
    except Exception as error:
        raise NotWritable(f"it cannot be written: {type(error).__name__}: {error}") from error
    if len(value) > most_bytes:
        raise NotWritable(f"its decisions make a journal record of {len(value)} bytes; at most {most_bytes} are allowed")
    try:
        read = JournalRecord.decode(value)
        for item in read.inputs:
            item.envelope  # noqa: B018  # who recomputes the record will ask for it
        _hold_integers(value)
    except Exception as error:
        raise NotWritable(f"it could not be read back: {error}") from error
    # NaN equals nothing, itself included, but is written alike.
    if read != record and read.encode(machine.since) != value:
        raise NotWritable(f"it would be read back as something else: {_difference(record, read)}")
    try:
        published = outgoing(machine, input_topic, partition, read)
    except Exception as error:
        raise NotWritable(f"what it makes public cannot be written: {type(error).__name__}: {error}") from error
    for out in published:
        _hold_size(out)
    return Written(read, value, published)


def _hold_integers(value: bytes) -> None:
    if _MANY_DIGITS.search(value):  # most of these are digits within a hash
        _each_integer(record_head(value), "")


def _each_integer(found: Any, where: str) -> None:
    if isinstance(found, dict):
        for name, part in found.items():
            _each_integer(part, f"{where}.{name}" if where else name)
    elif isinstance(found, list):
        for place, part in enumerate(found):
            _each_integer(part, f"{where}[{place}]")
    elif isinstance(found, int) and found not in _INT64:
        raise NotWritable(f"{where} is {found}, which does not fit in 64 bits")


def _difference(record: JournalRecord, read: JournalRecord) -> str:
    """The first part that differs, with both values, for a person."""
    for name in ("inputs", "decisions"):
        before, after = getattr(record, name), getattr(read, name)
        for place, (a, b) in enumerate(zip(before, after, strict=False)):
            if a != b:
                return f"{name}[{place}] is {str(a)[:300]!r}, and would be {str(b)[:300]!r}"
    return next((name for name in record.__slots__ if getattr(record, name) != getattr(read, name)), "")


def _hold_size(out: Outgoing) -> None:
    topic = STATUS if out.topic.startswith(STATUS_PREFIX) else out.topic
    size = len(out.value) + len(out.key) + sum(len(name) + len(value) for name, value in out.headers) + FRAMING_BYTES
    most = _MOST_BYTES[topic]
    if size > most:
        kind = orjson.loads(out.value).get("type") if out.headers and topic != DEAD_LETTERS else ""
        raise NotWritable(f"its {kind or 'record'} for {out.topic} has {size} bytes; that topic takes at most {most}")
