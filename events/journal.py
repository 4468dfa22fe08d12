"""The journal's records: what an owner decided from which inputs, one Kafka record each, chained by hashes.

Holds: a record's hash is that of its bytes on the wire; encoding is deterministic; inputs travel whole, so a record explains itself.
Never: says whether a record counts (`scheduler.core.journal` does).
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import orjson
from pydantic import Field

from trainhouse.events.base import Event, event_class
from trainhouse.events.bounds import Count, ShortText, SmallCount, read_stored
from trainhouse.events.codec import decode_parts, encode
from trainhouse.events.envelope import Envelope
from trainhouse.events.errors import EventError, InvalidEvent
from trainhouse.events.spec import is_absent

NO_HASH = "0" * 64
MAX_REASON_CHARS = 2048


class ClockTicked(Event, type="trainhouse.clock.ticked.v1"):
    """Time went by: the input without an offset that an owner makes. The time itself is the record's `now_ms`."""


class InputRefused(Event, type="trainhouse.input.refused.v1"):
    """The input at `offset` cannot be handled; every reader of the journal skips it.

    `job_id` and `refused_type` are what could be read of it, empty where nothing could.
    """

    offset: Count
    reason: str = Field(max_length=MAX_REASON_CHARS)
    event_id: ShortText = ""
    forged: str = Field("", max_length=256, description="in whose name it came, where its signature was refused")
    job_id: ShortText = Field("", exclude_if=is_absent)
    refused_type: ShortText = Field("", exclude_if=is_absent)


class PlacementFrozen(Event, type="trainhouse.placement.frozen.v1"):
    """Scheduling itself failed: nothing new is placed on this partition until other code decides. A person must look."""

    reason: str = Field(max_length=MAX_REASON_CHARS)
    decide_version: SmallCount


@dataclass(frozen=True, slots=True)
class JournaledInput:
    """One input of a record: an envelope, or the raw bytes of what could not be read. `offset` None: made by the owner."""

    offset: int | None
    envelope: Envelope | None
    raw: bytes | None = None


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
        return any(i.envelope is not None and isinstance(i.envelope.event, ClockTicked) for i in self.inputs)

    def encode(self) -> bytes:
        """The record's bytes: readable JSON, keys in this order; equal records have equal bytes."""
        return orjson.dumps(
            {
                "seq": self.seq,
                "owner": self.owner,
                "now_ms": self.now_ms,
                "cursor": self.cursor,
                "inputs": [_input_json(i) for i in self.inputs],
                "decisions": [{"type": d.event_type, "data": orjson.Fragment(d.model_dump_json())} for d in self.decisions],
                "published_up_to": self.published_up_to,
                "decide_version": self.decide_version,
                "fold_version": self.fold_version,
                "previous_hash": self.previous_hash,
            }
        )

    @classmethod
    def decode(cls, value: bytes | None) -> "JournalRecord":
        """Reads a record. Raises InvalidRecord, which names what is wrong: a journal's bytes are never skipped."""
        head = record_head(value)
        try:
            return cls(
                seq=int(head["seq"]),
                owner=str(head["owner"]),
                now_ms=int(head["now_ms"]),
                cursor=int(head["cursor"]),
                inputs=tuple(_read_input(i) for i in head["inputs"]),
                decisions=tuple(read_stored(event_class(d["type"]), d["data"], "ignore") for d in head["decisions"]),
                published_up_to=int(head["published_up_to"]),
                decide_version=int(head["decide_version"]),
                fold_version=int(head["fold_version"]),
                previous_hash=str(head["previous_hash"]),
            )
        except (KeyError, TypeError, ValueError, InvalidEvent) as error:
            raise InvalidRecord(f"the journal record with seq {head.get('seq')!r} cannot be read: {error}") from error


class InvalidRecord(EventError):
    """Bytes in a journal that are no record of a version that this program knows: a reader halts there."""


def record_head(value: bytes | None) -> dict[str, Any]:
    """The record's JSON, its inputs and decisions not yet read as events. Raises InvalidRecord."""
    try:
        head = orjson.loads(value or b"")
    except orjson.JSONDecodeError as error:
        raise InvalidRecord(f"the journal holds bytes that are no JSON: {error}") from error
    if not isinstance(head, dict) or not isinstance(head.get("seq"), int):
        raise InvalidRecord("the journal holds JSON that is no record: it has no seq")
    return head


def record_hash(value: bytes) -> str:
    """Hex SHA-256 of a record's bytes on the wire: the next record's `previous_hash`."""
    return hashlib.sha256(value).hexdigest()


def decision_bytes(type_string: str, data: Any) -> bytes:
    """One decision in the form in which replay compares it: sorted keys, no blanks."""
    return orjson.dumps({"type": type_string, "data": data}, option=orjson.OPT_SORT_KEYS)


def decisions_json(decisions: Sequence[Event]) -> list[dict[str, Any]]:
    """Decisions as the JSON values that a record holds."""
    return [{"type": d.event_type, "data": orjson.loads(d.model_dump_json())} for d in decisions]


@dataclass(frozen=True, slots=True)
class SnapshotPointer:
    """Where one snapshot of a journal's partition is, and which record it includes last."""

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
        """Reads it back. Raises InvalidRecord."""
        try:
            pointer = cls(**orjson.loads(value))
        except (orjson.JSONDecodeError, TypeError) as error:
            raise InvalidRecord(f"the snapshot pointer cannot be read: {error}") from error
        for part in fields(pointer):
            given = getattr(pointer, part.name)
            if type(given) is not part.type or (part.type is int and given < 0):
                raise InvalidRecord(f"the snapshot pointer cannot be read: {part.name} is {given!r}"[:300])
        return pointer


def pointer_prefix(journal: str, partition: int) -> bytes:
    """How the keys of the pointers to a partition's snapshots begin; alone, it is the key of a pointer of an older version."""
    return f"{journal}/{partition}".encode()


def _input_json(item: JournaledInput) -> dict[str, Any]:
    if item.envelope is not None:
        return {"offset": item.offset, "event": orjson.Fragment(encode(item.envelope))}
    return {"offset": item.offset, "raw": base64.b64encode(item.raw or b"").decode()}


def _read_input(item: dict[str, Any]) -> JournaledInput:
    if "event" not in item:
        return JournaledInput(item["offset"], None, base64.b64decode(item["raw"]))
    attributes = dict(item["event"])
    data = attributes.pop("data", None)
    return JournaledInput(item["offset"], decode_parts(attributes, data, stored=True))
