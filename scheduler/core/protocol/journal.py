"""The journal's rule: which records count, and what a record that counts does to a partition's state.

Holds: a record counts if and only if its seq is the folded seq + 1; the first such record in the log wins, for every reader alike.
A counting record with a wrong `previous_hash`, of a newer `fold_version`, or whose decisions cannot be read, halts the reader, unless a
person had it counted as empty (`events/model/repair.py`): then it takes its seq and its place in the chain of hashes, and nothing else.
Never: skips a record by itself; reads a clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from trainhouse.events import Event
from trainhouse.events.model.upgrade import LevelRaised
from trainhouse.events.wire.journal import (
    NO_HASH,
    InputRefused,
    InvalidRecordError,
    JournaledInput,
    JournalRecord,
    PlacementFrozen,
    record_hash,
    record_head,
)
from trainhouse.events.wire.repairs import is_emptied
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.protocol.machine import Input, Machine

S = TypeVar("S")
NOTHING_EMPTIED: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Folded(Generic[S]):
    """A partition as its journal says up to `seq`: the machine's state, and the protocol's own.

    `level`: the greatest fold_version of its records, 0 before the first; who writes keeps to it until it is raised
    (`events/model/upgrade.py`).
    """

    partition: int
    state: S
    seq: int = 0
    cursor: int = -1
    now_ms: int = 0
    published_up_to: int = 0
    last_hash: str = NO_HASH
    frozen_version: int = 0
    level: int = 0

    @property
    def where(self) -> str:
        """For messages."""
        return f"partition {self.partition}, seq {self.seq}"


def begin(machine: Machine[S], partition: int) -> Folded[S]:
    """The state before the first record."""
    return Folded(partition=partition, state=machine.initial(partition))


def counts(folded: Folded[S], value: bytes | None) -> bool:
    """Whether the record in these bytes counts now. Raises BrokenInvariant for bytes that are no record at all."""
    return bool(_head(folded, value)["seq"] == folded.seq + 1)


def _head(folded: Folded[S], value: bytes | None) -> dict[str, Any]:
    try:
        return record_head(value)
    except InvalidRecordError as error:
        raise BrokenInvariant(f"after {folded.where}: {error}") from error


def fold_emptied(folded: Folded[S], value: bytes) -> Folded[S]:
    """The state after a record that counts as empty: its seq is taken, if it has one that is due; its inputs are not handled."""
    try:
        seq = record_head(value)["seq"]
    except InvalidRecordError:
        return folded
    return replace(folded, seq=seq, last_hash=record_hash(value)) if seq == folded.seq + 1 else folded


def fold_bytes(
    machine: Machine[S],
    folded: Folded[S],
    value: bytes | None,
    read: JournalRecord | None = None,
    emptied: frozenset[str] = NOTHING_EMPTIED,
) -> tuple[Folded[S], JournalRecord | None]:
    """The state after one entry of the log, and its record if it counted (None: ignored). The old state must not be used again.

    `read`: what these very bytes were read as before. `emptied`: hashes of records that count as empty.
    """
    if value is not None and is_emptied(value, emptied):
        return fold_emptied(folded, value), None
    if value is None:
        return folded, None
    if read is None:
        head = _head(folded, value)
        if head["seq"] != folded.seq + 1:
            return folded, None
        _check_version(machine, head["seq"], head.get("fold_version"), folded)
        try:
            record = JournalRecord.of_head(head)
        except InvalidRecordError as error:
            raise BrokenInvariant(f"after {folded.where}: {error}") from error
    elif read.seq == folded.seq + 1:
        record = read
        _check_version(machine, read.seq, read.fold_version, folded)
    else:
        return folded, None
    if record.previous_hash != folded.last_hash:
        raise BrokenInvariant(
            f"partition {folded.partition}, seq {record.seq}, previous_hash: {record.previous_hash} where the record before it has "
            f"{folded.last_hash}; the journal was altered, restore it from its archive"
        )
    return fold_record(machine, folded, record, record_hash(value)), record


def _check_version(machine: Machine[S], seq: int, version: object, folded: Folded[S]) -> None:
    """Before anything else of it is read: what follows may be of a type that only a newer program knows."""
    if type(version) is int and version > machine.fold_version:
        raise BrokenInvariant(
            f"partition {folded.partition}, seq {seq}: fold_version {version} of {machine.name} is newer than this "
            f"program's {machine.fold_version}; update this program"
        )


def fold_record(machine: Machine[S], folded: Folded[S], record: JournalRecord, hash_: str) -> Folded[S]:
    """The state after a record that counts. What was refused never reaches the machine."""
    inputs, decisions = machine_part(record)
    state = folded.state
    if inputs or decisions:
        state = machine.at(record.fold_version).fold(state, record.now_ms, inputs, decisions)
    froze = not record.inputs and any(isinstance(d, PlacementFrozen) for d in decisions)
    return replace(
        folded,
        state=state,
        seq=record.seq,
        cursor=max(folded.cursor, record.cursor),
        now_ms=max(folded.now_ms, record.now_ms),
        published_up_to=max(folded.published_up_to, record.published_up_to),
        last_hash=hash_,
        frozen_version=record.decide_version if froze else 0 if record.ticked else folded.frozen_version,
        level=max(folded.level, record.fold_version),
    )


def machine_part(record: JournalRecord) -> tuple[list[Input], list[Event]]:
    """Returns the machine's part of a record: its inputs and decisions without those of the protocol itself."""
    refused = {d.offset for d in record.decisions if isinstance(d, InputRefused)}
    return readable(record.inputs, refused), [d for d in record.decisions if not isinstance(d, InputRefused | LevelRaised)]


def readable(inputs: Sequence[JournaledInput], refused: set[int] | frozenset[int] = frozenset()) -> list[Input]:
    """The inputs that could be read when they were journaled and were not refused, as a machine takes them."""
    return [Input(i.offset, i) for i in inputs if i.is_event and i.offset not in refused]
