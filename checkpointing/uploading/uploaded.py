"""Answer of an upload process to one request; a module of its own, since that process does without torch."""

from dataclasses import dataclass

from trainhouse.checkpointing.chain.chunks import Sent


@dataclass(frozen=True)
class Uploaded:
    """Result of an upload process. `no_copies`: why not all chunks were copied to the holder."""

    sent: list[Sent]
    no_copies: str = ""
