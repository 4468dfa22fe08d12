"""The lineage of an output: an edge from the job to the version that it wrote."""

from __future__ import annotations

from tests.support.dataset_versions import publish, version
from trainhouse.events import Envelope, EventId, JobId
from trainhouse.projections.record import Record
from trainhouse.projections.rows import lineage
from trainhouse.scheduler.core.intake.datasets import published_by


def edges(job_id: JobId | None) -> list[tuple[object, ...]]:
    event = published_by(publish(version()), None, 5, None, False, job_id)
    envelope = Envelope(EventId("e"), "test", event, time_ms=5)
    record = Record("trainhouse.datasets", 0, 0, 5, None, b"", ())
    return [(r.values["from_id"], r.values["to_id"], r.values["kind"], r.values["project"]) for r in lineage.rows(envelope, record)]


def test_a_version_that_a_job_wrote_has_an_edge_and_others_have_none() -> None:
    assert edges(JobId.parse("j")) == [("job:j", f"data:{version().name}", "wrote", "default")]
    assert edges(None) == []
