"""The chain of a model's stages in the object store, `models/{project}/chains/{name}/{n}`: dense, appended to by conditional puts alone.

Holds: the records of a chain stand in the order of the registry's decisions about the model, each decision once. So the same record again
adds nothing, and a late writer that would go back, or give another record for a decision, is refused. Each record carries its own place in
the chain, the stages after it, and a checksum of itself, so that the newest one alone names the champion.
Never: changes or removes a record; appends at a number that it did not see free.
"""

import hashlib
from collections.abc import Iterator
from typing import Final, Literal

import orjson
from pydantic import Field, ValidationError

from trainhouse.checkpointing.chain.chunks import THREADS, in_threads
from trainhouse.checkpointing.errors import ChainConflictError, DamagedError, ObjectStoreUnavailableError, UnknownFormatError
from trainhouse.checkpointing.stores.object_store import ObjectStore, get_or_none
from trainhouse.events.model.base import Model
from trainhouse.events.model.bounds import Count, TimestampMs
from trainhouse.events.model.dataset_names import Semver
from trainhouse.events.model.labels import Label, Sha256
from trainhouse.events.model.model_content import chain_prefix
from trainhouse.events.model.model_names import ModelName

FORMAT: Final = 1
MOST_TRIES: Final = 64
MOST_EVALUATIONS: Final = 1024
MOST_RECORD_BYTES: Final = 1 << 20
_DIGITS: Final = 10


class StagedVersion(Model):
    """A version of a model: its number, its semver, and the hash of its content."""

    version: Count = Field(ge=1, description="number of the version")
    semver: Semver = Field(description="semver of the version")
    content: Sha256 = Field(description="SHA-256 of the version's content")
    evaluations: tuple[Sha256, ...] = Field(
        (), max_length=MOST_EVALUATIONS, description="SHA-256 of the results of its evaluations that there were at the change"
    )


class StageRecord(Model):
    """One change of a model, and its stages after it."""

    format: int = Field(FORMAT, ge=1, le=FORMAT, description="version of this format")
    project: Label = Field(description="project of the model")
    name: ModelName = Field(description="name of the model")
    decision: Count = Field(description="number of the decision among the registry's about this model")
    kind: Literal["registered", "promoted", "archived", "rolled-back"] = Field(description="the change")
    subject: StagedVersion = Field(description="version that was registered, promoted, archived or returned to")
    champion: StagedVersion | None = Field(None, description="champion after the change; absent: there is none")
    staging: StagedVersion | None = Field(None, description="newest version in staging after the change; absent: there is none")
    cause: Label | None = Field(None, description="id of the request that asked for it")
    at_ms: TimestampMs


def stage_key(project: str, name: str, number: int) -> str:
    """Key of one record; keys sort as numbers do."""
    return f"{chain_prefix(project, name)}{number:0{_DIGITS}d}"


def encode(place: int, record: StageRecord) -> bytes:
    """The record with its place and checksum, as JSON."""
    body = _canonical({"place": place, **record.model_dump(mode="json")})
    return b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'","record":' + body + b"}"


def decode(content: bytes, place: int, where: str) -> StageRecord:
    """The record. Raises DamagedError if it is not what was written there, UnknownFormatError if it is a newer program's."""
    try:
        if len(content) > MOST_RECORD_BYTES:
            raise ValueError(f"it has {len(content)} bytes")
        outer = orjson.loads(content)
        checksum, inner = outer["sha256"], dict(outer["record"])
        found, at = hashlib.sha256(_canonical(inner)).hexdigest(), inner.pop("place")
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{where}: no readable record of stages ({str(error) or type(error).__name__})") from error
    if found != checksum:
        raise DamagedError(f"{where}: its checksum is {found[:12]}…, it says {str(checksum)[:12]}…")
    if at != place:
        raise DamagedError(f"{where}: it says that it is record {at}")
    try:
        return StageRecord.model_validate(inner)
    except ValidationError as error:
        version = inner.get("format")
        raise UnknownFormatError(f"{where}: intact, but of format {version}; this program reads format {FORMAT}") from error


def head(objects: ObjectStore, project: str, name: str, known: int = -1) -> int:
    """The largest number of a model's chain, -1 for none. `known`: one that is there, where the search begins. Blocks."""
    prefix = chain_prefix(project, name)
    after = stage_key(project, name, known) if known >= 0 else ""
    return max((number for found in objects.list(prefix, after) if (number := _number(found.key, prefix)) is not None), default=known)


def read(objects: ObjectStore, project: str, name: str, number: int) -> StageRecord:
    """One record. Blocks. Raises DamagedError, also where it is missing or another model's, UnknownFormatError."""
    key = stage_key(project, name, number)
    content = get_or_none(objects, key)
    if content is None:
        raise DamagedError(f"{objects.uri(key)}: missing, though newer records are there")
    record = decode(content, number, objects.uri(key))
    if (record.project, record.name) != (project, name):
        raise DamagedError(f"{objects.uri(key)}: it says that it is of {record.project}/{record.name}")
    return record


def newest(objects: ObjectStore, project: str, name: str) -> StageRecord | None:
    """The newest record, whose stages are those of now; None for a model that has none. Blocks. Raises as `read`.

    A damaged newest record is not passed over: an older one may name a champion that is none any more.
    """
    number = head(objects, project, name)
    return None if number < 0 else read(objects, project, name, number)


def history(objects: ObjectStore, project: str, name: str) -> Iterator[StageRecord]:
    """The records, the newest first, read some at a time. Blocks. Raises as `read`."""
    numbers = range(head(objects, project, name), -1, -1)
    return in_threads(lambda number: read(objects, project, name, number), numbers, THREADS)


def append(objects: ObjectStore, record: StageRecord, known: int = -1) -> int:
    """Appends a record; returns its number in the chain. A record that is there already gets no second one. Blocks.

    `known`: a number that is there.

    Raises ChainConflictError where the chain has gone further without it, or has another record of its decision; DamagedError where the
    newest record cannot be read, as its decision is not known then; ObjectStoreUnavailableError.
    """
    project, name = record.project, record.name
    for _ in range(MOST_TRIES):
        known = head(objects, project, name, known)
        if known >= 0 and (last := read(objects, project, name, known)).decision >= record.decision:
            return _number_of(objects, record, known, last)
        number = known + 1
        if objects.put_if_absent(stage_key(project, name, number), encode(number, record)):
            return number
        known = number
    raise ObjectStoreUnavailableError(
        f"{objects.address}: chain of the model {project}/{name}: lost {MOST_TRIES} races for the next record; try again"
    )


def _number_of(objects: ObjectStore, record: StageRecord, number: int, found: StageRecord) -> int:
    """The number of a record that is in the chain already, at `number` or before it. Raises ChainConflictError."""
    while found.decision > record.decision and number > 0:
        number -= 1
        found = read(objects, record.project, record.name, number)
    if found == record:
        return number
    where = objects.uri(stage_key(record.project, record.name, number))
    what = "has another record of" if found.decision == record.decision else "is there, and the chain has no record of"
    raise ChainConflictError(
        f"{where} {what} decision {record.decision} about {record.project}/{record.name}: two registries write to one store, or the "
        "journal of this one began anew; stop one"
    )


def _number(key: str, prefix: str) -> int | None:
    digits = key.removeprefix(prefix)
    return int(digits) if len(digits) == _DIGITS and digits.isascii() and digits.isdigit() else None


def _canonical(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
