"""Port of a rank to the holders of chunks: who holds its own, and how it reaches those that a manifest names."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Grant:
    """Access of this attempt to one holder."""

    node_id: str
    address: str
    port: int
    token: str


class Peers(Protocol):
    """Safe to share by threads; blocks for one request to the node's agent. Never raises: without an answer the reason is returned."""

    def holder(self) -> Grant | str | None:
        """Access to the holder of this node's chunks, or the reason why it has none; None where no other node of the pool offers memory."""

    def reach(self, node_id: str) -> Grant | str:
        """Access to a holder that a manifest names, or the reason why there is none."""
