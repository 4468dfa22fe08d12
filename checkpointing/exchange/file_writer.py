"""Writing of planned files from the chunks of a store.

Holds: memory is bounded by MEMORY_BYTES whatever the sizes of tensors, chunks and files; each chunk of a file is read once, in blocks that
are fetched side by side, and checked against its hash. A file is complete only once `write` returned: bytes are written before they are
known to be sound. With a record of progress, a file that was cut off goes on from the chunks that are sound in it.
"""

import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainhouse.checkpointing.chain.chunks import THREADS, ChunkStore, in_threads, prefix_of
from trainhouse.checkpointing.chain.manifest import Chunk, Manifest
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.exchange.file_plan import FilePlan, Placed
from trainhouse.checkpointing.state.state_tree import some_of

BLOCK_BYTES = 8 * 2**20
MEMORY_BYTES = 4 * THREADS * BLOCK_BYTES
"""The most that data under way takes: of each thread a block, and copies of it in the libraries that fetch it."""


@dataclass(frozen=True)
class WrittenFile:
    """A file that was written. `sha256`: empty where it was not hashed as a whole."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Block:
    """So many bytes of a chunk, which has this number, from `at` on."""

    chunk: int
    at: int
    size_bytes: int


class FileProgress(Protocol):
    """Record of the chunks that files have, which outlasts the process."""

    def digest(self, file: str, chunk: int) -> str | None:
        """Hash of the bytes that the file had of a chunk when it was noted; None: it was not."""
        ...

    def note(self, file: str, chunk: int, digest: str) -> None:
        """Records that the file has its bytes of a chunk, which have this hash."""
        ...


class FileWriter:
    """Writes the files of one manifest's export. `progress`: where files go on from; these are not hashed as a whole, since each of their
    chunks was. Blocks."""

    def __init__(self, manifest: Manifest, chunks: ChunkStore, progress: FileProgress | None = None) -> None:
        self._manifest = manifest
        self._chunks = chunks
        self._progress = progress

    def write(self, plan: FilePlan, folder: Path) -> WrittenFile:
        """Writes one file and flushes it to disk. Raises DamagedError that names tensors and file, OSError."""
        path = folder / plan.name
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | (os.O_EXCL if self._progress is None else 0), 0o644)
        try:
            if self._progress is not None:
                os.ftruncate(fd, plan.size_bytes)
            if plan.size_bytes:
                os.posix_fallocate(fd, 0, plan.size_bytes)  # a full disk is found before anything is fetched
            digest = _FileDigest(fd) if self._progress is None else None
            for start, content in plan.literals:
                _write_all(fd, content, start)
                if digest is not None:
                    digest.wrote(start, content)
            self._copy(fd, plan, digest)
            for checksum in plan.checksums:
                crc = crc_of(fd, checksum.start, checksum.size_bytes).to_bytes(4, "little")
                for place in checksum.places:
                    _write_all(fd, crc, place)
            sha256 = "" if digest is None else (_FileDigest(fd) if plan.checksums else digest).hex(plan.size_bytes)
            os.fsync(fd)
        finally:
            os.close(fd)
        return WrittenFile(plan.name, plan.size_bytes, sha256)

    def _copy(self, fd: int, plan: FilePlan, file: "_FileDigest | None") -> None:
        """Copies what the file has of chunks, these in the order of their first bytes in it."""
        by_chunk = plan.by_chunk()
        needed = [number for number, placed in by_chunk.items() if not self._is_there(fd, plan, number, placed)]
        needed.sort(key=lambda number: min(placed.start for placed in by_chunk[number]))
        blocks = [
            Block(number, at, min(BLOCK_BYTES, size_bytes - at))
            for number in needed
            for size_bytes in [self._manifest.chunks[number].size_bytes]
            for at in range(0, size_bytes, BLOCK_BYTES)
        ]
        found = hashlib.sha256()
        of_file: Mapping[int, PlacedDigest] = {number: PlacedDigest(self._manifest.chunks[number], by_chunk[number]) for number in needed}
        for block, content in zip(blocks, in_threads(lambda block: self._fetch(plan, by_chunk, block), blocks, THREADS), strict=True):
            chunk = self._manifest.chunks[block.chunk]
            found.update(content)
            for one in by_chunk[block.chunk]:
                for view, place in runs_of(one, content, block.at):
                    _write_all(fd, view, place)
                    if file is not None:
                        file.wrote(place, view)
                    of_file[block.chunk].update(view)
            if block.at + block.size_bytes == chunk.size_bytes:
                if found.hexdigest() != chunk.sha256:
                    problem = f"chunk {chunk.sha256[:12]}… has {chunk.size_bytes} bytes that hash to {found.hexdigest()[:12]}…"
                    raise self._damaged(plan, by_chunk[block.chunk], DamagedError(problem, chunk.sha256))
                if self._progress is not None and (digest := of_file[block.chunk].hex()):
                    self._progress.note(plan.name, block.chunk, digest)
                found = hashlib.sha256()

    def _is_there(self, fd: int, plan: FilePlan, number: int, placed: Sequence[Placed]) -> bool:
        digest = self._progress.digest(plan.name, number) if self._progress is not None else None
        return digest is not None and digest == digest_of(fd, self._manifest.chunks[number], placed)

    def _fetch(self, plan: FilePlan, by_chunk: Mapping[int, Sequence[Placed]], block: Block) -> bytes:
        try:
            return self._chunks.block(self._manifest.chunks[block.chunk], prefix_of(self._manifest), block.at, block.size_bytes)
        except DamagedError as error:
            raise self._damaged(plan, by_chunk[block.chunk], error) from error

    def _damaged(self, plan: FilePlan, placed: Sequence[Placed], error: DamagedError) -> DamagedError:
        names = some_of(sorted({one.tensor for one in placed}))
        where = f"{self._manifest.job_id}@{self._manifest.commit}"
        return DamagedError(f"{where}: {error}; it holds {names} of {plan.name}", error.sha256)


class PlacedDigest:
    """Hash of what a file has of one chunk: its pieces in the order of the chunk's bytes. Where they are the whole chunk, its own hash."""

    def __init__(self, chunk: Chunk, placed: Sequence[Placed]) -> None:
        ends = [0, *(one.piece.span.offset + one.piece.span.size_bytes for one in placed)]
        starts = [*(one.piece.span.offset for one in placed), chunk.size_bytes]
        self._overlaps = any(start < end for start, end in zip(starts, ends, strict=True))
        self.is_whole = starts == ends
        self._sha256 = chunk.sha256
        self._found = None if self.is_whole or self._overlaps else hashlib.sha256()

    def update(self, content: bytes | memoryview) -> None:
        """Adds the next bytes."""
        if self._found is not None:
            self._found.update(content)

    def hex(self) -> str:
        """The hash, once all bytes were added and the chunk was found sound; empty where pieces overlap."""
        return "" if self._overlaps else self._sha256 if self._found is None else self._found.hexdigest()


class _FileDigest:
    """Hash of a file as it grows: of bytes that are written in order at once, of the rest when it is asked for."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._found = hashlib.sha256()
        self._at = 0

    def wrote(self, start: int, content: bytes | memoryview) -> None:
        if start == self._at:
            self._found.update(content)
            self._at += len(content)

    def hex(self, size_bytes: int) -> str:
        while self._at < size_bytes:
            block = os.pread(self._fd, min(BLOCK_BYTES, size_bytes - self._at), self._at)
            self.wrote(self._at, block)
        return self._found.hexdigest()


def digest_of(fd: int, chunk: Chunk, placed: Sequence[Placed]) -> str:
    """Hash of what a file has of one chunk, as PlacedDigest; read from the file."""
    found = hashlib.sha256()
    if not PlacedDigest(chunk, placed).hex():
        return ""
    for one in placed:
        for _, place, length in one.runs(0, one.piece.span.size_bytes):
            for at in range(place, place + length, BLOCK_BYTES):
                found.update(os.pread(fd, min(BLOCK_BYTES, place + length - at), at))
    return found.hexdigest()


def runs_of(placed: Placed, block: bytes, at: int) -> Iterator[tuple[memoryview, int]]:
    """Yields the bytes of a piece that a block has, which begins at `at` of the chunk, with their places in the file."""
    start = placed.piece.span.offset
    first, end = max(at, start), min(at + len(block), start + placed.piece.span.size_bytes)
    view = memoryview(block)
    for offset, place, length in placed.runs(first - start, end - start):
        begin = start + offset - at
        yield view[begin : begin + length], place


def _write_all(fd: int, content: bytes | memoryview, at: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written


def crc_of(fd: int, start: int, size_bytes: int) -> int:
    """CRC-32 of some bytes of a file."""
    crc, end = 0, start + size_bytes
    while start < end:
        block = os.pread(fd, min(BLOCK_BYTES, end - start), start)
        crc, start = zlib.crc32(block, crc), start + len(block)
    return crc
