"""Decisions of the scheduler's journal to `decisions`: one row each, as the journal has it.

Holds: (partition, seq, ordinal) names a decision, so one that is read again is the same row. `request_id` is filled in where the
whole record is known (`builders/decision_rows.py`).
Never: the value of a variable of a spec's `env`.
"""

from collections.abc import Iterator

from trainhouse.events.security.sensitive import shown_json
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, event_ms


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one decision; nothing for an event that is none (it has no place in a journal)."""
    event, order = envelope.event, envelope.order
    if order is None:
        return
    epoch = getattr(event, "epoch", None)
    yield Row(
        "decisions_rows",
        {
            "job_id": str(getattr(event, "job_id", None) or ""),
            "partition": order.partition,
            "seq": order.seq,
            "ordinal": order.ordinal,
            "at": event_ms(envelope, record),
            "type": envelope.type,
            "node_id": str(getattr(event, "node_id", None) or ""),
            "pool": str(getattr(event, "pool", None) or ""),
            "epoch": None if epoch is None else int(epoch),
            "request_id": "",
            "json": shown_json(event),
        },
    )
