"""Which events the records of the followed topics hold.

Holds: what agents and intake say on control is taken from the scheduler's journal, which has what counted; a report whose signature was
refused is in neither traces nor lineage. Of two records of one seq only the first is read; across a restart the second may be read
too, which says nothing new: its inputs stood in the first one, or stand in a later one again.
"""

from collections.abc import Iterator

from confluent_kafka import Message

from trainhouse.events.checkpoint import CheckpointCompleted
from trainhouse.events.codec import HEADERS, decode
from trainhouse.events.envelope import Envelope
from trainhouse.events.errors import InvalidEvent
from trainhouse.events.journal import InvalidRecord, record_head
from trainhouse.events.kafka import headers_of
from trainhouse.events.topics import DECISIONS
from trainhouse.projections.exporter.keeping import Seen
from trainhouse.projections.reports import input_bytes, taken_inputs


class Reading:
    """The events of records, in the order of each partition."""

    def __init__(self) -> None:
        self._seq: dict[int, int] = {}

    def seen_in(self, message: Message) -> list[Seen]:
        """The events of one record; none of what cannot be read: intake, the scheduler and the projector say so."""
        value = message.value()
        if value is None:
            return []
        at_ms = message.timestamp()[1]
        if message.topic() == DECISIONS:
            return [Seen(envelope, at_ms) for envelope in self._taken(message.partition() or 0, value)]
        try:
            return [Seen(decode(value, headers_of(message)), at_ms)]
        except InvalidEvent:
            return []

    def _taken(self, partition: int, value: bytes) -> Iterator[Envelope]:
        try:
            head = record_head(value)
        except InvalidRecord:
            return
        if head["seq"] <= self._seq.get(partition, 0):
            return
        self._seq[partition] = head["seq"]
        for item in taken_inputs(head):
            try:
                envelope = decode(input_bytes(item), HEADERS)
            except InvalidEvent:
                continue
            if not isinstance(envelope.event, CheckpointCompleted):  # a copy; its home is the topic of checkpoints
                yield envelope
