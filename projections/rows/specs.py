"""Admitted jobs to `job_specs`: what each was to run, whole and as flat pairs that compare.

Holds: a spec never changes, so every event that carries it gives the same row; the journal's stays, since the journal is archived.
Never: the value of a variable of its `env`.
"""

import json
from collections.abc import Iterator
from typing import Any

from trainhouse.events.model.decisions import JobQueued
from trainhouse.events.model.job import JobAdmitted
from trainhouse.events.security.sensitive import without_values
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The spec of one admitted job; nothing for other events."""
    event = envelope.event
    if not isinstance(event, JobAdmitted | JobQueued):
        return
    spec = without_values(event.spec).model_dump(mode="json", exclude_none=True)
    yield Row(
        "job_specs_rows",
        {
            "job_id": str(event.job_id),
            "version": 2 if isinstance(event, JobQueued) else 1,
            "spec_sha256": event.spec_sha256,
            "submitted_at": clamp_ms(event.submitted_at_ms),
            "config": dict(flatten(spec)),
            "json": json.dumps(spec, sort_keys=True, separators=(",", ":")),
        },
    )


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """A spec as (path, text): `gang.ranks` -> `4`. Lists and empty objects stay JSON; text stands as it is."""
    if isinstance(value, dict) and (value or not path):
        for name, inner in value.items():
            yield from flatten(inner, f"{path}.{name}" if path else name)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value, sort_keys=True)
