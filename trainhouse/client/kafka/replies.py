"""Authorship of an answer to an operation: the writer of one node's answers may write every node's, so signatures decide.

Holds: an answer for a rank counts if it names the node that the rank runs on, and, where that node has a key, is signed with it. What is
no answer, or nobody can read, is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainhouse.events import InvalidEvent, NodePlacement, OperationReplied, decode
from trainhouse.events.security.signing import signature_of
from trainhouse.events.security.vetting import key_events
from trainhouse.events.wire.codec import Headers
from trainhouse.events.wire.topics import OPERATION_REPLIES

Keys = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Answers:
    """Of one request. `nodes`: where each rank runs; `keys`: those that nodes have, in whichever pool."""

    request_id: str
    nodes: Mapping[int, str]
    keys: Keys

    def read(self, value: bytes | None, headers: Headers) -> OperationReplied | None:
        """The answer that a record holds, if it is one to this request."""
        if value is None or self.request_id.encode() not in value:
            return None
        try:
            event = decode(value, headers).event
        except InvalidEvent:
            return None
        return event if isinstance(event, OperationReplied) and event.request_id == self.request_id else None

    def counts(self, event: OperationReplied, value: bytes, headers: Headers) -> bool:
        """Returns whether the node that the rank runs on said it."""
        if self.nodes.get(event.rank) != event.node_id:
            return False
        known = self.keys.get(event.node_id)
        if not known:
            return True  # an agent that signs nothing
        signature = signature_of(headers)
        return signature is not None and signature.public_key in known and signature.holds(OPERATION_REPLIES, value)


def nodes_of(placements: Iterable[NodePlacement]) -> dict[int, str]:
    """Node of each rank."""
    return {rank: str(placement.node_id) for placement in placements for rank in placement.ranks}


def keys_of(records: Iterable[tuple[bytes | None, Headers]]) -> Keys:
    """The keys that count, by node, from all that was told of them, the oldest first."""
    found: dict[str, dict[str, str]] = {}
    for event in key_events(records):
        # A forgotten node's key stays bound to its name, so it still says which answers are that node's.
        found.setdefault(str(event.node_id), {})[str(event.pool)] = event.public_key
    return {node: frozenset(filter(None, of_pools.values())) for node, of_pools in found.items()}
