"""Writing of planned files from the chunks of a store.

Holds: memory is bounded by MEMORY_BYTES whatever the sizes of tensors, chunks and files; each chunk of a file is read once, in blocks, and
checked against its hash. A file is complete only once `write` returned: bytes are written before they are known to be sound.
"""

import hashlib
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainhouse.checkpointing.chain.chunks import THREADS, ChunkStore, in_threads, prefix_of
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.exchange.file_plan import FilePlan, Placed
from trainhouse.checkpointing.state.state_tree import some_of

BLOCK_BYTES = 8 * 2**20
MEMORY_BYTES = 4 * THREADS * BLOCK_BYTES
"""The most that data under way takes: of each thread a block, and copies of it in the libraries that fetch it."""


@dataclass(frozen=True)
class WrittenFile:
    """A file that was written."""

    name: str
    size_bytes: int
    sha256: str


class FileWriter:
    """Writes the files of one manifest's export. Blocks."""

    def __init__(self, manifest: Manifest, chunks: ChunkStore) -> None:
        self._manifest = manifest
        self._chunks = chunks

    def write(self, plan: FilePlan, folder: Path) -> WrittenFile:
        """Writes one file and flushes it to disk. Raises DamagedError that names tensors and file, OSError."""
        path = folder / plan.name
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            if plan.size_bytes:
                os.posix_fallocate(fd, 0, plan.size_bytes)  # a full disk is found before anything is fetched
            for start, content in plan.literals:
                _write_all(fd, content, start)
            by_chunk = plan.by_chunk()
            for _ in in_threads(lambda number: self._copy(fd, plan, number, by_chunk[number]), list(by_chunk), THREADS):
                pass
            for checksum in plan.checksums:
                crc = _crc_of(fd, checksum.start, checksum.size_bytes).to_bytes(4, "little")
                for place in checksum.places:
                    _write_all(fd, crc, place)
            digest = _sha256_of(fd, plan.size_bytes)
            os.fsync(fd)
        finally:
            os.close(fd)
        return WrittenFile(plan.name, plan.size_bytes, digest)

    def _copy(self, fd: int, plan: FilePlan, number: int, placed: Sequence[Placed]) -> None:
        chunk = self._manifest.chunks[number]
        at = 0
        try:
            for block in self._chunks.blocks(chunk, prefix_of(self._manifest), BLOCK_BYTES):
                for one in placed:
                    _copy_block(fd, one, block, at)
                at += len(block)
        except DamagedError as error:
            names = some_of(sorted({one.tensor for one in placed}))
            where = f"{self._manifest.job_id}@{self._manifest.commit}"
            raise DamagedError(f"{where}: {error}; it holds {names} of {plan.name}", error.sha256) from error


def _copy_block(fd: int, placed: Placed, block: bytes, at: int) -> None:
    """Writes what a block, which begins at `at` of the chunk, has of a piece."""
    start = placed.piece.span.offset
    first, end = max(at, start), min(at + len(block), start + placed.piece.span.size_bytes)
    view = memoryview(block)
    for offset, place, length in placed.runs(first - start, end - start):
        begin = start + offset - at
        _write_all(fd, view[begin : begin + length], place)


def _write_all(fd: int, content: bytes | memoryview, at: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written


def _crc_of(fd: int, start: int, size_bytes: int) -> int:
    crc, end = 0, start + size_bytes
    while start < end:
        block = os.pread(fd, min(BLOCK_BYTES, end - start), start)
        crc, start = zlib.crc32(block, crc), start + len(block)
    return crc


def _sha256_of(fd: int, size_bytes: int) -> str:
    digest, at = hashlib.sha256(), 0
    while at < size_bytes:
        block = os.pread(fd, min(BLOCK_BYTES, size_bytes - at), at)
        digest.update(block)
        at += len(block)
    return digest.hexdigest()
