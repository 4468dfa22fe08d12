"""Public keys of nodes to `node_keys_rows`: what a node's word in the audit is judged by.

Holds: of each node the newest word counts, by its place on the topic.
"""

from collections.abc import Iterator

from trainhouse.events.envelope import Envelope
from trainhouse.events.node import NodeKeyed
from trainhouse.projections.record import Record, Row, clamp_ms


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one key; nothing for other events."""
    event = envelope.event
    if isinstance(event, NodeKeyed):
        told = {"pool": str(event.pool), "node_id": str(event.node_id), "public_key": event.public_key, "at": clamp_ms(event.at_ms)}
        yield Row("node_keys_rows", told | {"version": record.offset + 1})
