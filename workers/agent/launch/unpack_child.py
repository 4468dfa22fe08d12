"""The process that unpacks one archive of code: `python -I -S unpack_child.py FOLDER_FD`, the archive as standard input, one JSON line out.

It reads what somebody else packed, so it is a process of its own with bounds, and may fail in any way: its parent keeps nothing of it then.
Holds: memory, time, files, bytes, depth and the size of headers are bounded. Nothing is written through a link, and no link leads out of
the folder. It imports the standard library alone. Never: trusts an archive's owners, modes, or what it says about sizes.
"""

import bz2
import ctypes
import gzip
import io
import json
import lzma
import os
import resource
import signal
import stat
import sys
import tarfile
from typing import Any, BinaryIO, NoReturn

MEMORY_BYTES = 256 * 1024**2
CPU_S = 300
MAX_BYTES = 8 * 1024**3
MAX_MEMBERS = 200_000
MAX_DEPTH = 64
MAX_NAME_BYTES = 4096
MAX_HEADER_BYTES = 64 * 1024
MAX_GLOBAL_HEADERS = 16
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_COPY_BYTES = 1 << 20


class RefusedError(Exception):
    """The archive is not one that is unpacked; the message says why."""


class Header(tarfile.TarInfo):
    """A header whose extensions have a bound: tarfile reads each whole, whatever its length, and copies global ones into every member."""

    def _proc_pax(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type == tarfile.XGLTYPE:
            seen = getattr(archive, "global_headers", 0) + 1
            archive.global_headers = seen  # type: ignore[attr-defined]
            if seen > MAX_GLOBAL_HEADERS:
                raise RefusedError(f"it has more than {MAX_GLOBAL_HEADERS} global headers")
        self._bound()
        return super()._proc_pax(archive)  # type: ignore[misc, no-any-return]

    def _proc_gnulong(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        self._bound()
        return super()._proc_gnulong(archive)  # type: ignore[misc, no-any-return]

    def _proc_sparse(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        raise RefusedError("it has a sparse file")

    def _bound(self) -> None:
        if not 0 <= self.size <= MAX_HEADER_BYTES:
            raise RefusedError(f"it has a header of {self.size} bytes, more than {MAX_HEADER_BYTES}")


class Unpacker:
    """Fills one folder, given by its descriptor."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._links: list[tuple[tuple[str, ...], str]] = []
        self.members = 0
        self.bytes = 0

    def unpack(self, archive: BinaryIO) -> None:
        """All of it. Raises RefusedError, OSError, or what tarfile raises."""
        with tarfile.open(fileobj=_plain(archive), mode="r|", tarinfo=Header) as tar:
            for member in tar:
                tar.members = []  # type: ignore[attr-defined]  # it would remember all of them
                self.members += 1
                if self.members > MAX_MEMBERS:
                    raise RefusedError(f"it unpacks to more than {MAX_MEMBERS} files")
                self._take(tar, member)
        for path, target in self._links:  # last, so that nothing is ever written through one
            folder = self._folder(path[:-1])
            try:
                _make_way(path[-1], folder)
                os.symlink(target, path[-1], dir_fd=folder)
            finally:
                os.close(folder)

    def _take(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = _parts(member.name)
        if member.issparse() or any(key.startswith("GNU.sparse") for key in member.pax_headers):
            raise RefusedError(f"{member.name[:200]!r} is a sparse file")
        if member.isdir():
            os.close(self._folder(path))
        elif member.issym():
            self._links.append((path, _inside(path, member)))
        elif member.islnk():
            self._hard_link(path, _parts(member.linkname))
        elif member.isreg() and path:
            self._file(path, member, tar.extractfile(member))
        else:
            raise RefusedError(f"{member.name[:200]!r} is neither a file, a folder nor a link")

    def _file(self, path: tuple[str, ...], member: tarfile.TarInfo, content: Any) -> None:
        self._room_for(member.size)
        folder = self._folder(path[:-1])
        try:
            _make_way(path[-1], folder)
            mode = 0o755 if member.mode & stat.S_IXUSR else 0o644
            fd = os.open(path[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
            with open(fd, "wb") as file:
                while piece := content.read(_COPY_BYTES):
                    self._room_for(len(piece))
                    self.bytes += file.write(piece)
                if 0 <= member.mtime < 2**33:
                    file.flush()
                    os.utime(fd, (member.mtime, member.mtime))
        finally:
            os.close(folder)

    def _room_for(self, size: int) -> None:
        if size < 0 or self.bytes + size > MAX_BYTES:
            raise RefusedError(f"it unpacks to more than {MAX_BYTES / 2**30:.0f} GiB")

    def _hard_link(self, path: tuple[str, ...], source: tuple[str, ...]) -> None:
        if not path or not source:
            raise RefusedError("a hard link names no file")
        into, of = self._folder(path[:-1]), self._folder(source[:-1])
        try:
            if not stat.S_ISREG(os.stat(source[-1], dir_fd=of, follow_symlinks=False).st_mode):
                raise RefusedError(f"a hard link to {'/'.join(source)[:200]!r}, which is no file")
            if path != source:
                _make_way(path[-1], into)
                os.link(source[-1], path[-1], src_dir_fd=of, dst_dir_fd=into, follow_symlinks=False)
        finally:
            os.close(into)
            os.close(of)

    def _folder(self, path: tuple[str, ...]) -> int:
        """A descriptor of that folder, made where it is not there. Never goes through a link."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        at = os.open(".", flags, dir_fd=self._root)
        for name in path:
            try:
                try:
                    os.mkdir(name, 0o755, dir_fd=at)
                except FileExistsError:
                    pass
                below = os.open(name, flags, dir_fd=at)
            finally:
                os.close(at)
            at = below
        return at


def _parts(name: str) -> tuple[str, ...]:
    """The path in the folder. Raises RefusedError for one that leads out."""
    if name.startswith("/") or len(os.fsencode(name)) > MAX_NAME_BYTES:
        raise RefusedError(f"{name[:200]!r} is an absolute path, or longer than {MAX_NAME_BYTES} bytes")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts or "\0" in name or len(parts) > MAX_DEPTH:
        raise RefusedError(f"{name[:200]!r} leads out of its folder, or is deeper than {MAX_DEPTH} folders")
    return parts


def _inside(path: tuple[str, ...], member: tarfile.TarInfo) -> str:
    """The target of a link, if that is inside however the links on the way lead: `..` stands in front only, and not too often."""
    target = member.linkname
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    if not path or target.startswith("/") or "\0" in target or up > len(path) - 1 or ".." in parts[up:] or len(target) > MAX_NAME_BYTES:
        raise RefusedError(f"the link {member.name[:200]!r} leads to {target[:200]!r}, out of its folder")
    return target


def _make_way(name: str, folder: int) -> None:
    """Removes an entry of that name, as later members of an archive replace earlier ones; a folder stays."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass


def _plain(archive: BinaryIO) -> Any:
    """The content without compression, as a stream."""
    buffered = io.BufferedReader(archive) if isinstance(archive, io.RawIOBase) else archive
    head = buffered.peek(6)[:6]  # type: ignore[attr-defined]
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=buffered)
    if head.startswith(b"BZh"):
        return bz2.BZ2File(buffered)
    return lzma.LZMAFile(buffered, format=lzma.FORMAT_AUTO) if head.startswith(b"\xfd7zXZ\0") else buffered


def _bound() -> None:
    """Bounds of this process, which hold until it ends."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for what, most in [
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_FSIZE, MAX_BYTES),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ]:
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def main() -> NoReturn:
    """Unpacks, tells how it went, and ends."""
    _bound()
    unpacker = Unpacker(int(sys.argv[1]))
    result: dict[str, Any] = {}
    code = 1
    try:
        unpacker.unpack(sys.stdin.buffer)
        result, code = {"members": unpacker.members, "bytes": unpacker.bytes}, 0
    except MemoryError:
        result = {"error": f"unpacking it takes more than {MEMORY_BYTES // 2**20} MiB of memory"}
    except RefusedError as error:
        result = {"error": str(error)}
    except OSError as error:
        result = {"error": f"{type(error).__name__}: {error}", "errno": error.errno}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
    try:
        print(json.dumps(result), flush=True)
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
