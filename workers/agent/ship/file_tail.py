"""Follows one file of a rank: reads what is new, and remembers how far the brokers hold it.

Holds: `acked` never passes a byte whose records are not all acked, so a restarted agent begins there and nothing is lost.
Never: reads more than one piece at a time.
"""

import ctypes
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainhouse.workers.untrusted import open_plain

PIECE_BYTES = 256 * 1024
PAGE_BYTES = 4096
FREE_BYTES = 4 * 2**20
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01


@dataclass(slots=True)
class _Piece:
    end: int
    unacked: int


class FileTail:
    """Positions in one file. `sent` is where the next piece begins."""

    def __init__(self, path: Path | Callable[[], Path], position: int = 0) -> None:
        self._where = path
        self.acked = position
        self.sent = position
        self.size = position
        self._fd = -1
        self._freed = 0
        self._pieces: deque[_Piece] = deque()

    @property
    def path(self) -> Path:
        """Current path of the file: a rank's folder may be laid out only after its tail was made."""
        return self._where if isinstance(self._where, Path) else self._where()

    def look(self) -> int:
        """Bytes that are new by now; 0 while the file does not exist, or is none: a rank may put a link there."""
        try:
            if self._fd < 0:
                self._fd = open_plain(self.path)
            self.size = os.fstat(self._fd).st_size
        except OSError:
            return 0
        return max(0, self.size - self.sent)

    def read(self, limit: int = PIECE_BYTES) -> bytes:
        """The next piece, from `sent` on."""
        if self._fd < 0:
            self._fd = open_plain(self.path)
        return os.pread(self._fd, limit, self.sent)

    def advance(self, end: int, records: int) -> Callable[[], None]:
        """The bytes up to `end` are in `records` records; call the result once for each ack."""
        piece = _Piece(end, records)
        self.sent = end
        self._pieces.append(piece)
        self._settle()

        def acked() -> None:
            piece.unacked -= 1
            self._settle()

        return acked

    def skip_to(self, position: int) -> None:
        """Passes over bytes that will not be sent, and gives their disk space back where the file system can."""
        if self._fd >= 0 and position > self.sent:
            begin, end = -(-self.sent // PAGE_BYTES) * PAGE_BYTES, position // PAGE_BYTES * PAGE_BYTES
            if end > begin:
                _punch(self.path, begin, end - begin)
        self.advance(position, 0)

    def free(self, before: int, at_least: int = FREE_BYTES) -> None:
        """Gives the disk space of the bytes before `before` back, once there is enough of it: nobody will read them again."""
        end = before // PAGE_BYTES * PAGE_BYTES
        if end - self._freed >= at_least:
            _punch(self.path, self._freed, end - self._freed)
            self._freed = end

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _settle(self) -> None:
        while self._pieces and self._pieces[0].unacked <= 0:
            self.acked = self._pieces.popleft().end


def _punch(path: Path, offset: int, length: int) -> None:
    """Frees a range of a file without changing its size; a file system that cannot just keeps it."""
    try:
        fd = open_plain(path, os.O_WRONLY)
    except OSError:
        return
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(length))
    finally:
        os.close(fd)
