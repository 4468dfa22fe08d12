"""The process that uploads for one rank: `python -m trainhouse.checkpointing.uploading.upload_process SOCKET ARENA`, or a fork.

Holds: it reads staged memory, hashes it and talks to the object store; it ends when its rank does, whatever way that ends. Signals that
end a gang pass it by: the rank decides when it ends. An upload beside training has threads of lower priority; one that the rank hurries
gets more, of the priority of training itself: they are started by a thread that never lowered its own, which no thread may raise again.
Never: touches a tensor, a process group or a device; writes to the rank's output.
"""

import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue

from trainhouse.checkpointing.chain.chunks import ChunkStore
from trainhouse.checkpointing.chain.pace import Pace
from trainhouse.checkpointing.errors import CheckpointError, SaveFailedError
from trainhouse.checkpointing.lease.signed_store import open_store
from trainhouse.checkpointing.peer_memory.holder_client import ChunkCopier
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.object_store import Body, ObjectStore
from trainhouse.checkpointing.uploading.upload_request import Hurry, Upload
from trainhouse.checkpointing.uploading.uploaded import Uploaded

NICE = 5
"""Of lower priority than training, which has the processor first."""
LOOK_S = 0.5
BEAT_S = 1.0


def serve(connection: Connection, arena_fd: int, rank_pid: int) -> None:
    """Answers requests until the rank is gone."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(rank_pid,), daemon=True).start()
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
    requests: SimpleQueue[tuple[Upload, Pace] | None] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    while (taken := requests.get()) is not None:
        request, pace = taken
        if mapped is None or len(mapped) != request.arena_bytes:
            mapped = mmap.mmap(arena_fd, request.arena_bytes, prot=mmap.PROT_READ)
        bodies: list[Body] = [memoryview(mapped)[offset : offset + size] for offset, size in request.places]
        with _beats(connection):
            answer = _in_a_thread(partial(_answer, request, bodies, objects, pace), nice=not pace.full)
        connection.send(answer)


def _receive(connection: Connection, requests: "SimpleQueue[tuple[Upload, Pace] | None]") -> None:
    """Takes requests in, and hurries the one under way, until the rank has closed its end."""
    under_way, pace, hurried = 0, Pace(), 0
    try:
        while True:
            message: Upload | Hurry = connection.recv()
            if isinstance(message, Hurry):
                hurried = message.save
                if hurried == under_way:
                    pace.hurry()
            else:
                under_way, pace = message.save, Pace(full=message.full or message.save == hurried)
                requests.put((message, pace))
    except (EOFError, OSError):
        return
    finally:
        requests.put(None)


def _in_a_thread(work: Callable[[], "Uploaded | CheckpointError"], *, nice: bool) -> "Uploaded | CheckpointError":
    """Does this work in a thread, and in those that it starts, of lower priority where `nice`. Blocks."""
    done: Future[Uploaded | CheckpointError] = Future()

    def run() -> None:
        try:
            if nice:
                os.nice(NICE)  # Linux: of this thread, and of those that it starts
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="upload", daemon=True).start()
    return done.result()


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


def _answer(request: Upload, bodies: list[Body], objects: ObjectStore, pace: Pace) -> Uploaded | CheckpointError:
    chunks = ChunkStore(objects, request.job_id, request.grace_s)
    for sha256 in request.distrusted:
        chunks.distrust(sha256)
    try:
        if request.copies is None:
            return Uploaded(chunks.send(bodies, request.named, pace=pace))
        return _copied(chunks, bodies, request.named, ChunkCopier(*request.copies), pace)
    except CheckpointError as error:
        return error
    except Exception as error:
        return SaveFailedError(f"the upload failed: {type(error).__name__}: {error}")


def _copied(chunks: ChunkStore, bodies: list[Body], named: frozenset[str], copier: ChunkCopier, pace: Pace) -> Uploaded:
    """Uploads, and copies to a holder at the same time."""
    try:
        sent = chunks.send(bodies, named, copier.offer, pace)
    finally:
        copied = copier.finish()
    return Uploaded([replace(s, holder=copied.node_id) if s.chunk.sha256 in copied.hashes else s for s in sent], copied.why)


def main() -> None:
    """Serves the rank that started this interpreter."""
    socket_fd, arena_fd = map(int, sys.argv[1:3])
    serve(Connection(socket_fd), arena_fd, os.getppid())


if __name__ == "__main__":
    main()
