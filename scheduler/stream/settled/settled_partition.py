"""Settled jobs of one partition: what is written, what is being written, and how both are looked up.

Holds: segments 0 to `written` - 1 are in the files, by the hashes that their state or journal names; those after them wait in memory, at
most MOST_WAITING. An entry of the files counts only if its segment does, so what another history left there is never seen.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

import structlog
from rocksdict import Cache

from trainhouse.scheduler.core.errors import StateLost
from trainhouse.scheduler.core.protocol.settled import Fetch, Segment, content_of, proven, segment_of
from trainhouse.scheduler.stream.settled.settled_files import FilesDamagedError, SettledFiles

MOST_WAITING: Final = 8
WAIT_S: Final = 30.0
RETRY_S: Final = 1.0
FAILS_S: Final = 2.5
LOOK_EVERY_S: Final = 0.05
log_ = structlog.get_logger(__name__)


class Waiting:
    """A table on its way into the files."""

    def __init__(self, number: int, jobs: Mapping[str, bytes]) -> None:
        self.number = number
        self.jobs = jobs
        self._over = threading.Event()
        self._segment: Segment | None = None
        self._error: Exception | None = None

    @property
    def sealed(self) -> bool:
        """Whether `segment` answers at once."""
        return self._over.is_set()

    def segment(self) -> Segment:
        """The segment; waits for it. Raises StateLost."""
        self._over.wait()
        if self._segment is None:
            raise StateLost(f"segment {self.number} of settled jobs could not be written: {self._error!r}") from self._error
        return self._segment

    def wait(self, timeout_s: float) -> bool:
        """Whether it is over by then."""
        return self._over.wait(timeout_s)

    def done(self, segment: Segment) -> None:
        """It is written; its table is not needed here any more."""
        self._segment, self.jobs = segment, {}
        self._over.set()

    def fail(self, error: Exception) -> None:
        """It never will be."""
        self._error = error
        self._over.set()


class WriterTrouble:
    """Since when the writer of all partitions has failed, and why: a full disk, say. It tries again until it succeeds."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._error: Exception | None = None

    def failed(self, error: Exception) -> None:
        """One more try has failed."""
        self._error = error
        if self._since_s is None:
            self._since_s = time.monotonic()

    def passed(self) -> None:
        """A try has succeeded."""
        self._since_s = self._error = None

    def lasting(self) -> Exception | None:
        """The newest error, where it has failed for FAILS_S or longer: one failed try says nothing yet."""
        since_s = self._since_s
        return self._error if since_s is not None and time.monotonic() - since_s >= FAILS_S else None


class SettledPartition:
    """One partition's settled jobs. `entry` and `seal` belong to who folds, all else to threads."""

    def __init__(self, folder: Path, cache: Cache, writer: Executor, trouble: WriterTrouble) -> None:
        self._files = SettledFiles(folder, cache)
        self._writer = writer
        self._trouble = trouble
        self._lock = threading.Lock()  # of `_written` and `_waiting`
        self._writing = threading.Lock()  # of the files' content
        self._written = 0
        self._waiting: tuple[Waiting, ...] = ()
        self._damage: Exception | None = None
        self._stopped = threading.Event()

    def entry(self, job_id: str, segments: int) -> bytes | None:
        """A job's entry in the first so many segments. Raises StateLost."""
        # In this order: a table that leaves the ones that wait is written already.
        waiting, written = self._waiting, self._written
        self._hold_segments(segments, written, waiting)
        for table in waiting:
            found = table.jobs.get(job_id) if table.number < segments else None
            if found is not None:
                return found
        try:
            return self._files.entry(job_id, min(segments, self._written)) if self._written else None
        except FilesDamagedError as error:
            self._damage = error
            raise StateLost(f"the index of settled jobs is damaged: {error}") from error

    def _hold_segments(self, segments: int, written: int, waiting: tuple[Waiting, ...]) -> None:
        if self._damage is not None:
            raise StateLost(f"the index of settled jobs is damaged: {self._damage}") from self._damage
        if segments > max(written, waiting[-1].number + 1 if waiting else 0):
            raise StateLost(f"the index of settled jobs has {written} segments, and {segments} are asked for")

    def seal(self, number: int, jobs: Mapping[str, bytes]) -> Waiting:
        """Takes over a table as this segment; what was there from it on counts no more. Raises StateLost."""
        self._hold_segments(number, self._written, self._waiting)
        self._wait_for_room()
        table = Waiting(number, jobs)
        with self._lock:
            self._waiting = (*(w for w in self._waiting if w.number < number), table)
            self._written = min(self._written, number)
        self._writer.submit(self._seal, table)
        return table

    def _wait_for_room(self) -> None:
        """Waits for a writer that gets on, which takes a moment; not for one that keeps failing: the event loop has other partitions."""
        oldest = self._waiting[0] if len(self._waiting) >= MOST_WAITING else None
        if oldest is None:
            return
        end_s = time.monotonic() + WAIT_S
        while (error := self._trouble.lasting()) is None and (left_s := end_s - time.monotonic()) > 0:
            if oldest.wait(min(left_s, LOOK_EVERY_S)):
                return
        why = f"was not written in {WAIT_S:.0f} s" if error is None else f"cannot be written: {error!r}"
        raise StateLost(f"segment {oldest.number} of settled jobs {why}: look at its disk")

    def _seal(self, table: Waiting) -> None:
        """In the writer's thread, until it is written, or counts no more."""
        while table in self._waiting and not self._stopped.is_set():
            try:
                segment = self._put(table)
            except FilesDamagedError as error:
                self._damage = error
                table.fail(error)
                return
            except Exception as error:  # a full disk, say: the table is looked up in memory meanwhile
                self._trouble.failed(error)
                log_.error("settled jobs not written; trying again", segment=table.number, error=repr(error))
                self._stopped.wait(RETRY_S)
                continue
            self._trouble.passed()
            if segment is not None:
                table.done(segment)
                return
        table.fail(StateLost("the partition is folded anew, or its process ends"))

    def _put(self, table: Waiting) -> Segment | None:
        """Writes it; None where it counts no more. Raises FilesDamagedError, and what a disk may raise."""
        content = content_of(table.jobs)
        segment = segment_of(table.number, len(table.jobs), content)
        with self._writing:
            if table not in self._waiting:
                return None
            self._files.put(segment, content)
        with self._lock:
            if table not in self._waiting:
                return None
            self._written = table.number + 1
            self._waiting = tuple(w for w in self._waiting if w is not table)
        return segment

    def attach(self, segments: Sequence[Segment], fetch: Fetch) -> None:
        """Holds exactly these segments; what the files lack comes from `fetch`. Raises StateLost."""
        with self._lock:
            self._waiting, self._written = (), 0
        with self._writing:
            if self._damage is not None:
                self._files.delete()
                self._damage = None
            try:
                self._fill(segments, fetch)
            except FilesDamagedError as error:
                log_.error("index of settled jobs damaged; it is written anew", error=str(error))
                self._files.delete()
                self._fill(segments, fetch)
        with self._lock:
            self._written = len(segments)

    def _fill(self, segments: Sequence[Segment], fetch: Fetch) -> None:
        for segment in segments:
            if not self._files.has(segment):
                self._files.put(segment, proven(segment, fetch(segment)))

    def content(self, segment: Segment) -> bytes:
        """A segment's bytes. Raises StateLost."""
        try:
            return proven(segment, self._files.content(segment))
        except FilesDamagedError as error:
            self._damage = error
            raise StateLost(f"the index of settled jobs is damaged: {error}") from error

    def stop(self) -> None:
        """Nothing more is written."""
        self._stopped.set()

    def close(self) -> None:
        """Closes the files."""
        with self._writing:
            self._files.end()
