"""Host memory that saves are staged in: kept from one save to the next, and read by the process that uploads.

Holds: it grows, and is never replaced while it is large enough; all of it is allocated when `reserve` returns, so that no write to it can
fail. It has no name in any folder, so that a full or missing /dev/shm does not matter.
"""

import mmap
import os
import weakref
from collections.abc import Callable

import torch

ROUND_BYTES = 2 * 2**20
Remapped = Callable[[torch.Tensor], None]


class Arena:
    """One such memory. `shared`: another process may map it by its file descriptor."""

    def __init__(self) -> None:
        self.shared = hasattr(os, "memfd_create")
        self.fd = os.memfd_create("trainhouse-staging", os.MFD_CLOEXEC) if self.shared else -1
        self._close_fd = weakref.finalize(self, os.close, self.fd) if self.shared else _nothing
        self.size_bytes = 0
        self._mapped: mmap.mmap | None = None
        self._whole = torch.empty(0, dtype=torch.uint8)

    def reserve(self, size_bytes: int) -> bool:
        """Makes it at least so large; returns whether it is mapped anew. Raises OSError where there is not so much memory."""
        if size_bytes <= self.size_bytes:
            return False
        rounded = -(-size_bytes // ROUND_BYTES) * ROUND_BYTES
        if self.shared:
            os.posix_fallocate(self.fd, 0, rounded)
        self._mapped = mmap.mmap(self.fd, rounded)
        self._whole = torch.frombuffer(self._mapped, dtype=torch.uint8)
        self.size_bytes = rounded
        return True

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
        self._mapped, self._whole, self.size_bytes = None, torch.empty(0, dtype=torch.uint8), 0
        self._close_fd()  # once, however often it is called
        self.fd, self.shared = -1, False


def _nothing() -> None:
    """Nothing to close."""
