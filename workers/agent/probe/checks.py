"""Checks of a self test on any node: network, disk, memory, processors, the way to the object store, the clock.

Holds: each check says what it found, or raises CheckFailedError with what is wrong. Sizes are bounded: a healthy node takes some seconds
for all.
Never: leaves a file or an object behind.
"""

import os
import socket
import threading
import time
import uuid
from pathlib import Path

import numpy as np
import psutil

from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore

MIB = 2**20
DISK_BYTES = 16 * MIB
MEMORY_BYTES = 256 * MIB
NETWORK_BYTES = 4 * MIB
PATTERNS = (0x0000000000000000, 0xFFFFFFFFFFFFFFFF, 0xAAAAAAAAAAAAAAAA, 0x5555555555555555)
SIDE = 256
PRODUCTS = 4
SOCKET_TIMEOUT_S = 10.0
STORE_DEADLINE_S = 15.0
CLOCK_OFF_S = 30.0


class CheckFailedError(Exception):
    """A check failed; the text says what is wrong."""


def network(address: str, size: int = NETWORK_BYTES) -> str:
    """Checks that bytes sent to the address at which other nodes reach this one come back whole. Blocks."""
    family = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0][0]
    sent, received = os.urandom(size), bytearray()
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind((address, 0))
        listener.listen(1)
        listener.settimeout(SOCKET_TIMEOUT_S)
        sender = threading.Thread(target=_send, args=(listener.getsockname()[:2], sent), daemon=True)
        sender.start()
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(SOCKET_TIMEOUT_S)
            while piece := peer.recv(MIB):
                received += piece
        sender.join(SOCKET_TIMEOUT_S)
    if received != sent:
        raise CheckFailedError(f"of {size} bytes sent to {address}, {len(received)} came, and they differ")
    return f"{size // MIB} MiB by {address}"


def _send(to: tuple[str, int], content: bytes) -> None:
    with socket.create_connection(to, SOCKET_TIMEOUT_S) as client:
        client.sendall(content)


def disk(folder: str, size: int = DISK_BYTES) -> str:
    """Checks that synced bytes are read back from the disk itself, as far as the system drops its own copy. Blocks."""
    path, content = Path(folder) / f".probe-{uuid.uuid4().hex}", os.urandom(size)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        began_s = time.monotonic()
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
        took_s = max(1e-9, time.monotonic() - began_s)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        read = b"".join(os.pread(fd, MIB, at) for at in range(0, size, MIB))
    finally:
        os.close(fd)
        path.unlink()
    if read != content:
        raise CheckFailedError(f"a file in {folder} reads otherwise than it was written")
    return f"{size // MIB} MiB written and synced at {size / MIB / took_s:.0f} MiB/s"


def memory(size: int = MEMORY_BYTES) -> str:
    """A block keeps every pattern that is written to it, and each of its words its own number. Blocks."""
    size = min(size, psutil.virtual_memory().available // 8)
    block = np.empty(size // 8, dtype=np.uint64)
    for pattern in PATTERNS:
        block.fill(pattern)
        _all_equal(block, np.uint64(pattern))
    numbers = np.arange(block.size, dtype=np.uint64)
    block[:] = numbers
    _all_equal(block, numbers)
    return f"{size // MIB} MiB, {len(PATTERNS) + 1} patterns"


def _all_equal(block: "np.ndarray[tuple[int], np.dtype[np.uint64]]", expected: object) -> None:
    wrong = np.flatnonzero(block != expected)
    if wrong.size:
        raise CheckFailedError(f"{wrong.size} words of memory changed, the first at {int(wrong[0]) * 8}")


def processors() -> str:
    """Each processor multiplies two matrices of whole numbers; the product is known and exact in any order of sums. Blocks."""
    allowed = sorted(os.sched_getaffinity(0))
    try:
        wrong = [number for number in allowed if not _multiplies(number)]
    finally:
        os.sched_setaffinity(0, allowed)
    if wrong:
        raise CheckFailedError(f"wrong products on processors {', '.join(map(str, wrong))}")
    return f"{PRODUCTS} exact products on each of {len(allowed)}"


def _multiplies(processor: int) -> bool:
    os.sched_setaffinity(0, {processor})
    row, column = np.arange(SIDE, dtype=np.float64)[:, None], np.arange(SIDE, dtype=np.float64)[None, :]
    left, right = row + 2 * column, 3 * row - column
    # Sums over k of (i + 2k)(3k - j), by the sums of k and of k squared.
    ones, squares = SIDE * (SIDE - 1) // 2, (SIDE - 1) * SIDE * (2 * SIDE - 1) // 6
    expected = 3 * ones * row - SIDE * row * column + 6 * squares - 2 * ones * column
    return all(np.array_equal(left @ right, expected) for _ in range(PRODUCTS))


def store(node_id: str) -> str:
    """An object is written, read and removed. Blocks up to STORE_DEADLINE_S for each."""
    settings = _store_settings()
    target, key, content = S3ObjectStore(settings), f"probes/{node_id}/{uuid.uuid4().hex}", os.urandom(1024)
    began_s = time.monotonic()
    target.put(key, content)
    try:
        if target.get(key) != content:
            raise CheckFailedError(f"{target.address} gave back another object than was put there")
    finally:
        target.delete(key)
    return f"{target.address} in {time.monotonic() - began_s:.2f} s"


def clock() -> str:
    """This machine's clock is near the object store's. Blocks."""
    target, key = S3ObjectStore(_store_settings()), f"probes/clock-{uuid.uuid4().hex}"
    target.put(key, b"")
    try:
        stat = target.stat(key)
    finally:
        target.delete(key)
    if stat is None:
        raise CheckFailedError(f"{target.address} has lost an object at once")
    off_s = time.time() - stat.asked_s
    if abs(off_s) > CLOCK_OFF_S:
        raise CheckFailedError(f"the clock is {off_s:+.0f} s off that of {target.address}; is its time service running?")
    return f"{off_s:+.1f} s off the store's"


def _store_settings() -> StoreSettings:
    return StoreSettings().model_copy(update={"deadline_s": STORE_DEADLINE_S})
