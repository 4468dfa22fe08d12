"""The process that uploads for one rank: `python -m trainhouse.checkpointing.uploading.upload_process SOCKET ARENA`, or a fork.

Holds: it reads staged memory, hashes it and talks to the object store; it ends when its rank does, whatever way that ends. Signals that
end a gang pass it by: the rank decides when it ends.
Never: touches a tensor, a process group or a device; writes to the rank's output.
"""

import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection

from trainhouse.checkpointing.chain.chunks import ChunkStore
from trainhouse.checkpointing.errors import CheckpointError, SaveFailedError
from trainhouse.checkpointing.lease.signed_store import open_store
from trainhouse.checkpointing.peer_memory.holder_client import ChunkCopier, Source
from trainhouse.checkpointing.peer_memory.peers import Grant
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.object_store import Body, ObjectStore
from trainhouse.checkpointing.uploading.uploaded import Uploaded

NICE = 5
"""Of lower priority than training, which has the processor first."""
LOOK_S = 0.5
BEAT_S = 1.0


@dataclass(frozen=True)
class Upload:
    """One request. `places`: offset and size in bytes of each body in an arena of `arena_bytes`. `copies`: who holds them, too."""

    job_id: str
    grace_s: float
    arena_bytes: int
    places: tuple[tuple[int, int], ...]
    named: frozenset[str]
    distrusted: frozenset[str] = field(default_factory=frozenset)
    copies: tuple[Grant, Source] | None = None


def serve(connection: Connection, arena_fd: int, rank_pid: int) -> None:
    """Answers requests until the rank is gone."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(rank_pid,), daemon=True).start()
    os.nice(NICE)
    try:
        settings = connection.recv()
        _answer_all(connection, arena_fd, open_store(settings) if isinstance(settings, StoreSettings) else settings)
    except (EOFError, OSError):
        return


def _end_with(rank_pid: int) -> None:
    """Ends this process when the rank is gone: the kernel's signal for that would come when the thread that started it ends."""
    while os.getppid() == rank_pid:
        time.sleep(LOOK_S)
    os._exit(0)


def _answer_all(connection: Connection, arena_fd: int, objects: ObjectStore) -> None:
    mapped: mmap.mmap | None = None
    while True:
        request: Upload = connection.recv()
        if mapped is None or len(mapped) != request.arena_bytes:
            mapped = mmap.mmap(arena_fd, request.arena_bytes, prot=mmap.PROT_READ)
        with _beats(connection):
            answer = _answer(request, [memoryview(mapped)[offset : offset + size] for offset, size in request.places], objects)
        connection.send(answer)


@contextmanager
def _beats(connection: Connection) -> Iterator[None]:
    """Sends None every BEAT_S: how long a chunk takes is the store's affair, whether this process runs at all is the rank's."""
    ended = threading.Event()

    def beat() -> None:
        with suppress(OSError):
            while not ended.wait(BEAT_S):
                connection.send(None)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _answer(request: Upload, bodies: list[Body], objects: ObjectStore) -> Uploaded | CheckpointError:
    chunks = ChunkStore(objects, request.job_id, request.grace_s)
    for sha256 in request.distrusted:
        chunks.distrust(sha256)
    try:
        if request.copies is None:
            return Uploaded(chunks.send(bodies, request.named))
        return _copied(chunks, bodies, request.named, ChunkCopier(*request.copies))
    except CheckpointError as error:
        return error
    except Exception as error:
        return SaveFailedError(f"the upload failed: {type(error).__name__}: {error}")


def _copied(chunks: ChunkStore, bodies: list[Body], named: frozenset[str], copier: ChunkCopier) -> Uploaded:
    """Uploads, and copies to a holder at the same time."""
    try:
        sent = chunks.send(bodies, named, copier.offer)
    finally:
        copied = copier.finish()
    return Uploaded([replace(s, holder=copied.node_id) if s.chunk.sha256 in copied.hashes else s for s in sent], copied.why)


def main() -> None:
    """Serves the rank that started this interpreter."""
    socket_fd, arena_fd = map(int, sys.argv[1:3])
    serve(Connection(socket_fd), arena_fd, os.getppid())


if __name__ == "__main__":
    main()
