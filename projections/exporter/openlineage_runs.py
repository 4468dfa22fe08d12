"""Lineage of attempts as OpenLineage's events: one run an attempt, datasets named by that specification's rules. Pure.

Holds: a run's id follows from job and epoch, so that telling twice doubles nothing; events add to each other: a later one names only
what is new. Source of the names: OpenLineage's naming of datasets (`s3://bucket` and the key, `file` and the path).
"""

import uuid
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated.base import DatasetFacet, JobFacet, RunFacet
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
from openlineage.client.generated.job_type_job import JobTypeJobFacet
from openlineage.client.generated.tags_run import TagsRunFacet, TagsRunFacetFields

from trainhouse.events.model.spec import JobSpec
from trainhouse.events.wire.envelope import rfc3339
from trainhouse.projections.record import clamp_ms

PRODUCER = "urn:trainhouse:exporter"
_RUNS = uuid.UUID("6f1d5f43-6a52-5b5a-9a9f-1c8d0b8a7f10")
MAX_REASON_CHARS = 8192


class Verb(StrEnum):
    """Outcome of a run."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"


@dataclass(frozen=True)
class LineageDataset:
    """One dataset. `version`: its content's hash, '' where the name says it."""

    namespace: str
    name: str
    version: str = ""


@dataclass(frozen=True)
class LineageRun:
    """One thing that happened to an attempt, at `at_ms`."""

    verb: Verb
    at_ms: int
    job_id: str
    attempt: int
    epoch: int
    name: str
    project: str
    user: str
    pool: str
    reason: str = ""
    inputs: tuple[LineageDataset, ...] = ()
    outputs: tuple[LineageDataset, ...] = ()


def dataset_of(uri: str, version: str = "") -> LineageDataset:
    """A dataset by its URI, or by what somebody wrote instead of one."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # a host that is none, as in `s3://[x/y`
        return LineageDataset("unknown", uri, version)
    if not parts.scheme or parts.scheme == "file":
        return LineageDataset("file", parts.path or uri, version)
    if not parts.netloc:
        return LineageDataset(parts.scheme, parts.path or uri, version)
    return LineageDataset(f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/", version)


def data_of(spec: JobSpec) -> LineageDataset | None:
    """The job's data, if it names any."""
    if spec.data is None:
        return None
    if spec.data.dataset is not None:
        return LineageDataset("trainhouse", spec.data.dataset.partition("@")[0], spec.data.content_sha256)
    return dataset_of(spec.data.address, spec.data.content_sha256)


def code_of(spec: JobSpec) -> LineageDataset | None:
    """The job's packed code, if it has any."""
    return dataset_of(spec.code.uri, spec.code.sha256) if spec.code is not None else None


def run_id_of(job_id: str, epoch: int) -> str:
    """The run of one attempt."""
    return str(uuid.uuid5(_RUNS, f"{job_id}/{epoch}"))


def as_event(run: LineageRun, namespace: str) -> RunEvent:
    """In OpenLineage's own model; a time that is none (anybody's clock tells it) becomes the next one that is."""
    tags = {"job_id": run.job_id, "attempt": str(run.attempt), "epoch": str(run.epoch), "user": run.user, "pool": run.pool}
    facets: dict[str, RunFacet] = {
        "tags": TagsRunFacet([TagsRunFacetFields(key, value, "TRAINHOUSE") for key, value in tags.items() if value], producer=PRODUCER)
    }
    if run.reason:
        facets["errorMessage"] = ErrorMessageRunFacet(run.reason[:MAX_REASON_CHARS], "PYTHON", producer=PRODUCER)
    kind: dict[str, JobFacet] = {"jobType": JobTypeJobFacet("BATCH", "TRAINHOUSE", "TRAINING", producer=PRODUCER)}
    return RunEvent(
        eventTime=rfc3339(clamp_ms(run.at_ms)),
        producer=PRODUCER,
        run=Run(run_id_of(run.job_id, run.epoch), facets),
        job=Job(namespace, f"{run.project}.{run.name}", kind),
        eventType=RunState(run.verb.value),
        inputs=[InputDataset(d.namespace, d.name, facets=_facets(d)) for d in run.inputs],
        outputs=[OutputDataset(d.namespace, d.name, facets=_facets(d)) for d in run.outputs],
    )


def _facets(data: LineageDataset) -> dict[str, DatasetFacet]:
    return {"version": DatasetVersionDatasetFacet(data.version, producer=PRODUCER)} if data.version else {}
