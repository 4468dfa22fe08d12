"""The cluster as it was: a journal folded up to a moment.

Holds: pure; exactly the records that counted by then are folded, in every partition alike; what came later is not looked into.
Never: decides again (`scheduler.replay` does), and never writes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from trainhouse.events.wire.journal import record_head
from trainhouse.events.wire.repairs import is_emptied
from trainhouse.scheduler.core.errors import SchedulerError
from trainhouse.scheduler.core.protocol.journal import NOTHING_EMPTIED, Folded, begin, counts, fold_bytes, fold_emptied
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.replay import LogEntry

S = TypeVar("S")


class NoSuchMomentError(SchedulerError):
    """The journal has no record by then."""

    def __init__(self, first_ms: int | None) -> None:
        super().__init__("the journal has no record by then")
        self.first_ms = first_ms


@dataclass(slots=True)
class Past(Generic[S]):
    """Every partition as of `at_ms`. `whole`: nothing comes after it, so that what is asked for may be the present."""

    at_ms: int
    partitions: dict[int, Folded[S]] = field(default_factory=dict)
    whole: bool = True

    @property
    def last_ms(self) -> int:
        """The time of the newest record that is folded."""
        return max(f.now_ms for f in self.partitions.values())


def past(
    entries: Iterable[LogEntry],
    machine: Machine[S],
    at_ms: int,
    known: Iterable[Folded[S]] = (),
    emptied: frozenset[str] = NOTHING_EMPTIED,
) -> Past[S]:
    """Folds all records with `now_ms` up to `at_ms`; `known` partitions begin where they stand. `emptied`: hashes that count as empty.

    Raises NoSuchMomentError when there is none by then (with the time of the first, if there is one), BrokenInvariant on a broken chain.
    """
    found = Past[S](at_ms, {f.partition: f for f in known})
    over: set[int] = set()
    first_ms: int | None = None
    for entry in entries:
        if entry.partition in over:
            continue
        folded = found.partitions.get(entry.partition) or begin(machine, entry.partition)
        if is_emptied(entry.value, emptied):
            found.partitions[entry.partition] = fold_emptied(folded, entry.value)
            continue
        if not counts(folded, entry.value):
            continue
        now_ms = int(record_head(entry.value)["now_ms"])
        if now_ms > at_ms:
            over.add(entry.partition)
            first_ms = now_ms if first_ms is None else min(first_ms, now_ms)
            found.whole = False
            continue
        found.partitions[entry.partition], _ = fold_bytes(machine, folded, entry.value)
    # An owner of a fresh journal claims it before there is any time in it.
    if not found.partitions or not found.last_ms:
        raise NoSuchMomentError(first_ms)
    return found
