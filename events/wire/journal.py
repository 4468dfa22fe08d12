"""The journal's records: what an owner decided from which inputs, one Kafka record each, chained by hashes.

Holds: a record's hash is that of its bytes on the wire; encoding is deterministic; inputs travel whole, so a record explains itself. Who
reads one reads its decisions, in their newest version; an input only where it is asked for.
Never: folds, or checks the chain of hashes (`scheduler.core.protocol.journal` does, and says which records count for one that folds).
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import orjson
from pydantic import Field

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.base import Event, event_class
from trainhouse.events.model.bounds import Count, ShortText, SmallCount, read_stored
from trainhouse.events.model.errors import EventError, InvalidEvent
from trainhouse.events.wire.journaled_input import JournaledInput
from trainhouse.events.wire.upcast import UPCASTERS

NO_HASH = "0" * 64
ALWAYS: Mapping[str, int] = {}
MAX_REASON_CHARS = 2048


class ClockTicked(Event, type="trainhouse.clock.ticked.v1"):
    """Time went by: the input without an offset that an owner makes. The time itself is the record's `now_ms`."""


class InputRefused(Event, type="trainhouse.input.refused.v1"):
    """The input at `offset` cannot be handled; every reader of the journal skips it.

    `job_id` and `refused_type` are what could be read of it, empty where nothing could.
    """

    offset: Count = Field(description="offset of the input")
    reason: str = Field(max_length=MAX_REASON_CHARS)
    event_id: ShortText = ""
    forged: str = Field("", max_length=256, description="in whose name it came, where its signature was refused")
    job_id: ShortText = Field("", exclude_if=is_absent)
    refused_type: ShortText = Field("", exclude_if=is_absent, description="event type of the input")


class PlacementFrozen(Event, type="trainhouse.placement.frozen.v1"):
    """Scheduling itself failed: nothing new is placed on this partition until other code decides. A person must look."""

    reason: str = Field(max_length=MAX_REASON_CHARS)
    decide_version: SmallCount = Field(description="version of decisions that may not place")


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One step of a partition's state. `cursor` is the offset of the last input that the state includes after it."""

    seq: int
    owner: str
    now_ms: int
    cursor: int
    inputs: tuple[JournaledInput, ...]
    decisions: tuple[Event, ...]
    published_up_to: int
    decide_version: int
    fold_version: int
    previous_hash: str

    @property
    def ticked(self) -> bool:
        """Whether time went by in it, so that gangs could be placed. Other inputs of the owner's own have no offset either."""
        return any(i.type == ClockTicked.event_type for i in self.inputs)

    def encode(self, since: Mapping[str, int] = ALWAYS) -> bytes:
        """The record's bytes: readable JSON, keys in this order; equal records have equal bytes.

        `since`: type strings of decisions and the fold_version from which they may be written; a lower one is given an older version of it.
        Raises InvalidEvent where there is none.
        """
        return orjson.dumps(
            {
                "seq": self.seq,
                "owner": self.owner,
                "now_ms": self.now_ms,
                "cursor": self.cursor,
                "inputs": [i.as_json() for i in self.inputs],
                "decisions": [_decision_json(d, self.fold_version, since) for d in self.decisions],
                "published_up_to": self.published_up_to,
                "decide_version": self.decide_version,
                "fold_version": self.fold_version,
                "previous_hash": self.previous_hash,
            }
        )

    @classmethod
    def decode(cls, value: bytes | None) -> "JournalRecord":
        """Reads a record, but for its inputs: each is decoded when it is asked for.

        Raises InvalidRecordError, which names what is wrong: a journal's bytes are never skipped.
        """
        return cls.of_head(record_head(value))

    @classmethod
    def of_head(cls, head: Mapping[str, Any]) -> "JournalRecord":
        """The same of what `record_head` gives."""
        try:
            return cls(
                seq=int(head["seq"]),
                owner=str(head["owner"]),
                now_ms=int(head["now_ms"]),
                cursor=int(head["cursor"]),
                inputs=tuple(JournaledInput.stored(i) for i in head["inputs"]),
                decisions=tuple(read_decision(d) for d in head["decisions"]),
                published_up_to=int(head["published_up_to"]),
                decide_version=int(head["decide_version"]),
                fold_version=int(head["fold_version"]),
                previous_hash=str(head["previous_hash"]),
            )
        except (KeyError, TypeError, ValueError, InvalidEvent) as error:
            raise InvalidRecordError(f"the journal record with seq {head.get('seq')!r} cannot be read: {error}") from error


class GreatestSeqs:
    """Greatest seq by partition of a journal read in order from anywhere on: as in a fold, the record of the seq that is due counts.

    A fold halts where seqs are missing; a reader (of a topic that was trimmed meanwhile, say) goes on behind them with the second of two
    records in a row. One alone may be a stray, which must neither count nor hide the records after it.
    """

    def __init__(self) -> None:
        self._greatest: dict[int, int] = {}
        self._ahead: dict[int, int] = {}

    def counts(self, partition: int, seq: int) -> bool:
        """Whether the partition's next record, which has this seq, counts."""
        greatest = self._greatest.get(partition, max(seq - 1, 0))
        if seq <= greatest:
            return False
        if seq > greatest + 1 and seq - 1 != self._ahead.get(partition):
            self._ahead[partition] = seq
            return False
        self._greatest[partition] = seq
        self._ahead.pop(partition, None)
        return True


class InvalidRecordError(EventError):
    """Bytes in a journal that are no record of a version that this program knows: a reader halts there."""


def record_head(value: bytes | None) -> dict[str, Any]:
    """The record's JSON, its inputs and decisions not yet read as events. Raises InvalidRecordError."""
    try:
        head = orjson.loads(value or b"")
    except orjson.JSONDecodeError as error:
        raise InvalidRecordError(f"the journal holds bytes that are no JSON: {error}") from error
    if not isinstance(head, dict) or not isinstance(head.get("seq"), int):
        raise InvalidRecordError("the journal holds JSON that is no record: it has no seq")
    return head


def read_decision(stored: Mapping[str, Any]) -> Event:
    """A decision from the JSON of a record, an older version of it lifted to the newest. Raises InvalidEvent, KeyError, ValueError."""
    type_string, data = UPCASTERS.lift(stored["type"], stored["data"])
    return read_stored(event_class(type_string), data, "ignore")


def record_hash(value: bytes) -> str:
    """Hex SHA-256 of a record's bytes on the wire: the next record's `previous_hash`."""
    return hashlib.sha256(value).hexdigest()


def decision_bytes(type_string: str, data: Any) -> bytes:
    """One decision in the form in which replay compares it: sorted keys, no blanks."""
    return orjson.dumps({"type": type_string, "data": data}, option=orjson.OPT_SORT_KEYS)


def decisions_json(decisions: Sequence[Event], level: int = 0, since: Mapping[str, int] = ALWAYS) -> list[dict[str, Any]]:
    """Decisions as the JSON values that a record of that fold_version holds; `since` as in `JournalRecord.encode`."""
    values: list[dict[str, Any]] = orjson.loads(orjson.dumps([_decision_json(d, level, since) for d in decisions]))
    return values


def _decision_json(decision: Event, level: int, since: Mapping[str, int]) -> dict[str, Any]:
    kind, text = decision.event_type, decision.model_dump_json()
    if since.get(kind, 0) <= level:
        return {"type": kind, "data": orjson.Fragment(text)}
    data = orjson.loads(text)
    while since.get(kind, 0) > level:
        kind, data = UPCASTERS.lower(kind, data)
    return {"type": kind, "data": data}


@dataclass(frozen=True, slots=True)
class SnapshotPointer:
    """Pointer to one snapshot of a journal's partition, with the last record that it includes."""

    journal: str
    partition: int
    topic_id: str
    offset: int
    seq: int
    record_hash: str
    object_key: str
    sha256: str
    state_sha256: str
    machine: str
    fold_version: int

    @property
    def key(self) -> bytes:
        """The record's key in the compacted topic; each snapshot has its own, so that a late pointer replaces no other."""
        return b"%b/%b/%016d" % (pointer_prefix(self.journal, self.partition), self.topic_id.encode(), self.seq)

    def encode(self) -> bytes:
        """As JSON."""
        return orjson.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def decode(cls, value: bytes) -> "SnapshotPointer":
        """Reads it back. Raises InvalidRecordError."""
        try:
            pointer = cls(**orjson.loads(value))
        except (orjson.JSONDecodeError, TypeError) as error:
            raise InvalidRecordError(f"the snapshot pointer cannot be read: {error}") from error
        for part in fields(pointer):
            given = getattr(pointer, part.name)
            if type(given) is not part.type or (part.type is int and given < 0):
                raise InvalidRecordError(f"the snapshot pointer cannot be read: {part.name} is {given!r}"[:300])
        return pointer


def pointer_prefix(journal: str, partition: int) -> bytes:
    """Key prefix of the pointers to a partition's snapshots; alone, it is the key of a pointer of an older version."""
    return f"{journal}/{partition}".encode()


__all__ = [
    "MAX_REASON_CHARS",
    "NO_HASH",
    "ClockTicked",
    "GreatestSeqs",
    "InputRefused",
    "InvalidRecordError",
    "JournalRecord",
    "JournaledInput",
    "PlacementFrozen",
    "SnapshotPointer",
    "decision_bytes",
    "decisions_json",
    "pointer_prefix",
    "read_decision",
    "record_hash",
    "record_head",
]
