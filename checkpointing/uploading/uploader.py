"""Port of an upload: whoever brings staged bodies into the object store.

Holds: a call returns when all of its bodies are there. Errors are CheckpointErrors, or the store's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trainhouse.checkpointing.chain.chunks import ChunkStore, Sent
from trainhouse.checkpointing.chain.pace import Pace
from trainhouse.checkpointing.staging.arena import Arena


@dataclass(frozen=True)
class Bodies:
    """Bodies in an arena: offset and size in bytes of each, the number of the save that they are of, and how fast they are sent."""

    places: Sequence[tuple[int, int]]
    save: int
    pace: Pace


class Uploader(Protocol):
    """For one rank. One call at a time; each may come from another thread."""

    @property
    def arena(self) -> Arena:
        """Memory that is uploaded from."""

    def send(self, bodies: Bodies, named: frozenset[str]) -> list[Sent]:
        """Brings these bodies into the store. `named`: hashes that a live manifest of this job names. Blocks."""

    def close(self) -> None:
        """Ends it; an upload under way fails."""


class InProcessUploader:
    """Uploads from this process."""

    def __init__(self, chunks: ChunkStore) -> None:
        self.arena = Arena()
        self._chunks = chunks

    def send(self, bodies: Bodies, named: frozenset[str]) -> list[Sent]:
        """By the threads of the chunk store."""
        return self._chunks.send([self.arena.view(*place) for place in bodies.places], named, pace=bodies.pace)

    def close(self) -> None:
        """Gives the memory back; the threads end with what they do."""
        self.arena.close()
