"""Content-addressed chunks of one job, `jobs/{job}/chunks/{first two of the hash}/{hash}`.

A job's chunks are its own, so that a right to one job's prefix is a right to nothing of another's. Checkpoints of format 1 lie in
`chunks/{first two of the hash}/{hash}`, where all jobs' chunks lay together; they are read from there.

Holds: an object under a chunk's key is trusted only if it is as long as it must be and either a live manifest of ours names it
or it is young; an old one may be on its way out by retention, so it is sent again, which makes it young. What is read is
verified against its name, always. Uploads run in a bounded number of threads.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

from trainhouse.checkpointing.chain.manifest import Chunk, Manifest
from trainhouse.checkpointing.chain.pace import BACKGROUND_THREADS, FULL_THREADS, Pace
from trainhouse.checkpointing.errors import DamagedError, ObjectMissingError
from trainhouse.checkpointing.stores.object_store import Body, ObjectStore, ReadsInto

SHARED_PREFIX = "chunks/"
GRACE_S = 24 * 3600.0
SECOND_LOOK_S = 0.2
THREADS = BACKGROUND_THREADS
T = TypeVar("T")
R = TypeVar("R")


def chunks_prefix(job_id: str) -> str:
    """Key prefix of a job's chunks."""
    return f"jobs/{job_id}/chunks/"


def prefix_of(manifest: Manifest) -> str:
    """Key prefix of a manifest's chunks."""
    return chunks_prefix(manifest.job_id) if manifest.has_own_chunks else SHARED_PREFIX


def chunk_key(sha256: str, prefix: str) -> str:
    """Key of a chunk."""
    return f"{prefix}{sha256[:2]}/{sha256}"


@dataclass(frozen=True)
class Sent:
    """A chunk that is in the store now, whether it had to be sent, and the node that has it in memory, if one has."""

    chunk: Chunk
    new: bool
    holder: str = ""


def _unseen(chunk: Chunk, body: Body) -> None:
    """Ignores a chunk."""


class ChunkStore:
    """Writes one job's chunks, and reads those of any. `grace_s` must be the one that retention sweeps with."""

    def __init__(self, objects: ObjectStore, job_id: str, grace_s: float = GRACE_S, threads: int = THREADS) -> None:
        self._objects = objects
        self._reads_into = objects if isinstance(objects, ReadsInto) else None
        self._own_prefix = chunks_prefix(job_id)
        self._fresh_s = grace_s / 2
        self._threads = threads
        self.distrusted: set[str] = set()

    def distrust(self, sha256: str) -> None:
        """Never again take the stored object's word for this chunk: the next save sends it."""
        self.distrusted.add(sha256)

    def send(
        self, bodies: Sequence[Body], named: frozenset[str], seen: Callable[[Chunk, Body], None] = _unseen, pace: Pace | None = None
    ) -> list[Sent]:
        """Makes sure that every body is in the store, in order. `named`: hashes that a live manifest of this job names.

        `seen`: called with each chunk before it is sent, from several threads. `pace`: how many are sent at a time; default: `threads`.
        """
        return list(in_threads(lambda body: self._send(body, named, seen), bodies, self._threads, pace))

    def fetch(self, chunk: Chunk, prefix: str) -> bytes:
        """A verified chunk. Raises DamagedError after a second look, so that a passing fault does not condemn it."""
        try:
            return self._fetch_once(chunk, prefix)
        except DamagedError:
            time.sleep(SECOND_LOOK_S)
        return self._fetch_once(chunk, prefix)

    def fetch_into(self, chunk: Chunk, prefix: str, room: memoryview) -> None:
        """Fills `room`, which is as long as the chunk, with its verified bytes. Raises as `fetch`; `room` is then of no use."""
        try:
            self._fetch_into_once(chunk, prefix, room)
        except DamagedError:
            time.sleep(SECOND_LOOK_S)
            self._fetch_into_once(chunk, prefix, room)

    def blocks(self, chunk: Chunk, prefix: str, block_bytes: int) -> Iterator[bytes]:
        """A chunk in blocks, however large it is. Raises DamagedError after the last one if they are not what the hash says: until then
        nothing of them may be relied on."""
        key, found, at = chunk_key(chunk.sha256, prefix), hashlib.sha256(), 0
        while at < chunk.size_bytes:
            with _named(chunk):
                block = self._objects.get_range(key, at, min(block_bytes, chunk.size_bytes - at))
            if not block:
                raise DamagedError(f"chunk {chunk.sha256[:12]}… ends after {at} of {chunk.size_bytes} bytes", chunk.sha256)
            found.update(block)
            at += len(block)
            yield block
        if found.hexdigest() != chunk.sha256:
            raise DamagedError(f"chunk {chunk.sha256[:12]}… has {at} bytes that hash to {found.hexdigest()[:12]}…", chunk.sha256)

    def verify(self, chunks: Sequence[Chunk], prefix: str) -> list[DamagedError]:
        """Reads all of these; returns what is wrong."""

        def problem(chunk: Chunk) -> DamagedError | None:
            try:
                self.fetch(chunk, prefix)
            except DamagedError as error:
                return error
            return None

        return [p for p in in_threads(problem, chunks, self._threads) if p is not None]

    def missing(self, chunks: Sequence[Chunk], prefix: str) -> list[DamagedError]:
        """Looks whether each is there at its size, without reading it; returns what is wrong."""

        def problem(chunk: Chunk) -> DamagedError | None:
            found = self._objects.stat(chunk_key(chunk.sha256, prefix))
            if found is not None and found.size_bytes == chunk.size_bytes:
                return None
            what = "is missing" if found is None else f"has {found.size_bytes} bytes, its manifest says {chunk.size_bytes}"
            return DamagedError(f"chunk {chunk.sha256[:12]}… {what}", chunk.sha256)

        return [p for p in in_threads(problem, chunks, self._threads) if p is not None]

    def _send(self, body: Body, named: frozenset[str], seen: Callable[[Chunk, Body], None]) -> Sent:
        chunk = Chunk(sha256=hashlib.sha256(body).hexdigest(), size_bytes=len(body))
        seen(chunk, body)
        if self._is_there(chunk, named):
            return Sent(chunk, new=False)
        self._objects.put(chunk_key(chunk.sha256, self._own_prefix), body)
        self.distrusted.discard(chunk.sha256)
        return Sent(chunk, new=True)

    def _is_there(self, chunk: Chunk, named: frozenset[str]) -> bool:
        if chunk.sha256 in self.distrusted:
            return False
        found = self._objects.stat(chunk_key(chunk.sha256, self._own_prefix))
        if found is None or found.size_bytes != chunk.size_bytes:
            return False
        return chunk.sha256 in named or found.age_s < self._fresh_s

    def _fetch_once(self, chunk: Chunk, prefix: str) -> bytes:
        key = chunk_key(chunk.sha256, prefix)
        with _named(chunk):
            body = self._objects.get(key)
        found = hashlib.sha256(body).hexdigest()
        if found != chunk.sha256:
            raise DamagedError(f"chunk {chunk.sha256[:12]}… has {len(body)} bytes that hash to {found[:12]}…", chunk.sha256)
        return body

    def _fetch_into_once(self, chunk: Chunk, prefix: str, room: memoryview) -> None:
        if self._reads_into is not None:
            with _named(chunk):
                size_bytes, found = self._reads_into.get_into(chunk_key(chunk.sha256, prefix), room)
        else:
            body = self._fetch_once(chunk, prefix)
            size_bytes, found = len(body), chunk.sha256
            if size_bytes == len(room):
                room[:] = body
        if size_bytes != chunk.size_bytes:
            raise DamagedError(f"chunk {chunk.sha256[:12]}… has {size_bytes} bytes, its manifest says {chunk.size_bytes}", chunk.sha256)
        if found != chunk.sha256:
            raise DamagedError(f"chunk {chunk.sha256[:12]}… has {size_bytes} bytes that hash to {found[:12]}…", chunk.sha256)


@contextmanager
def _named(chunk: Chunk) -> Iterator[None]:
    """Names the chunk in what a read of it shows: that it is missing, or that the store itself found it damaged."""
    try:
        yield
    except ObjectMissingError as error:
        raise DamagedError(f"chunk {chunk.sha256[:12]}… is missing", chunk.sha256) from error
    except DamagedError as error:
        raise DamagedError(f"chunk {chunk.sha256[:12]}… is damaged: {error}", chunk.sha256) from error


def in_threads(work: Callable[[T], R], items: Sequence[T], threads: int, pace: Pace | None = None) -> Iterator[R]:
    """Results in order, with at most `2 * threads` items under way or waiting to be taken; the first error ends it.

    `pace`: says how many threads instead; those that it adds while it runs start in the thread that hurries it.
    Its threads are plain ones: an executor takes nothing more once the interpreter begins to end, while the last save is still uploaded.
    """
    most = FULL_THREADS if pace is not None else threads
    if most <= 1 or len(items) <= 1:
        yield from map(work, items)
        return
    queue: SimpleQueue[tuple[Future[R], T] | None] = SimpleQueue()
    workers: list[Thread] = []
    waiting: list[Future[R]] = []

    def start(count: int) -> None:
        new = [Thread(target=_work, args=(work, queue), name="chunks", daemon=True) for _ in range(min(count, len(items)))]
        for worker in new:
            worker.start()
        workers.extend(new)

    def submit(item: T) -> None:
        waiting.append(Future())
        queue.put((waiting[-1], item))

    try:
        with pace.watched(lambda: start(FULL_THREADS - BACKGROUND_THREADS)) if pace is not None else nullcontext() as full:
            start(threads if pace is None else FULL_THREADS if full else BACKGROUND_THREADS)
            yield from _results(items, most, waiting, submit)
    finally:
        for future in waiting:
            future.cancel()
        for _ in workers:
            queue.put(None)
        for worker in workers:
            worker.join()


def _results(items: Sequence[T], most: int, waiting: "list[Future[R]]", submit: Callable[[T], None]) -> Iterator[R]:
    rest = iter(items)
    for item in islice(rest, 2 * most):
        submit(item)
    while waiting:
        yield waiting.pop(0).result()
        for item in islice(rest, 1):
            submit(item)


def _work(work: Callable[[T], R], queue: "SimpleQueue[tuple[Future[R], T] | None]") -> None:
    while (taken := queue.get()) is not None:
        future, item = taken
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(work(item))
        except BaseException as error:
            future.set_exception(error)
