"""The contract between a pure state machine and the journal protocol that runs it.

Holds: decide changes nothing and depends on nothing but its arguments; fold is the only place where state changes; the same
record folds to the same state everywhere. `now_ms` comes in as an argument.
Never: reads a clock, an environment or a random number.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeVar, runtime_checkable

from trainhouse.events import Envelope, Event, PoolName
from trainhouse.events.wire.journaled_input import JournaledInput
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.protocol.settled import Fetch, Sealing, Segment
from trainhouse.scheduler.core.protocol.snapshot_steps import Formats

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)

OWN_PARTITION: Final = -1


class Input:
    """One input of a batch: its offset in the input topic (None for a tick that the owner made) and its envelope.

    That of a record is decoded when it is asked for: `decide` does, `fold` and `effects` need not.
    """

    __slots__ = ("_source", "offset")

    def __init__(self, offset: int | None, source: Envelope | JournaledInput) -> None:
        self.offset = offset
        self._source = source

    @property
    def envelope(self) -> Envelope:
        """Raises InvalidEvent where it is of a record that counts already, and this program cannot read it."""
        found = self._source if isinstance(self._source, Envelope) else self._source.envelope
        assert found is not None  # nosec B101  # raw bytes are no input of a machine
        return found

    @property
    def event(self) -> Event:
        return self.envelope.event


@dataclass(frozen=True, slots=True)
class Effect:
    """One record to publish because of a folded journal record. `partition` None: by key; OWN_PARTITION: the journal's own.

    `pool`: what the event is about, where it does not name it.
    """

    topic: str
    key: str
    event: Event
    event_id: str
    partition: int | None = None
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of a partition's state: the pools in it, and why placement is frozen (empty: it is not)."""

    pools: tuple[PoolName, ...] = ()
    frozen: str = ""


class Leveled:
    """A machine's level: the fold_version whose programs read what it decides and dumps."""

    fold_version: int
    lowest_level: int
    _level: int | None = None

    @property
    def level(self) -> int:
        """Its own fold_version; a lower one until an update is finished."""
        return self.fold_version if self._level is None else self._level

    def at(self, level: int) -> Self:
        """The same machine at a level; below the lowest that it writes, at that. Raises BrokenInvariant beyond its own fold_version."""
        if level > self.fold_version:
            raise BrokenInvariant(f"level {level} is newer than this program's {self.fold_version}; update this program")
        level = max(level, self.lowest_level)
        if level == self.level:
            return self
        found = copy(self)
        found._level = level
        return found


class Machine(Protocol[S]):
    """A pure state machine over one partition. State is opaque to the protocol."""

    name: str
    decide_version: int
    fold_version: int
    lowest_level: int
    """The least level that it writes; a partition that is below goes to it with its next record."""
    formats: Formats
    """Of its snapshots, older ones included."""
    since: Mapping[str, int]
    """Type strings of decisions, and the level from which they are written; those that are not in it always were."""
    passing: tuple[type[Event], ...]
    """Decisions that a tick may make for nothing: a record of these alone need not be."""

    @property
    def level(self) -> int:
        """The level that it decides and dumps for."""

    def at(self, level: int) -> Self:
        """The same machine at a level. Raises BrokenInvariant for one beyond its fold_version."""

    def initial(self, partition: int) -> S:
        """The state before the first record."""

    def decide(self, state: S, now_ms: int, inputs: Sequence[Input]) -> list[Event]:
        """Decisions for a batch, as full state deltas. Does not change `state`. Raises when an input cannot be handled at all."""

    def after_refusal(self, state: S, refused: Envelope, reason: str) -> Event | None:
        """An input of the owner's own in the place of one on which `decide` raised; None: there is none. Raises as `decide` does."""

    def fold(self, state: S, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> S:
        """The state after a record, at the record's level. The old state must not be used afterwards."""

    def effects(self, seq: int, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> list[Effect]:
        """Returns the effects of a record, in order; the index is the effect's ordinal. Depends on the record alone."""

    def condition(self, state: S) -> Condition:
        """Returns the part of the state that people are alerted about. Never raises, also for a state that a fold left half done."""

    def wakes_ms(self, state: S, after_ms: int) -> int | None:
        """The next time after `after_ms` at which time alone asks for a decision that must not wait; None: there is none."""

    def dump(self, state: S) -> bytes:
        """The state as canonical bytes (for snapshots and their hash)."""

    def load(self, data: bytes) -> S:
        """The state back from its bytes."""


@runtime_checkable
class Captures(Protocol[S_contra]):
    """A machine that takes hold of a state quickly, and writes it down later, in another thread."""

    def capture(self, state: S_contra) -> Callable[[], bytes]:
        """Returns a function that gives the present `dump`, to be called once; the state may change meanwhile."""


@runtime_checkable
class ReadsAhead(Protocol[S_contra]):
    """A machine that can read large inputs in another thread before it decides on them."""

    def read_ahead(self, state: S_contra, events: Sequence[Event]) -> Callable[[], Callable[[], None]] | None:
        """Returns a function that reads, and gives one that keeps it for `decide`; None: nothing is large. What it reads may be broken."""


@runtime_checkable
class Segmented(Protocol[S]):
    """A machine whose states name immutable segments, which snapshots store once."""

    def segments(self, state: S) -> Sequence[Sealing]:
        """The segments of a state, by number."""

    def content(self, partition: int, segment: Segment) -> bytes:
        """The bytes of a segment. Raises StateLost."""

    def load_with(self, data: bytes, fetch: Fetch) -> S:
        """As `load`; segments that are not at hand come from `fetch`. Raises StateLost for what is nowhere."""


def captured(machine: Machine[S], state: S) -> Callable[[], bytes]:
    """A state's bytes, for later; of a machine that cannot do so the bytes as they are now."""
    if isinstance(machine, Captures):
        return machine.capture(state)
    data = machine.dump(state)
    return lambda: data
