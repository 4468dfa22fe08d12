"""Differences between the code archives of two jobs, file by file, as unified diffs.

Holds: nothing is unpacked to disk or run. Archives are what users sent: how much of them is read, unpacked and compared line by line is
bounded, and what is beyond a bound is said to differ, without its lines.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

MOST_ARCHIVE_BYTES = 64 * 2**20
MOST_CONTENT_BYTES = 256 * 2**20
MOST_FILES = 20_000
MOST_TEXT_BYTES = 256 * 2**10
MOST_TEXTS_BYTES = 32 * 2**20
MOST_LINES = 4000
MOST_DIFF_CHARS = 400_000
MOST_LISTED = 500
PIECE_BYTES = 2**20


class UnreadableArchiveError(ValueError):
    """An archive is damaged, or larger than what is compared."""


@dataclass(frozen=True)
class ArchivedFile:
    """One file of an archive; `text` None: not text, or too long to be shown."""

    sha256: str
    size_bytes: int
    text: str | None


class _Bounded(io.RawIOBase):
    """The unpacked bytes of an archive, up to a bound."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = gzip.GzipFile(fileobj=file)
        self._left = MOST_CONTENT_BYTES

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(min(size, PIECE_BYTES) if size >= 0 else PIECE_BYTES)
        self._left -= len(piece)
        if self._left < 0:
            raise UnreadableArchiveError(f"it has more than {MOST_CONTENT_BYTES >> 20} MiB of files")
        return piece


def files_of(archive: bytes) -> dict[str, ArchivedFile]:
    """Files of an archive (tar.gz) by path. Raises UnreadableArchiveError."""
    found: dict[str, ArchivedFile] = {}
    texts_bytes = 0
    try:
        with tarfile.open(fileobj=_Bounded(io.BytesIO(archive)), mode="r|", bufsize=2**16) as tar:
            for member in tar:
                if len(found) >= MOST_FILES:
                    raise UnreadableArchiveError(f"it has more than {MOST_FILES} files")
                if member.issym() or member.islnk():
                    found[member.name] = _link(member.linkname)
                elif member.isfile() and (file := tar.extractfile(member)) is not None:
                    one = _read(file, member.size, texts_bytes < MOST_TEXTS_BYTES)
                    texts_bytes += len(one.text or "")
                    found[member.name] = one
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        if isinstance(error, UnreadableArchiveError):
            raise
        raise UnreadableArchiveError(f"it is damaged: {error}") from error
    return found


def _link(target: str) -> ArchivedFile:
    text = f"link to {target}\n"
    return ArchivedFile(hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest(), 0, text)


def _read(file: IO[bytes], size_bytes: int, as_text: bool) -> ArchivedFile:
    digest, kept = hashlib.sha256(), bytearray()
    while piece := file.read(PIECE_BYTES):
        digest.update(piece)
        if as_text and size_bytes <= MOST_TEXT_BYTES:
            kept += piece
    text = None
    if as_text and size_bytes <= MOST_TEXT_BYTES and b"\0" not in kept:
        try:
            text = kept.decode()
        except UnicodeDecodeError:
            text = None
    return ArchivedFile(digest.hexdigest(), size_bytes, text)


def differing_files(left: Mapping[str, ArchivedFile], right: Mapping[str, ArchivedFile]) -> dict[str, Any]:
    """{files: [{path, change, size_bytes of each, diff}], more}: files that differ, by path; `diff` None where lines are not shown; `more`:
    how many are not listed. Pure."""
    paths = sorted(path for path in left.keys() | right.keys() if _hash(left, path) != _hash(right, path))
    room, files = MOST_DIFF_CHARS, []
    for path in paths[:MOST_LISTED]:
        old, new = left.get(path), right.get(path)
        diff = _diff(path, old, new)
        if diff is not None and len(diff) > room:
            diff = None
        room -= len(diff or "")
        sizes = {"left_bytes": old and old.size_bytes, "right_bytes": new and new.size_bytes}
        change = "added" if old is None else "removed" if new is None else "changed"
        files.append({"path": _shown(path), "change": change, "diff": diff} | sizes)
    return {"files": files, "more": len(paths) - len(files)}


def _hash(files: Mapping[str, ArchivedFile], path: str) -> str | None:
    return files[path].sha256 if path in files else None


def _diff(path: str, old: ArchivedFile | None, new: ArchivedFile | None) -> str | None:
    if (old is not None and old.text is None) or (new is not None and new.text is None):
        return None
    before, after = [(one.text or "").splitlines() if one is not None else [] for one in (old, new)]
    if max(len(before), len(after)) > MOST_LINES:
        return None
    name = _shown(path)
    return "\n".join(_lines(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm="")))


def _lines(lines: Iterator[str]) -> Iterator[str]:
    return (_shown(line) for line in lines)


def _shown(text: str) -> str:
    """Text that JSON can carry: names in an archive may be no UTF-8."""
    return text.encode("utf-8", "replace").decode()
