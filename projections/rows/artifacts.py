"""ArtifactLogged to `artifacts`: the files of jobs and runs by path.

Holds: the newest word on a path counts; one that was deleted stays as a row that says so.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from trainhouse.events.envelope import Envelope
from trainhouse.events.tracking import ArtifactLogged
from trainhouse.projections.record import Record, Row, clamp_ms


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one artifact; nothing for other events."""
    event = envelope.event
    if not isinstance(event, ArtifactLogged):
        return
    at = clamp_ms(event.at_ms)
    yield Row(
        "artifacts_rows",
        {
            "job_id": str(event.job_id),
            "path": event.path,
            # The order of the partition, not the writers' clocks: the newest word is the last one.
            "version": record.offset + 1,
            "at": at,
            "kind": PurePosixPath(event.path).suffix.lstrip(".").lower()[:32],
            "uri": event.uri,
            "sha256": event.sha256,
            "size_bytes": event.size_bytes,
            "deleted": int(event.deleted),
        },
    )
