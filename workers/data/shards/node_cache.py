"""Cache on a node's disk, shared by its processes: pieces of shards and their indexes, by name, bounded in bytes.

Holds: a piece has its name only once it is written, so a killed process leaves none that is read; one process fetches a piece while the
others wait for it; what was not used longest goes first. All locks are the kernel's, which end with the process that holds them.
Never: fails because the disk does: a piece that cannot be written is passed on, with a warning, and the cache is tried again later. Uses a
folder that another user may change, nor follows a link in it.
"""

import errno
import fcntl
import os
import shutil
import stat
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from trainhouse.workers.data.errors import InvalidDataError

LOCKS: Final = 64
TRIED_AGAIN_S: Final = 60.0
_TOUCHED_S: Final = 10.0
_KEPT: Final = 0.9
"""Share of its bytes that a full cache keeps, so that it is not cleaned for each piece."""
_PART: Final = ".part"
_LOCK: Final = ".lock"
_SPACE: Final = f"space{_LOCK}"
_COUNT: Final = "space.count"
_SAFELY: Final = os.O_CLOEXEC | os.O_NOFOLLOW

Fetch = Callable[[], bytes]


class NodeCache:
    """Files of one folder. Safe to share by threads and processes; `most_bytes` is that of all who share it."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        if most_bytes < 1:
            raise InvalidDataError(f"a cache of {most_bytes} bytes: give at least 1, or no cache")
        self.folder, self.most_bytes = folder, most_bytes
        self._off_until_s = 0.0
        self._checked = False

    @classmethod
    def of_free_bytes(cls, folder: Path, share: float) -> "NodeCache":
        """A cache of this share of the disk's free bytes, its own pieces among them: so it is as large when it is opened again."""
        there = next((each for each in (folder, *folder.parents) if each.is_dir()), Path("/"))
        own_bytes = 0
        with suppress(OSError):  # of a folder that cannot be used nothing counts
            _check(folder)
            own_bytes = _counted(folder)
        return cls(folder, max(1, int(share * (shutil.disk_usage(there).free + own_bytes))))

    @property
    def is_on(self) -> bool:
        """Whether pieces are kept now: not for a while after the disk refused one."""
        return time.monotonic() >= self._off_until_s

    def get(self, name: str, start: int = 0, length_bytes: int | None = None) -> bytes | None:
        """Bytes of a piece, None where there is none; without a length all of them."""
        try:
            self._make_folder()
        except OSError as error:
            self._refused(error)
            return None
        try:
            fd = os.open(self.folder / name, os.O_RDONLY | _SAFELY)
        except OSError:
            return None
        try:
            found = os.fstat(fd)
            if time.time() - found.st_mtime > _TOUCHED_S:
                with suppress(OSError):  # a disk that is read-only
                    os.utime(fd)
            return os.pread(fd, found.st_size if length_bytes is None else length_bytes, start)
        except OSError as error:
            self._refused(error)
            return None
        finally:
            os.close(fd)

    def get_or_fetch(self, name: str, fetch: Fetch, start: int = 0, length_bytes: int | None = None) -> bytes:
        """Bytes of the piece, which is fetched and kept where it is not there. What `fetch` raises comes through."""
        part = slice(start, None if length_bytes is None else start + length_bytes)
        content = self.get(name, start, length_bytes)
        if content is not None:
            return content
        if not self.is_on:
            return fetch()[part]
        try:
            lock = self._lock(f"{_bucket(name)}{_LOCK}")
        except OSError as error:
            self._refused(error)
            return fetch()[part]
        with _released(lock):
            content = self.get(name, start, length_bytes)  # another process may have fetched it meanwhile
            if content is None:
                whole = fetch()
                self._put(name, whole)
                content = whole[part]
        return content

    def drop(self, name: str) -> None:
        """Removes a piece, if it is there."""
        try:
            with _released(self._lock(_SPACE)):
                (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            self._refused(error)

    def _put(self, name: str, content: bytes) -> None:
        if len(content) > self.most_bytes:
            return
        scratch = self.folder / f".{uuid.uuid4().hex}{_PART}"
        try:
            with _released(self._lock(_SPACE)):
                self._make_room(len(content))
                try:
                    _write(scratch, content, os.O_EXCL)
                    os.replace(scratch, self.folder / name)
                except OSError:
                    scratch.unlink(missing_ok=True)
                    raise
        except OSError as error:
            self._refused(error)

    def _make_room(self, length_bytes: int) -> None:
        """Counts bytes that come, and removes old pieces where they would be too many. A killed process has at most counted too much."""
        used = _counted(self.folder) + length_bytes
        if used > self.most_bytes or used == length_bytes:  # nothing is counted: what is there is not known
            used = self._clean(length_bytes) + length_bytes
        _write(self.folder / _COUNT, b"%d" % used, os.O_TRUNC)

    def _clean(self, length_bytes: int) -> int:
        """Removes what was not used longest until the coming bytes have room; returns the bytes that are left."""
        found: list[tuple[float, int, str]] = []
        for entry in os.scandir(self.folder):
            if not entry.name.endswith(_LOCK) and entry.name != _COUNT:
                stat = entry.stat(follow_symlinks=False)
                # All are written under the lock that is held here, so the writer of this one was killed.
                found.append((0.0 if entry.name.endswith(_PART) else stat.st_mtime, stat.st_size, entry.path))
        used = sum(size for _, size, _ in found)
        room = min(int(self.most_bytes * _KEPT), self.most_bytes - length_bytes)
        for _, size, path in sorted(found):
            if used <= room:
                break
            Path(path).unlink(missing_ok=True)
            used -= size
        return used

    def _lock(self, name: str) -> int:
        """A file's exclusive lock, held until it is closed."""
        self._make_folder()
        fd = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | _SAFELY, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _make_folder(self) -> None:
        """Makes the folder, or checks the one that is there. Raises OSError."""
        if not self._checked:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check(self.folder)
            self._checked = True

    def _refused(self, error: OSError) -> None:
        if self.is_on:
            print(
                f"trainhouse: the cache of shards in {self.folder} cannot be used ({error.strerror or error}); samples come straight "
                f"from the store, and the cache is tried again in {TRIED_AGAIN_S:.0f} s; free space there, or give it another folder",
                file=sys.stderr,
                flush=True,
            )
        self._off_until_s = time.monotonic() + TRIED_AGAIN_S


def _check(folder: Path) -> None:
    """Raises OSError where another user may change what is in the folder."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "it must be a folder of this user's own that no other may write to")


def _counted(folder: Path) -> int:
    try:
        fd = os.open(folder / _COUNT, os.O_RDONLY | _SAFELY)
        with open(fd, "rb") as file:
            return int(file.read(32))
    except (OSError, ValueError):
        return 0


def _write(path: Path, content: bytes, flags: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | flags | _SAFELY, 0o600), "wb") as file:
        file.write(content)


def _bucket(name: str) -> int:
    return sum(name.encode()) % LOCKS


@contextmanager
def _released(fd: int) -> Iterator[None]:
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # closing alone leaves it with a process that was forked meanwhile
        os.close(fd)
