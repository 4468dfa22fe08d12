"""Search for the records that a journal's readers cannot fold, as `trainhouse journal repair` shows them.

Holds: pure; of each partition the first such record, since what follows it depends on it. Never: writes.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from trainhouse.events.errors import EventError
from trainhouse.events.journal import record_hash, record_head
from trainhouse.scheduler.core.journal import NOTHING_EMPTIED, Folded, begin, fold_bytes
from trainhouse.scheduler.core.machine import Machine
from trainhouse.scheduler.replay import LogEntry

S = TypeVar("S")


@dataclass(slots=True)
class Broken:
    """A record that cannot be folded. `after`: entries of its partition that follow it."""

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


@dataclass(slots=True)
class Search(Generic[S]):
    """How far each partition can be folded, and where it cannot."""

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
            found.broken[entry.partition] = _broken(entry, folded, error)
    return found


def _broken(entry: LogEntry, folded: Folded[Any], error: Exception) -> Broken:
    found = Broken(entry.partition, entry.offset, record_hash(entry.value), f"{type(error).__name__}: {error}", folded.seq)
    try:
        head = record_head(entry.value)
    except EventError:
        return found
    found.seq, found.owner = head["seq"], str(head.get("owner", ""))
    found.now_ms = head["now_ms"] if isinstance(head.get("now_ms"), int) else None
    found.inputs, found.decisions = _kinds(head.get("inputs"), "event"), _kinds(head.get("decisions"), None)
    return found


def _kinds(items: Any, inner: str | None) -> dict[str, int]:
    """How many there are of each type, as far as that can be read of bytes that may hold anything."""
    found = Counter[str]()
    for item in items if isinstance(items, list) else []:
        body = item.get(inner) if inner is not None and isinstance(item, dict) else item
        kind = body.get("type") if isinstance(body, dict) else None
        found[kind if isinstance(kind, str) else "unreadable"] += 1
    return dict(found)
