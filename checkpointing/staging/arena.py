"""Host memory that saves are staged in: kept from one save to the next, and read by the process that uploads.

Holds: it grows, and is never replaced while it is large enough; all of it is allocated when `reserve` returns, so that no write to it can
fail. It has no name in any folder, so that a full or missing /dev/shm does not matter.
"""

import mmap
import os
import weakref
from collections.abc import Iterator

import torch

ROUND_BYTES = 2 * 2**20
BLOCK_BYTES = 16 * 2**20
"""Of `grow`: some milliseconds each."""


class Arena:
    """One such memory. `shared`: another process may map it by its file descriptor."""

    def __init__(self) -> None:
        self.shared = hasattr(os, "memfd_create")
        self.fd = os.memfd_create("trainhouse-staging", os.MFD_CLOEXEC) if self.shared else -1
        self._close_fd = weakref.finalize(self, os.close, self.fd) if self.shared else _nothing
        self.size_bytes = 0
        self._allocated_bytes = 0
        self._mapped: mmap.mmap | None = None
        self._whole = torch.empty(0, dtype=torch.uint8)

    def reserve(self, size_bytes: int) -> None:
        """Makes it at least so large, mapped anew if it has to be. Goes on where `grow` was left. Raises OSError where memory is short."""
        if size_bytes <= self._allocated_bytes:
            return
        asked = _rounded(size_bytes)
        goal = max(asked, self.size_bytes)
        try:
            self._allocate(goal - self._allocated_bytes)
        except OSError:
            if goal == asked:
                raise
            goal = asked  # less than `grow` was asked for
            self._allocate(goal - self._allocated_bytes)
        if goal > self.size_bytes:
            self._map(goal)

    def grow(self, size_bytes: int) -> Iterator[None]:
        """As `reserve`, a block at each step, and its pages are this process's then: writing to them is a plain copy.

        Of one thread, which may leave it at any step; what it asks the kernel for is asked without the interpreter.
        """
        if size_bytes > self.size_bytes:
            if self.shared:
                os.ftruncate(self.fd, _rounded(size_bytes))
            self._map(_rounded(size_bytes))
        while self._allocated_bytes < self.size_bytes:
            begin = self._allocated_bytes
            self._allocate(min(BLOCK_BYTES, self.size_bytes - begin))
            self._whole[begin : self._allocated_bytes : mmap.PAGESIZE].zero_()
            yield

    def _allocate(self, more_bytes: int) -> None:
        try:
            if self.shared:
                os.posix_fallocate(self.fd, self._allocated_bytes, more_bytes)
        except OSError:
            if self.size_bytes > self._allocated_bytes:
                self._map(self._allocated_bytes)  # without what there is no memory for
            raise
        self._allocated_bytes += more_bytes

    def _map(self, size_bytes: int) -> None:
        self._mapped = mmap.mmap(self.fd, size_bytes) if size_bytes else None
        self._whole = torch.empty(0, dtype=torch.uint8) if self._mapped is None else torch.frombuffer(self._mapped, dtype=torch.uint8)
        self.size_bytes = size_bytes

    @property
    def whole(self) -> torch.Tensor:
        """All of it, as bytes."""
        return self._whole

    def tensor(self, offset: int, size_bytes: int) -> torch.Tensor:
        """A range of it, as bytes to write to."""
        return self._whole[offset : offset + size_bytes]

    def view(self, offset: int, size_bytes: int) -> memoryview:
        """A range of it, as bytes to read."""
        if self._mapped is None and size_bytes:
            raise ValueError("there is no memory: nothing was staged, or it was given back")
        return memoryview(b"") if self._mapped is None else memoryview(self._mapped)[offset : offset + size_bytes]

    def close(self) -> None:
        """Gives the memory back once nothing refers to it."""
        self._map(0)
        self._allocated_bytes = 0
        self._close_fd()  # once, however often it is called
        self.fd, self.shared = -1, False


def _rounded(size_bytes: int) -> int:
    return -(-size_bytes // ROUND_BYTES) * ROUND_BYTES


def _nothing() -> None:
    """Nothing to close."""
