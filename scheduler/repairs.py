"""Search for the records that a journal's readers cannot fold, as `trainhouse journal repair` shows them.

Holds: pure; of each partition the first such record, since what follows it depends on it. What is read of it can be shown on a terminal
and is bounded, whatever its bytes are. Never: writes.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from trainhouse.events.model.bounds import EARLIEST_MS, LATEST_MS, MOST_COUNT
from trainhouse.events.model.errors import EventError
from trainhouse.events.model.repair import MAX_TEXT_CHARS
from trainhouse.events.wire.journal import record_hash, record_head
from trainhouse.scheduler.core.protocol.journal import NOTHING_EMPTIED, Folded, begin, fold_bytes
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.replay import LogEntry

S = TypeVar("S")
_MAX_NAME_CHARS = 128
_MAX_KINDS = 32


@dataclass(slots=True)
class Broken:
    """A record that cannot be folded. `after`: entries of its partition that follow it. `newer`: a newer version wrote it."""

    partition: int
    offset: int
    record_hash: str
    error: str
    folded_seq: int
    seq: int | None = None
    owner: str = ""
    now_ms: int | None = None
    inputs: dict[str, int] = field(default_factory=dict)
    decisions: dict[str, int] = field(default_factory=dict)
    after: int = 0
    newer: bool = False


@dataclass(slots=True)
class Search(Generic[S]):
    """Result of a search: how far each partition can be folded, and the record at which it breaks."""

    partitions: dict[int, Folded[S]] = field(default_factory=dict)
    broken: dict[int, Broken] = field(default_factory=dict)


def search(
    entries: Iterable[LogEntry], machine: Machine[S], known: Iterable[Folded[S]] = (), emptied: frozenset[str] = NOTHING_EMPTIED
) -> Search[S]:
    """Folds all entries; `known` partitions begin where they stand. `emptied`: hashes of records that count as empty."""
    found = Search[S]({f.partition: f for f in known})
    for entry in entries:
        if entry.partition in found.broken:
            found.broken[entry.partition].after += 1
            continue
        folded = found.partitions.get(entry.partition) or begin(machine, entry.partition)
        found.partitions[entry.partition] = folded
        try:
            found.partitions[entry.partition], _ = fold_bytes(machine, folded, entry.value, emptied=emptied)
        except Exception as error:  # a fold may raise anything
            found.broken[entry.partition] = _broken(machine, entry, folded, error)
    return found


def _broken(machine: Machine[Any], entry: LogEntry, folded: Folded[Any], error: Exception) -> Broken:
    message = printable(f"{type(error).__name__}: {error}", MAX_TEXT_CHARS)
    found = Broken(entry.partition, entry.offset, record_hash(entry.value), message, folded.seq)
    try:
        head = record_head(entry.value)
    except EventError:
        return found
    found.seq, found.owner = _number(head["seq"], 0, MOST_COUNT), printable(str(head.get("owner", "")), _MAX_NAME_CHARS)
    found.now_ms = _number(head.get("now_ms"), EARLIEST_MS, LATEST_MS)
    found.inputs, found.decisions = _kinds(head.get("inputs"), "event"), _kinds(head.get("decisions"), None)
    version = head.get("fold_version")
    found.newer = type(version) is int and version > machine.fold_version
    return found


def printable(text: str, most_chars: int) -> str:
    """One line of at most so many characters, in which "?" stands for what could steer a terminal."""
    line = " ".join(text[: 4 * most_chars].split())[:most_chars]
    return "".join(c if c.isprintable() else "?" for c in line)


def _number(value: Any, least: int, most: int) -> int | None:
    return value if type(value) is int and least <= value <= most else None


def _kinds(items: Any, inner: str | None) -> dict[str, int]:
    """Counts the items of each type, as far as it can be read from bytes that may hold anything."""
    found = Counter[str]()
    for item in items if isinstance(items, list) else []:
        body = item.get(inner) if inner is not None and isinstance(item, dict) else item
        kind = body.get("type") if isinstance(body, dict) else None
        name = printable(kind, _MAX_NAME_CHARS) if isinstance(kind, str) else "unreadable"
        found[name if name in found or len(found) < _MAX_KINDS else "of other kinds"] += 1
    return dict(found)
