"""Decoding of the records of the followed topics into events.

Holds: what agents and intake say on control is taken from the scheduler's journal, which has what counted; a report whose signature was
refused is in neither traces nor lineage. Completed checkpoints stand there too; of the topic of checkpoints only what an attempt began from
is read, with the nodes that signed it. Of two records of one seq only the first is read; across a restart the second may be read
too, which says nothing new: its inputs stood in the first one, or stand in a later one again.
"""

from collections.abc import Iterator

from confluent_kafka import Message

from trainhouse.events.bus.kafka import headers_of
from trainhouse.events.model.checkpoint import CheckpointRestored
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.security.signing import signature_of
from trainhouse.events.wire.codec import HEADERS, decode
from trainhouse.events.wire.envelope import Envelope
from trainhouse.events.wire.journal import GreatestSeqs, InvalidRecordError, record_head
from trainhouse.events.wire.repairs import is_emptied
from trainhouse.events.wire.topics import CHECKPOINTS, DECISIONS
from trainhouse.projections.exporter.job_state import Seen
from trainhouse.projections.ingest.builders.report_rows import input_bytes, readable_inputs
from trainhouse.projections.ingest.node_keys import NodeKeys


class Reading:
    """The events of records, in the order of each partition."""

    def __init__(self, keys: NodeKeys | None = None, emptied: frozenset[str] = frozenset()) -> None:
        self._keys = keys or NodeKeys()
        self._emptied = emptied
        self._seqs = GreatestSeqs()

    def seen_in(self, message: Message) -> list[Seen]:
        """The events of one record; none of what cannot be read: intake, the scheduler and the projector say so. Raises
        BusUnavailableError."""
        value = message.value()
        if value is None:
            return []
        at_ms = message.timestamp()[1]
        if message.topic() == DECISIONS:
            return [Seen(envelope, at_ms) for envelope in self._taken(message.partition() or 0, value)]
        try:
            envelope = decode(value, headers_of(message))
        except InvalidEvent:
            return []
        if message.topic() != CHECKPOINTS:
            return [Seen(envelope, at_ms)]
        return [Seen(envelope, at_ms, self._signers(message, value))] if isinstance(envelope.event, CheckpointRestored) else []

    def _signers(self, message: Message, value: bytes) -> frozenset[str] | None:
        """The nodes whose key signed a record. Where signatures are not required, who signed nothing is believed: agents of before."""
        signature = signature_of(headers_of(message))
        if signature is None:
            return frozenset() if self._keys.required else None
        if not signature.holds(message.topic() or "", value):
            return frozenset()
        self._keys.follow()
        return self._keys.nodes_of(signature.public_key, message.timestamp()[1])

    def _taken(self, partition: int, value: bytes) -> Iterator[Envelope]:
        try:
            head = record_head(value)
        except InvalidRecordError:
            return
        if not self._seqs.counts(partition, head["seq"]) or is_emptied(value, self._emptied):
            return
        for item in readable_inputs(head):
            try:
                envelope = decode(input_bytes(item), HEADERS, stored=True)
            except InvalidEvent:
                continue
            yield envelope
