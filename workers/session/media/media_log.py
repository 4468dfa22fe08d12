"""Media of one rank: staged when they are logged, encoded and stored by a thread, reported once they are whole in the store.

Holds: a step waits for copies in memory alone, of bounded size and number; the store and the encoding never hold it up. What is over a
bound, or cannot be encoded or stored, is dropped, counted and named on standard error. A file is reported after its content is there, so
that a rank that is killed leaves it whole or not at all.
Never: raises for what a step's data are; only for a wrong use (a key, a step).
"""

import hashlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainhouse.checkpointing.errors import RetryableError
from trainhouse.checkpointing.lease.signed_store import open_artifact_store
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.media import MAX_MEDIA_BYTES, MOST_KEY_CHARS, is_key, media_path
from trainhouse.events.model.tracking import artifact_key
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.errors import InvalidUseError
from trainhouse.workers.session.logging.sink import Sink
from trainhouse.workers.session.media.values import Encode, Media

MOST_PER_STEP: Final = 100
MOST_WAITING_BYTES: Final = 256 << 20
LEAST_WAITING_BYTES: Final = 16 << 10
"""That each value counts as while it waits, so that the number of small ones is bounded, too."""
MOST_STORED_BYTES: Final = 4 << 30
"""Of one rank's attempt."""
TRIES: Final = 3


@dataclass(frozen=True)
class _Waiting:
    path: str
    encode: Encode
    staged_bytes: int
    at_ms: int


class MediaLog:
    """Of one rank's process. `log` comes from the program's threads."""

    def __init__(
        self, context: Context, sink: Sink, store: Callable[[], ObjectStore] = lambda: open_artifact_store(StoreSettings())
    ) -> None:
        self._context = context
        self._sink = sink
        self._store = store
        self._opened: ObjectStore | None = None
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = self._stored_bytes = 0
        self._busy = False
        self._step: tuple[int, dict[str, int]] = (-1, {})
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def log(self, key: str, values: Media | Sequence[Media], step: int) -> None:
        """Stages values of one key at a step; returns once they are copied. Raises InvalidUseError for a key that no file can have."""
        if not isinstance(key, str) or not is_key(key):
            raise InvalidUseError(
                f"log({str(key)[: 2 * MOST_KEY_CHARS]!r}): a key of images, tables and the like has 1 to {MOST_KEY_CHARS} letters, digits, "
                "'_', '-', '.', spaces and '/', and no part '.' or '..'"
            )
        for value in [values] if isinstance(values, Media) else values:
            path = self._next_path(value, key, step)
            with self._changed:
                room = MOST_WAITING_BYTES - self._waiting_bytes
            if path is None:
                self._drop(f"{value.folder} {key!r} of step {step}", f"a rank logs at most {MOST_PER_STEP} a step")
            elif _waiting_bytes(value) > room:
                self._drop(path, f"{MOST_WAITING_BYTES >> 20} MiB may wait to be stored, and it would be more")
            else:
                self._stage(value, path)

    def close(self, wait_s: float) -> bool:
        """Waits so long for what is being stored; True once nothing is. Blocks."""
        with self._changed:
            ended = self._changed.wait_for(lambda: not self._waiting and not self._busy, wait_s)
            left = len(self._waiting) + self._busy
        if not ended:
            print(f"trainhouse: {left} logged images, tables or others are not stored: the rank ended first", file=sys.stderr, flush=True)
        if self.dropped > 1:
            print(f"trainhouse: {self.dropped} logged images, tables or others were dropped in all", file=sys.stderr, flush=True)
        return ended

    def _next_path(self, value: Media, key: str, step: int) -> str | None:
        """The path that a value gets; None where the step has as many as it may."""
        with self._changed:
            if self._step[0] != step:
                self._step = (step, {})
            counts, place = self._step[1], f"{value.folder}/{key}"
            if sum(counts.values()) >= MOST_PER_STEP:
                return None
            number = counts.get(place, 0)
            counts[place] = number + 1
        return media_path(value.folder, key, step, time.time_ns() // 1_000_000, self._context.rank, number, value.ending)

    def _stage(self, value: Media, path: str) -> None:
        try:
            waiting = _Waiting(path, value.stage(), _waiting_bytes(value), time.time_ns() // 1_000_000)
        except Exception as error:
            self._drop(path, str(error))
            return
        with self._changed:
            self._waiting.append(waiting)
            self._waiting_bytes += waiting.staged_bytes
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="trainhouse-media", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                one = self._waiting.popleft()
                self._busy = True
            try:
                self._keep(one)
            except Exception as error:
                self._drop(one.path, str(error) or type(error).__name__)
            finally:
                with self._changed:
                    self._waiting_bytes -= one.staged_bytes
                    self._busy = False
                    self._changed.notify_all()

    def _keep(self, one: _Waiting) -> None:
        """Encodes, stores and reports one."""
        content = one.encode()
        if len(content) > MAX_MEDIA_BYTES:
            raise ValueError(f"it has {len(content)} bytes, and may have {MAX_MEDIA_BYTES}; log a smaller one, or log_artifact")
        if self._stored_bytes + len(content) > MOST_STORED_BYTES:
            raise ValueError(f"a rank stores at most {MOST_STORED_BYTES >> 30} GiB of images, tables and others an attempt; log fewer")
        self._stored_bytes += len(content)
        job, sha256 = self._context, hashlib.sha256(content).hexdigest()
        if job.job_id is None:
            _keep_here(one.path, content)
            return
        if self._opened is None:
            self._opened = self._store()
        key = artifact_key(job.job_id, sha256)
        for tries_left in reversed(range(TRIES)):
            try:
                self._opened.put_if_absent(key, content)
                break
            except RetryableError:
                if not tries_left:
                    raise
        fields = {"path": one.path, "uri": self._opened.uri(key), "sha256": sha256, "size_bytes": len(content), "at_ms": one.at_ms}
        self._sink.event("MediaRecorded", fields, f"{job.job_id}:{job.epoch}:media:{one.path}")

    def _drop(self, name: str, why: str) -> None:
        """Counts what is dropped, and names it where the count is a power of two, so that a flood of them is a few lines."""
        with self._changed:
            self.dropped += 1
            count = self.dropped
        if count & (count - 1) == 0:
            print(f"trainhouse: {name} was dropped ({count} so far): {why}", file=sys.stderr, flush=True)


def _waiting_bytes(value: Media) -> int:
    """Memory that a value counts as while it waits."""
    return max(LEAST_WAITING_BYTES, value.staged_bytes)


def _keep_here(path: str, content: bytes) -> None:
    """Outside of Trainhouse: below artifacts/."""
    to = Path("artifacts") / path
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(content)
