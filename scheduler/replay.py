"""Replay: every decision of a journal is made again and compared with the record, byte for byte.

Holds: pure; only records of the machine's own `decide_version` are recomputed, the others are folded (decisions are full deltas);
what the protocol itself noted (a refused input, a freeze after a failure) is folded, not recomputed; a partition ends at its first
broken link of the hash chain. A record with an input that this program cannot read is folded, and counted.
Never: writes.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import orjson

from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.wire.journal import InputRefused, JournalRecord, decision_bytes, decisions_json, record_hash, record_head
from trainhouse.events.wire.repairs import is_emptied
from trainhouse.scheduler.core.protocol.journal import NOTHING_EMPTIED, Folded, begin, counts, fold_bytes, fold_emptied, machine_part
from trainhouse.scheduler.core.protocol.machine import Input, Machine

S = TypeVar("S")
Also = Callable[[S, JournalRecord], Iterable[tuple[str, Any, Any]]]
"""What else is computed again of a record: each field that differs, as recorded and as recomputed."""
MAX_DIFFERENCES = 100
MAX_NAMED = 100
_MISSING = "(missing)"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a journal topic, winners and losers alike."""

    partition: int
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that is not what it must be. `recorded` is what the journal says, `recomputed` what the code or the chain says."""

    partition: int
    seq: int
    field: str
    recorded: Any
    recomputed: Any

    def __str__(self) -> str:
        recorded, recomputed = _short(self.recorded), _short(self.recomputed)
        return f"partition {self.partition}, seq {self.seq}, {self.field}: recorded {recorded}, recomputed {recomputed}"


@dataclass(slots=True)
class ReplayReport:
    """Result of a replay. `ignored` are records of owners that lost the race for a seq: part of a healthy journal.

    `suggestions` are values of trials that were computed again, `other_versions` those that other versions of the samplers had computed.
    `emptied` are records that count as empty, by a repair of the journal. `unreadable` are records with an input that this program cannot
    read (an unknown type, a constraint that was tightened): their decisions are folded, and could not be made again. `not_recomputed` names
    the first of them.
    """

    records: int = 0
    emptied: int = 0
    recomputed: int = 0
    folded_only: int = 0
    unreadable: int = 0
    ignored: int = 0
    decisions: int = 0
    snapshots: int = 0
    suggestions: int = 0
    other_versions: int = 0
    differences: list[Difference] = field(default_factory=list)
    not_recomputed: list[str] = field(default_factory=list)
    seqs: dict[int, int] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        """Whether everything that was compared is equal."""
        return not self.differences


def verify(
    entries: Iterable[LogEntry],
    machine: Machine[S],
    snapshots: Mapping[tuple[int, int], str] | None = None,
    emptied: frozenset[str] = NOTHING_EMPTIED,
    also: Also[S] | None = None,
) -> ReplayReport:
    """Replays from the first record on. `snapshots`: state hash by (partition, seq). Stops after MAX_DIFFERENCES differences.

    `emptied`: hashes of records that count as empty. `also`: what else is computed again, from the state before a record.
    """
    replay = _Replay(machine, snapshots or {}, emptied, also)
    for entry in entries:
        replay.take(entry)
        if len(replay.report.differences) >= MAX_DIFFERENCES:
            break
    replay.report.seqs = {p: f.seq for p, f in sorted(replay.partitions.items())}
    return replay.report


def state_hash(machine: Machine[S], state: S) -> str:
    """Hex SHA-256 of a machine's state, as snapshots carry it."""
    return hashlib.sha256(machine.dump(state)).hexdigest()


class _Replay(Generic[S]):
    """The partitions of one journal, as far as they were read."""

    def __init__(
        self, machine: Machine[S], snapshots: Mapping[tuple[int, int], str], emptied: frozenset[str], also: Also[S] | None
    ) -> None:
        self._machine = machine
        self._also = also
        self._emptied = emptied
        self._snapshots = snapshots
        self._broken: set[int] = set()
        self.partitions: dict[int, Folded[S]] = {}
        self.report = ReplayReport()

    def take(self, entry: LogEntry) -> None:
        if entry.partition in self._broken:
            return
        folded = self.partitions.get(entry.partition) or begin(self._machine, entry.partition)
        self.partitions[entry.partition] = folded
        if is_emptied(entry.value, self._emptied):
            self.partitions[entry.partition] = fold_emptied(folded, entry.value)
            self.report.emptied += 1
            return
        try:
            if not counts(folded, entry.value):
                self.report.ignored += 1
                return
            head = record_head(entry.value)
            if head.get("previous_hash") != folded.last_hash:
                self._differs(entry.partition, folded.seq + 1, "previous_hash", head.get("previous_hash"), folded.last_hash)
                self._broken.add(entry.partition)
                return
            record = JournalRecord.decode(entry.value)
            self._compare(folded, record, head)
            for difference in () if self._also is None else self._also(folded.state, record):
                self._differs(entry.partition, record.seq, *difference)
            self.partitions[entry.partition], _ = fold_bytes(self._machine, folded, entry.value)
            self.report.records += 1
            self._compare_snapshot(self.partitions[entry.partition])
        except Exception as error:
            self._differs(entry.partition, folded.seq + 1, "(record)", f"offset {entry.offset}: {error}", "a record that can be folded")
            self._broken.add(entry.partition)

    def _compare(self, folded: Folded[S], record: JournalRecord, head: dict[str, Any]) -> None:
        expected_cursor = max((i.offset for i in record.inputs if i.offset is not None), default=folded.cursor)
        if record.cursor != expected_cursor:
            self._differs(folded.partition, record.seq, "cursor", record.cursor, expected_cursor)
        if record.now_ms < folded.now_ms:
            self._differs(folded.partition, record.seq, "now_ms", record.now_ms, f"at least {folded.now_ms}")
        inputs, _ = machine_part(record)
        if record.decide_version != self._machine.decide_version or (not record.inputs and record.decisions):
            self.report.folded_only += 1
            return
        try:
            for item in inputs:
                item.envelope  # noqa: B018  # decoded here, so that what `decide` raises is not mistaken for it
        except InvalidEvent as error:
            self._could_not(folded.partition, record.seq, error)
            return
        recorded = [(n, d) for n, d in enumerate(head["decisions"]) if d["type"] != InputRefused.event_type]
        decided = self._decided(folded, record, inputs)
        self.report.recomputed += 1
        self.report.decisions += len(decided)
        self._compare_decisions(folded.partition, record.seq, recorded, decided)

    def _decided(self, folded: Folded[S], record: JournalRecord, inputs: Sequence[Input]) -> list[dict[str, Any]]:
        """Returns the machine's decisions at the record's level, in their written form."""
        machine = self._machine.at(record.fold_version)
        decisions = machine.decide(folded.state, record.now_ms, inputs) if inputs else []
        return decisions_json(decisions, record.fold_version, machine.since)

    def _could_not(self, partition: int, seq: int, error: InvalidEvent) -> None:
        self.report.unreadable += 1
        if len(self.report.not_recomputed) < MAX_NAMED:
            self.report.not_recomputed.append(f"partition {partition}, seq {seq}: an input cannot be read: {error}"[:500])

    def _compare_decisions(self, partition: int, seq: int, recorded: list[tuple[int, Any]], decided: list[dict[str, Any]]) -> None:
        for position in range(max(len(recorded), len(decided))):
            number, old = recorded[position] if position < len(recorded) else (position, None)
            new = decided[position] if position < len(decided) else None
            if old is None or new is None:
                self._differs(partition, seq, f"decisions[{number}]", _MISSING if old is None else old, _MISSING if new is None else new)
            elif decision_bytes(old["type"], old["data"]) != decision_bytes(new["type"], new["data"]):
                path, was, now = first_difference(old, new)
                self._differs(partition, seq, f"decisions[{number}]{path}", was, now)

    def _compare_snapshot(self, folded: Folded[S]) -> None:
        known = self._snapshots.get((folded.partition, folded.seq))
        if known is None:
            return
        self.report.snapshots += 1
        found = state_hash(self._machine.at(folded.level), folded.state)
        if found != known:
            self._differs(folded.partition, folded.seq, "snapshot.state_sha256", known, found)

    def _differs(self, partition: int, seq: int, path: str, recorded: Any, recomputed: Any) -> None:
        self.report.differences.append(Difference(partition, seq, path, recorded, recomputed))


def first_difference(old: Any, new: Any, path: str = "") -> tuple[str, Any, Any]:
    """The path of the first field in which two JSON values differ, and both values there; the values themselves if they are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(k for k in new if k not in old)]:
            if old.get(key, _MISSING) != new.get(key, _MISSING):
                return first_difference(old.get(key, _MISSING), new.get(key, _MISSING), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        for n, (a, b) in enumerate(zip(old, new, strict=False)):
            if a != b:
                return first_difference(a, b, f"{path}[{n}]")
        if len(old) != len(new):
            return f"{path}.length", len(old), len(new)
    return path, old, new


def _short(value: Any, limit: int = 300) -> str:
    text = orjson.dumps(value, default=str).decode()
    return text if len(text) <= limit else text[:limit] + "…"


__all__ = ["Difference", "LogEntry", "ReplayReport", "record_hash", "state_hash", "verify"]
