"""Every event about a job or a node to `events`: one line a person reads, and the whole event as JSON.

Holds: an event id is one line, whichever topics carried the event. Left out: what repeats with every step or every second
(statuses, progress, heartbeats, metrics, log lines, what steps read, images and other media), and reports as people write them; their
tables tell those.
Never: the value of a variable of a spec's `env`.
"""

from collections.abc import Iterator

from trainhouse.events.model.attempt import ProgressReported
from trainhouse.events.model.data_read import DataRead
from trainhouse.events.model.handover import PoolFence, PoolPart, RedirectedInput
from trainhouse.events.model.job import JobStatus
from trainhouse.events.model.media import MediaRecorded
from trainhouse.events.model.node import NodeHeartbeat
from trainhouse.events.model.project_document import DocumentSaved
from trainhouse.events.model.telemetry import FileRange
from trainhouse.events.security.sensitive import shown_json
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, copy_version, event_ms
from trainhouse.projections.rows.lines.summary import summarize

# Redirected inputs are in it as they came first.
_LEFT_OUT = (
    JobStatus,
    ProgressReported,
    NodeHeartbeat,
    FileRange,
    PoolPart,
    PoolFence,
    RedirectedInput,
    DataRead,
    MediaRecorded,
    DocumentSaved,
)


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The line of one event, if it belongs to a story."""
    event = envelope.event
    if isinstance(event, _LEFT_OUT):
        return
    epoch = getattr(event, "epoch", None)
    yield Row(
        "events_rows",
        {
            "job_id": str(getattr(event, "job_id", None) or ""),
            "event_id": str(envelope.id),
            "version": copy_version(record),
            "time": event_ms(envelope, record),
            "type": envelope.type,
            "subject": envelope.subject,
            "node_id": str(getattr(event, "node_id", None) or ""),
            "epoch": None if epoch is None else int(epoch),
            "summary": summarize(event),
            "json": shown_json(event),
        },
    )
