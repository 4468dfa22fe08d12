"""How well parts of the platform answered, to `service_measures`.

Holds: one row an event; its source and span name it, so that what is told again is the same row.
"""

from collections.abc import Iterator

from trainhouse.events.envelope import Envelope
from trainhouse.events.service import ServiceMeasured
from trainhouse.projections.record import Record, Row, clamp_ms


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one measurement; nothing for other events."""
    event = envelope.event
    if isinstance(event, ServiceMeasured):
        values = event.model_dump(exclude={"since_ms", "at_ms"})
        yield Row("service_measures_rows", values | {"since": clamp_ms(event.since_ms), "at": clamp_ms(event.at_ms)})
