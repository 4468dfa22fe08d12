"""Messages of a rank to the process that uploads for it."""

from dataclasses import dataclass, field

from trainhouse.checkpointing.peer_memory.holder_client import Source
from trainhouse.checkpointing.peer_memory.peers import Grant


@dataclass(frozen=True)
class Upload:
    """One request. `places`: offset and size in bytes of each body in an arena of `arena_bytes`. `copies`: who holds them, too.

    `save`: number of the save that it is of. `full`: training waits for it, or may be slowed by it.
    """

    job_id: str
    grace_s: float
    arena_bytes: int
    places: tuple[tuple[int, int], ...]
    named: frozenset[str]
    distrusted: frozenset[str] = field(default_factory=frozenset)
    copies: tuple[Grant, Source] | None = None
    save: int = 0
    full: bool = False


@dataclass(frozen=True)
class Hurry:
    """Request to go on with the uploads of a save as if they were `full`. It may come before they do."""

    save: int
