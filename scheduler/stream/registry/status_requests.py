"""Requests to the registry that follow from ends of jobs: statuses wait here until the registry has answered what follows from them.

Holds: an offset counts as done once all that came before it is answered for good, by what this process folds of the registry's journal. No
more wait than MOST_WAITING: then nothing more is to be taken. What fails for one job keeps up no other; a round ends after ROUND_S.
Never: decides.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from trainhouse.events import InvalidEvent, JobStatus, decode
from trainhouse.events.runtime.turns import in_turn
from trainhouse.scheduler.core.registry.job_registrations import RegisteredCheckpoint
from trainhouse.scheduler.core.registry.registry_state import RegistryState
from trainhouse.scheduler.stream.interfaces import Clock, Entry, Log
from trainhouse.scheduler.stream.model_interfaces import ModelStore

MOST_WAITING: Final = 1_000
ROUND_S: Final = 10.0
"""For how long requests are sent before statuses are read again: a member that does not read for minutes is put out of the group."""
RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 60.0
log_ = structlog.get_logger(__name__)


@dataclass(slots=True)
class Waiting:
    """A status whose request was not answered. `digest`: the registry's of it, where it has one; `is_out`: it was sent; `due_s`: when it
    is tried again; `checkpoint`: what becomes a version, once the job's spec was read; `known_at`: offset of the registry's journal before
    which all is that can say whose it is."""

    status: JobStatus
    digest: bytes = b""
    is_out: bool = False
    due_s: float = 0.0
    delay_s: float = RETRY_S
    checkpoint: RegisteredCheckpoint | None = None
    known_at: int | None = None


class Room(Protocol):
    """Room for requests of one round."""

    def has(self, each: Waiting) -> bool:
        """Whether a request may be sent now."""

    def take(self, each: Waiting) -> None:
        """Counts one that was sent."""


@dataclass(slots=True)
class StatusRequests(ABC):
    """Requests of one kind. `state`: the registry's, as this process has folded it; None until it has. `positions` are what a reader may
    commit."""

    log: Log
    clock: Clock
    store: ModelStore
    state: Callable[[], RegistryState | None]
    _waiting: dict[tuple[int, int], Waiting] = field(default_factory=dict)
    _next: dict[int, int] = field(default_factory=dict)

    @abstractmethod
    def wanted(self, entry: Entry) -> Waiting | None:
        """The part of a status that waits; None: nothing follows from it."""

    @abstractmethod
    def is_answered(self, state: RegistryState, each: Waiting) -> bool:
        """Whether nothing more follows from a status."""

    @abstractmethod
    def room(self, state: RegistryState) -> Room:
        """Room for requests of one round."""

    async def look(self, state: RegistryState) -> None:  # noqa: B027  # most kinds look nothing up
        """Looks up, before each round, what `is_answered` takes beside the state."""

    @abstractmethod
    async def send(self, state: RegistryState, each: Waiting) -> None:
        """Sends a request; raises what the store and the brokers raise."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be taken until some of what waits is answered."""
        return len(self._waiting) >= MOST_WAITING

    def take(self, entries: list[Entry]) -> None:
        """Takes statuses in the order of their partition."""
        for entry in entries:
            self._next[entry.partition] = entry.offset + 1
            found = self.wanted(entry)
            if found is not None:
                self._waiting[entry.partition, entry.offset] = found

    def keep(self, partitions: set[int]) -> None:
        """Forgets what is of other partitions: whoever has them now reads it again."""
        self._waiting = {place: each for place, each in self._waiting.items() if place[0] in partitions}
        self._next = {partition: offset for partition, offset in self._next.items() if partition in partitions}

    def positions(self) -> dict[int, int]:
        """By partition: the offset before which nothing waits."""
        first: dict[int, int] = {}
        for partition, offset in self._waiting:
            first[partition] = min(offset, first.get(partition, offset))
        return {partition: first.get(partition, offset) for partition, offset in self._next.items()}

    async def send_due(self) -> bool:
        """Forgets what was answered, and tries each request that is due and has room, once, for ROUND_S at most; returns whether any was
        answered."""
        state = self.state()
        if state is None:
            return False
        await self.look(state)
        answered = [place for place, each in self._waiting.items() if self.is_answered(state, each)]
        for place in answered:
            del self._waiting[place]
        began_s, room = self.clock.steady_s(), self.room(state)
        due = [each for each in self._waiting.values() if each.due_s <= began_s]
        for each in in_turns(due):
            if self.clock.steady_s() - began_s > ROUND_S:
                break
            if not room.has(each):
                continue
            try:
                await self.send(state, each)
            except Exception as error:  # of the store or the brokers: whatever it is, no other job waits for it
                about = f"job {each.status.job_id} of project {each.status.project}"
                log_.warning("request to the registry failed, trying again", about=about, error=f"{type(error).__name__}: {error}")
            else:
                each.is_out = True
                room.take(each)
            each.due_s, each.delay_s = self.clock.steady_s() + each.delay_s, min(2 * each.delay_s, LONGEST_RETRY_S)
        return bool(answered)

    @property
    def waiting(self) -> list[Waiting]:
        """All that waits."""
        return list(self._waiting.values())


def in_turns(due: Sequence[Waiting]) -> list[Waiting]:
    """Orders requests: what was not sent yet comes first, and projects take turns, so that many jobs of one keep no other waiting."""
    return [each for is_out in (False, True) for each in in_turn((w for w in due if w.is_out is is_out), lambda w: w.status.project)]


def status_of(entry: Entry, *words: bytes) -> JobStatus | None:
    """The status that an entry holds; None where it lacks one of the words, which stand in each that is wanted: then nothing is decoded."""
    if entry.value is None or not all(word in entry.value for word in words):
        return None
    try:
        event = decode(entry.value, entry.headers).event
    except InvalidEvent:
        return None
    return event if isinstance(event, JobStatus) else None
