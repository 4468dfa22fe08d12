"""Allocations in the scheduler's journal to `placements_rows`: the nodes that each attempt was given.

Holds: (job, epoch, attempt, node) names a row, so an allocation that is read again changes nothing.
"""

from collections.abc import Iterator

from trainhouse.events.model.gang import GangAllocated
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, event_ms

TABLE = "placements_rows"


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """A row for each node of one allocation; nothing for other events."""
    event = envelope.event
    if isinstance(event, GangAllocated):
        at = event_ms(envelope, record)
        for part in event.placements:
            attempt = {"job_id": str(event.job_id), "epoch": int(event.epoch), "attempt": int(event.attempt)}
            yield Row(TABLE, attempt | {"node_id": str(part.node_id), "at": at})
