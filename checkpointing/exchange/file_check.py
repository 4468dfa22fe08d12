"""Comparison of a file with the plan that it was written by, and with the chunks that it is of.

Holds: what is found sound is equal to what the plan would write, byte for byte. Chunks that a file has as a whole are compared by their
hash, without the store; of the others the store's bytes are read.
"""

import hashlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from trainhouse.checkpointing.chain.chunks import THREADS, ChunkStore, in_threads, prefix_of
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.errors import DamagedError
from trainhouse.checkpointing.exchange.file_plan import FilePlan, Placed
from trainhouse.checkpointing.exchange.file_writer import BLOCK_BYTES, PlacedDigest, crc_of, digest_of, runs_of
from trainhouse.checkpointing.state.state_tree import some_of

CRC_BYTES: Final = 4


def differences(path: Path, plan: FilePlan, manifest: Manifest, chunks: ChunkStore) -> list[str]:
    """Lists differences of a file from what the plan would write; empty: none. Blocks. Raises OSError, DamagedError where the store's own
    bytes of a chunk are damaged, and what the store raises."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size_bytes = os.fstat(fd).st_size
        if size_bytes != plan.size_bytes:
            return [f"{path.name} has {size_bytes} bytes instead of {plan.size_bytes}"]
        places = sorted(place for checksum in plan.checksums for place in checksum.places)
        if any(not _is_literal(os.pread(fd, len(content), start), start, content, places) for start, content in plan.literals):
            return [f"{path.name} has another header or table of contents"]
        by_chunk = plan.by_chunk()
        found = in_threads(lambda item: _differs(fd, manifest, chunks, *item), list(by_chunk.items()), THREADS)
        names = sorted({name for tensors in found for name in tensors})
        problems = [f"{path.name} has other values of {some_of(names)}"] if names else []
        for checksum in plan.checksums if not problems else ():
            crc = crc_of(fd, checksum.start, checksum.size_bytes).to_bytes(CRC_BYTES, "little")
            if any(os.pread(fd, CRC_BYTES, place) != crc for place in checksum.places):
                return [f"{path.name} has another checksum than its contents"]
        return problems
    finally:
        os.close(fd)


def _is_literal(found: bytes, start: int, content: bytes, places: Sequence[int]) -> bool:
    """Whether a file has known bytes where it should, but for the checksums in them, which follow from other bytes."""
    if len(found) != len(content):
        return False
    wanted = bytearray(content)
    for place in places[bisect_left(places, start) : bisect_right(places, start + len(content) - CRC_BYTES)]:
        wanted[place - start : place - start + CRC_BYTES] = found[place - start : place - start + CRC_BYTES]
    return found == wanted


def _differs(fd: int, manifest: Manifest, chunks: ChunkStore, number: int, placed: Sequence[Placed]) -> set[str]:
    """Names of what of one chunk the file has other bytes than the chunk."""
    chunk = manifest.chunks[number]
    if PlacedDigest(chunk, placed).is_whole:
        return set() if digest_of(fd, chunk, placed) == chunk.sha256 else {one.tensor for one in placed}
    found, different = hashlib.sha256(), set[str]()
    for start in range(0, chunk.size_bytes, BLOCK_BYTES):
        block = chunks.block(chunk, prefix_of(manifest), start, min(BLOCK_BYTES, chunk.size_bytes - start))
        found.update(block)
        for one in placed:
            if any(os.pread(fd, len(view), place) != view for view, place in runs_of(one, block, start)):
                different.add(one.tensor)
    if found.hexdigest() != chunk.sha256:
        raise DamagedError(f"chunk {chunk.sha256[:12]}… of the store hashes to {found.hexdigest()[:12]}…", chunk.sha256)
    return different
