"""AlertFired and AlertResolved to `alerts`.

Holds: (rule, key, since) names an alert; what is told of it twice is one row.
"""

from collections.abc import Iterator

from trainhouse.events.alert import AlertFired, AlertResolved
from trainhouse.events.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The fact of one alert; nothing for other events."""
    event = envelope.event
    if not isinstance(event, AlertFired | AlertResolved):
        return
    fired = isinstance(event, AlertFired)
    yield Row(
        "alerts_rows",
        {
            "rule": event.rule,
            "key": event.key,
            "since": clamp_ms(event.since_ms),
            "fact": "fired" if fired else "resolved",
            "at": clamp_ms(event.at_ms),
            "event_id": str(envelope.id),
            "severity": event.severity.value,
            "owner": event.owner,
            "runbook": event.runbook,
            "labels": event.labels,
            "summary": event.summary,
            "value": event.value if isinstance(event, AlertFired) else None,
            "limit": event.limit if isinstance(event, AlertFired) else None,
        },
    )
