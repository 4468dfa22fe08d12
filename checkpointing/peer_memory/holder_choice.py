"""Choice of the node that holds a node's chunks. Pure.

Holds: the choice depends on the nodes' names and racks alone, and another node that comes or goes changes it for few: what is held already
need not be sent again.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A node and its rack; an empty one is unknown."""

    node_id: str
    rack: str = ""


def chosen(own: Place, others: Iterable[Place]) -> Place | None:
    """Returns a node in another rack, else another node, else None."""
    candidates = [place for place in others if place.node_id != own.node_id]
    elsewhere = [place for place in candidates if own.rack and place.rack and place.rack != own.rack]
    return max(elsewhere or candidates, key=lambda place: _weight(own.node_id, place.node_id), default=None)


def _weight(node_id: str, other_id: str) -> bytes:
    return hashlib.sha256(f"{node_id} {other_id}".encode()).digest()
