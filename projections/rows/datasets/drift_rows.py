"""Comparisons of datasets' versions to `dataset_drift`: one row a field."""

from collections.abc import Iterator

from trainhouse.events.model.dataset_drift import DatasetDriftMeasured
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The rows of one comparison; nothing for other events."""
    event = envelope.event
    if not isinstance(event, DatasetDriftMeasured):
        return
    about = event.model_dump(exclude={"fields", "at_ms"}) | {"predecessor": int(event.predecessor), "at": clamp_ms(event.at_ms)}
    for field in event.fields:
        figures = {"psi": field.psi, "psi_limit": field.psi_limit, "ks": field.ks, "ks_limit": field.ks_limit}
        yield Row("dataset_drift_rows", about | field.model_dump() | {"verdict": field.verdict.value} | figures)
