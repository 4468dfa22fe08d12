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
MOST_LINES = 1000
MOST_COMPARED_LINES = 20_000
"""Of all files together: what difflib takes grows faster than the lines."""
MOST_DIFF_CHARS = 400_000
MOST_LISTED = 500
PIECE_BYTES = 2**20
NO_TEXT = "not text, or too large to be shown"
TOO_LARGE = "too large to compare line by line"


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
            for number, member in enumerate(tar):
                if number >= MOST_FILES:
                    raise UnreadableArchiveError(f"it has more than {MOST_FILES} files")
                # Neither a hole nor a length that is only claimed has bytes whose number is bounded: tarfile would count through it.
                if member.issparse():
                    raise UnreadableArchiveError(f"its file {_shown(member.name[:200])} is sparse")
                if max(member.size, tar.offset) > MOST_CONTENT_BYTES:
                    raise UnreadableArchiveError(f"it has more than {MOST_CONTENT_BYTES >> 20} MiB of files")
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
    """{files: [{path, change, size_bytes of each, diff, not_shown}], more}: files that differ, by path; `diff` None where lines are not
    shown, and then `not_shown` says why; `more`: how many are not listed. Pure."""
    paths = sorted(path for path in left.keys() | right.keys() if _hash(left, path) != _hash(right, path))
    room, lines, files = MOST_DIFF_CHARS, MOST_COMPARED_LINES, []
    for path in paths[:MOST_LISTED]:
        old, new = left.get(path), right.get(path)
        diff, why = None, NO_TEXT
        if not any(one is not None and one.text is None for one in (old, new)):
            before, after = _lines_of(old), _lines_of(new)
            diff, why = None, TOO_LARGE
            # Lines of a file that one side alone has are compared with none.
            cost = len(before) + len(after) if before and after else 0
            if room > 0 and cost <= lines and max(len(before), len(after)) <= MOST_LINES:
                lines -= cost
                diff = _diff(path, before, after)
        # What has no place was compared nevertheless: it counts, or each of many files would be.
        room -= len(diff or "")
        if room < 0:
            diff = None
        sizes = {"left_bytes": old and old.size_bytes, "right_bytes": new and new.size_bytes}
        change = "added" if old is None else "removed" if new is None else "changed"
        files.append({"path": _shown(path), "change": change, "diff": diff, "not_shown": why if diff is None else ""} | sizes)
    return {"files": files, "more": len(paths) - len(files)}


def _hash(files: Mapping[str, ArchivedFile], path: str) -> str | None:
    return files[path].sha256 if path in files else None


def _lines_of(one: ArchivedFile | None) -> list[str]:
    return [] if one is None else (one.text or "").splitlines()


def _diff(path: str, before: list[str], after: list[str]) -> str:
    name = _shown(path)
    return "\n".join(_lines(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm="")))


def _lines(lines: Iterator[str]) -> Iterator[str]:
    return (_shown(line) for line in lines)


def _shown(text: str) -> str:
    """Text that JSON can carry: names in an archive may be no UTF-8."""
    return text.encode("utf-8", "replace").decode()
