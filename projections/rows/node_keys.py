"""Public keys of nodes to `node_keys_rows` and `node_key_history_rows`: what a node's word in the audit is judged by.

Holds: in the first the newest of each node stays, by its place on the topic; in the second all of them do, by time.
"""

from collections.abc import Iterator

from trainhouse.events.model.node import NodeKeyed
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The rows of one key; nothing for other events."""
    event = envelope.event
    if isinstance(event, NodeKeyed):
        row = {"pool": str(event.pool), "node_id": str(event.node_id), "public_key": event.public_key, "at": clamp_ms(event.at_ms)}
        yield Row("node_keys_rows", row | {"version": record.offset + 1})
        yield Row("node_key_history_rows", row)
