"""Verification that a rank's record was sent by a node of its attempt.

Every agent may write to the topics of points, lines, checkpoints and environments, so a record there counts by its signature: that of the
node that it names, or of a node of its job where it names none, and by the scheduler's journal, which has the nodes of each attempt.
Holds: where signatures are not required, what is unsigned counts: agents of an older version sign none of this. What is signed is judged.
The key that counts is one that the node has now, or had when the brokers took the record.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event

from trainhouse.events.security.signing import signature_of
from trainhouse.projections.ingest.node_keys import NodeKeys
from trainhouse.projections.ingest.placements import Attempt, Placements
from trainhouse.projections.record import Record

# Below this a verification costs less than a thread's turn.
_FEW = 32


@dataclass(frozen=True, slots=True)
class Claim:
    """A record, the attempt that it says it is of, and the node that it says it comes from.

    `node_id` None: a checkpoint's; the node is one of that attempt or of a later one, which tells of it again.
    """

    record: Record
    attempt: Attempt
    node_id: str | None = None


class Senders:
    """Judges claims. May be shared by threads. `emptied`: hashes of journal records that count as empty, whoever signed what is in them."""

    def __init__(self, keys: NodeKeys, placements: Placements, emptied: frozenset[str] = frozenset()) -> None:
        self.emptied = emptied
        self._keys = keys
        self._placements = placements
        self._threads = ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="signatures")

    def close(self) -> None:
        """Ends its threads."""
        self._threads.shutdown()

    def known(self, claims: Collection[Claim], stop: Event) -> bool:
        """Waits until all is known by which these are judged; False where `stop` was set before. Blocks.

        Before a batch's intent is written: by the time that it is replayed, no lane may wait for another one.
        """
        signed = [c for c in claims if signature_of(c.record.headers) is not None]
        if signed and not self._keys.current(stop):
            return False
        judged = [c for c in signed if self._has_a_nodes_key(c)]
        named, unnamed = ({c.attempt for c in judged if (c.node_id is not None) is named} for named in (True, False))
        return self._placements.known(named, stop) and self._placements.known(unnamed, stop, later=True)

    @property
    def required(self) -> bool:
        """True if nodes must sign their events."""
        return self._keys.required

    def known_attempts(self, attempts: Collection[Attempt], stop: Event) -> bool:
        """Waits until it is known which nodes these were given; False where `stop` was set before. Blocks."""
        return self._placements.known(attempts, stop)

    def has(self, attempt: Attempt, node_id: str) -> bool:
        """Returns whether the attempt was given the node, as far as `known_attempts` found."""
        return node_id in self._placements.nodes(attempt)

    def refusals(self, claims: Sequence[Claim]) -> list[str]:
        """Refusal reason of each claim, in their order; empty for a valid one. Blocks; raises BusUnavailableError if keys were never
        read."""
        if not claims:
            return []
        self._keys.follow()
        if len(claims) < _FEW:
            return [self._refusal(c) for c in claims]
        parts = [claims[at : at + _FEW] for at in range(0, len(claims), _FEW)]
        return [why for part in self._threads.map(lambda part: [self._refusal(c) for c in part], parts) for why in part]

    def _has_a_nodes_key(self, claim: Claim) -> bool:
        """Returns whether its key is one of the node's that it names, or of any; without one it is refused, whatever attempts there are."""
        signature, at_ms = signature_of(claim.record.headers), claim.record.timestamp_ms
        if signature is None:
            return False
        if claim.node_id is None:
            return bool(self._keys.nodes_of(signature.public_key, at_ms))
        return signature.public_key in self._keys.keys_of(claim.node_id, at_ms)

    def _refusal(self, claim: Claim) -> str:
        record, attempt = claim.record, claim.attempt
        sender = f"a node of job {attempt.job_id}" if claim.node_id is None else f"node {claim.node_id}"
        signature = signature_of(record.headers)
        if signature is None:
            return f"{sender} signs what it says, and this is not signed" if self._keys.required else ""
        if not self._has_a_nodes_key(claim):
            return f"the signature is not that of {sender}: another key made it"
        nodes = self._nodes(claim)
        if not nodes:
            which = f"attempt {attempt.number} of job {attempt.job_id} (epoch {attempt.epoch})"
            return f"{which} was never given {'a node' if claim.node_id is None else sender}"
        if not any(signature.public_key in self._keys.keys_of(node_id, record.timestamp_ms) for node_id in nodes):
            return f"the signature is not that of {sender}: another key made it"
        return "" if signature.holds(record.topic, record.value or b"") else f"the signature is not that of {sender}: it does not hold"

    def _nodes(self, claim: Claim) -> Collection[str]:
        """The nodes of which one must have signed."""
        if claim.node_id is None:
            return self._placements.nodes_since(claim.attempt)
        return [claim.node_id] if claim.node_id in self._placements.nodes(claim.attempt) else []
