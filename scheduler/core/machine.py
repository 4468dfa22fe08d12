"""The contract between a pure state machine and the journal protocol that runs it.

Holds: decide changes nothing and depends on nothing but its arguments; fold is the only place where state changes; the same
record folds to the same state everywhere. `now_ms` comes in as an argument.
Never: reads a clock, an environment or a random number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar, runtime_checkable

from trainhouse.events import Envelope, Event, PoolName
from trainhouse.scheduler.core.settled import Fetch, Sealing, Segment

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)

OWN_PARTITION: Final = -1


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a batch: its offset in the input topic (None for a tick that the owner made) and its envelope."""

    offset: int | None
    envelope: Envelope

    @property
    def event(self) -> Event:
        return self.envelope.event


@dataclass(frozen=True, slots=True)
class Effect:
    """One record to publish because of a folded journal record. `partition` None: by key; OWN_PARTITION: the journal's own."""

    topic: str
    key: str
    event: Event
    event_id: str
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """How a partition's state is: the pools in it, and why placement is frozen (empty: it is not)."""

    pools: tuple[PoolName, ...] = ()
    frozen: str = ""


class Machine(Protocol[S]):
    """A pure state machine over one partition. State is opaque to the protocol."""

    name: str
    decide_version: int
    fold_version: int
    passing: tuple[type[Event], ...]
    """Decisions that a tick may make for nothing: a record of these alone need not be."""

    def initial(self, partition: int) -> S:
        """The state before the first record."""

    def decide(self, state: S, now_ms: int, inputs: Sequence[Input]) -> list[Event]:
        """Decisions for a batch, as full state deltas. Does not change `state`. Raises when an input cannot be handled at all."""

    def after_refusal(self, state: S, event: Event, reason: str) -> Event | None:
        """An input of the owner's own in the place of one on which `decide` raised; None: there is none. Raises as `decide` does."""

    def fold(self, state: S, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> S:
        """The state after a record. The old state must not be used afterwards."""

    def effects(self, seq: int, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> list[Effect]:
        """What the record makes public, in order; the index is the effect's ordinal. Depends on the record alone."""

    def condition(self, state: S) -> Condition:
        """What of the state a person is alerted about. Never raises, also for a state that a fold left half done."""

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
        """What `dump` gives now, to be asked for once; the state may change meanwhile."""


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
