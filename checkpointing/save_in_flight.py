"""A save that training does not wait for: it is staged, and a thread of each rank brings it to its commit.

Holds: one a time. Each rank's thread waits for its upload and puts a receipt into the process group's store; rank 0's commits once all are
there, and puts the outcome there, which is that of all ranks. So no collective of training is ever beside one of a save, and a rank or an
upload process that dies at any moment leaves the chain at the commit before. `result` is a loop of short collectives: a rank that died
fails it at once, an upload may take longer than the process group's timeout, and what the store could not carry goes by them.
Never: keeps the interpreter while it waits; runs on after `abandon`; asks for the process group from its thread, as a program may
destroy it meanwhile.
"""

import pickle  # nosec B403  # between the ranks of one gang, as torch's own collectives of objects
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from trainhouse.checkpointing.collective import Outcome, Ranks, attempt, values
from trainhouse.checkpointing.errors import CheckpointError, SaveFailedError

R = TypeVar("R")
T = TypeVar("T")
PART_BYTES = 4 * 2**20
FIRST_LOOK_S = 0.002
LONGEST_LOOK_S = 0.25
STOP_TIMEOUT_S = 10.0
ROUND_S = 0.5
"""Between two collectives of `result`."""


class AbandonedError(CheckpointError):
    """The save was given up before its commit."""


@dataclass(frozen=True)
class _Report:
    """Progress of one rank: whether its upload has ended, and the outcome once it knows it."""

    sent: bool
    outcome: Outcome | None


@dataclass(frozen=True)
class Afterwards(Generic[T]):
    """Calls on rank 0 when the outcome is known. `saved` may take long: it is a part of the save for the next one only."""

    saved: Callable[[T], None]
    failed: Callable[[CheckpointError], None]


class SaveInFlight(Generic[R, T]):
    """One save of one rank. `send` gives this rank's receipt; `commit` makes the outcome of all receipts, on rank 0.

    `name`: of the save, alike on all ranks.
    """

    def __init__(self, ranks: Ranks, name: str, send: Callable[[], R], commit: Callable[[list[R]], T], then: Afterwards[T]) -> None:
        self._ranks = ranks
        self._rank, self._world_size = ranks.rank, ranks.world_size
        self._store = ranks.store if self._world_size > 1 else None
        self._name = name
        self._send = send
        self._commit = commit
        self._then = then
        self._sent = threading.Event()
        self._outcome: Outcome | None = None
        self._decided: Outcome | None = None
        self._known = threading.Event()
        self._abandoned = threading.Event()
        self._cause: CheckpointError = AbandonedError("the save was given up before its commit")
        self._committing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="checkpoint-upload", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether this rank knows how it ended. Other ranks may not know it yet."""
        return self._known.is_set()

    def result(self) -> T:
        """Waits until all ranks know how it ended: its result, or the error. Collective; blocks."""
        while True:
            self._known.wait(ROUND_S)
            reports = self._ranks.all(lambda: _Report(self._sent.is_set(), self._outcome if self._known.is_set() else None))
            if (decided := reports[0].outcome) is not None and all(report.sent for report in reports):
                self._end(decided)
                return self.known()
            for report in reports:
                if report.outcome is not None and report.outcome.error is not None:
                    self._give_up(report.outcome.error)  # rank 0 may wait in vain for that rank's receipt

    def known(self) -> T:
        """Waits until this rank knows how it ended: its result, or the error. Not collective; blocks."""
        self._known.wait()
        outcome = self._decided or self._outcome
        assert outcome is not None
        if outcome.error is not None:
            raise outcome.error
        result: T = outcome.value  # type: ignore[assignment]
        return result

    def wait(self, timeout_s: float) -> bool:
        """Waits so long until this rank knows how it ended; returns whether it does. Not collective."""
        return self._known.wait(timeout_s)

    def finish(self, timeout_s: float | None = None) -> None:
        """Waits for what follows the commit, too; so long at most, if there is a limit. Blocks."""
        self._thread.join(timeout_s)

    def abandon(self) -> bool:
        """Gives it up, unless it is being committed; returns whether it ended without a commit. Not collective; blocks shortly."""
        self._abandoned.set()
        with self._committing:
            pass
        self._known.wait(STOP_TIMEOUT_S)
        outcome = self._decided or self._outcome
        return outcome is None or outcome.error is not None

    def _give_up(self, cause: CheckpointError) -> None:
        if not self._abandoned.is_set():
            self._cause = cause
            self._abandoned.set()

    def _end(self, decided: Outcome) -> None:
        """Takes rank 0's outcome, which this rank has not read yet, or could not."""
        self._decided = decided
        if self._rank != 0:
            self._abandoned.set()
        self._known.wait()

    def _run(self) -> None:
        try:
            receipt = attempt(self._send)
            self._sent.set()
            outcome = self._outcome_of(receipt)
        except CheckpointError as error:
            outcome = Outcome(error=error)
        except BaseException as error:  # whatever it is, those who wait are to know it
            failed = SaveFailedError(f"the save did not come to its commit: {type(error).__name__}: {error}")
            failed.__cause__ = error
            outcome = Outcome(error=failed)
        self._outcome = outcome
        try:
            if self._rank == 0 and outcome.error is not None:
                self._then.failed(outcome.error)
        finally:
            self._sent.set()
            self._known.set()
        if self._rank == 0 and outcome.error is None:
            self._then.saved(cast(T, outcome.value))

    def _outcome_of(self, mine: Outcome) -> Outcome:
        if self._store is None:
            return self._committed([mine])
        if self._rank == 0:
            receipts = [mine, *(self._taken(self._store, f"{self._name}/{other}") for other in range(1, self._world_size))]
            outcome = self._committed(receipts)
            with suppress(Exception):  # the others learn it from `result`
                self._put(self._store, f"{self._name}/outcome", outcome)
            return outcome
        self._put(self._store, f"{self._name}/{self._rank}", mine)
        return self._read(self._store, f"{self._name}/outcome")

    def _committed(self, receipts: list[Outcome]) -> Outcome:
        """Commits, or returns the error of the ranks."""
        with self._committing:
            if self._abandoned.is_set():
                raise self._cause
            return attempt(lambda: self._commit(list(values(dict(enumerate(receipts)), len(receipts)).values())))

    def _put(self, store: Any, key: str, outcome: Outcome) -> None:
        whole = pickle.dumps(outcome)
        parts = [whole[at : at + PART_BYTES] for at in range(0, len(whole), PART_BYTES)]
        for number, part in enumerate(parts):
            store.set(f"{key}/{number}", part)
        store.set(key, str(len(parts)))

    def _read(self, store: Any, key: str) -> Outcome:
        """Waits for it by looking: a thread that waits within torch could not end with the interpreter."""
        look_s = FIRST_LOOK_S
        while not store.check([key]):
            if self._abandoned.wait(look_s):
                raise self._cause
            look_s = min(LONGEST_LOOK_S, 1.5 * look_s)
        parts = [bytes(store.get(f"{key}/{number}")) for number in range(int(store.get(key)))]
        found = pickle.loads(b"".join(parts))  # nosec B301
        if not isinstance(found, Outcome):
            raise SaveFailedError(f"{key} in the process group's store is no outcome of a save")
        return found

    def _taken(self, store: Any, key: str) -> Outcome:
        """Reads a receipt, which nobody else wants, and removes it."""
        found = self._read(store, key)
        for number in range(int(store.get(key))):
            store.delete_key(f"{key}/{number}")
        store.delete_key(key)
        return found


def forget(ranks: Ranks, name: str) -> None:
    """Removes the outcome of a save that all ranks know, on rank 0."""
    if ranks.rank == 0 and not ranks.alone and ranks.world_size > 1:
        key = f"{name}/outcome"
        for number in range(int(ranks.store.get(key)) if ranks.store.check([key]) else 0):
            ranks.store.delete_key(f"{key}/{number}")
        ranks.store.delete_key(key)
