"""Sending of an import's bytes as chunks, small ones packed together, a bounded number of bytes at a time."""

from trainhouse.checkpointing.chain.chunks import ChunkStore
from trainhouse.checkpointing.chain.manifest import Chunk, Span
from trainhouse.checkpointing.staging.body_layout import PACK_BELOW_BYTES, PACK_BYTES


class ImportChunks:
    """Chunks of one manifest to be, in their order. Holds one pack; `close` sends what is left of it."""

    def __init__(self, chunks: ChunkStore) -> None:
        self._chunks = chunks
        self._sent: list[Chunk | None] = []
        self._pack = bytearray()
        self._pack_at = -1
        self.bytes_new = 0

    def add(self, content: bytes) -> Span:
        """Sends some bytes, now or with others; returns where they will be."""
        if len(content) >= PACK_BELOW_BYTES:
            self._sent.append(None)
            self._send(len(self._sent) - 1, content)
            return Span(chunk=len(self._sent) - 1, offset=0, size_bytes=len(content))
        if self._pack_at < 0:
            self._sent.append(None)
            self._pack_at = len(self._sent) - 1
        span = Span(chunk=self._pack_at, offset=len(self._pack), size_bytes=len(content))
        self._pack += content
        if len(self._pack) >= PACK_BYTES:
            self._end_pack()
        return span

    def close(self) -> tuple[Chunk, ...]:
        """Sends the last pack; returns all chunks."""
        if self._pack_at >= 0:
            self._end_pack()
        return tuple(chunk for chunk in self._sent if chunk is not None)

    def _end_pack(self) -> None:
        self._send(self._pack_at, bytes(self._pack))
        self._pack, self._pack_at = bytearray(), -1

    def _send(self, at: int, content: bytes) -> None:
        (sent,) = self._chunks.send([content], frozenset())
        self._sent[at] = sent.chunk
        self.bytes_new += sent.chunk.size_bytes if sent.new else 0
