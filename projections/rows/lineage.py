"""Lineage edges to `lineage_edges`: from jobs' specs, attempts, checkpoints, and outputs that runs log.

Holds: an edge is named by its ends and its kind, so that several events may tell the same; the earliest time stays.
"""

import hashlib
import re
from collections.abc import Iterator

import orjson

from trainhouse.events.model.artifact import ArtifactRecorded, ArtifactStored
from trainhouse.events.model.checkpoint import CheckpointCompleted, CheckpointRestored
from trainhouse.events.model.dataset import DatasetVersionPublished
from trainhouse.events.model.decisions import JobQueued
from trainhouse.events.model.gang import GangAllocated
from trainhouse.events.model.job import JobAdmitted
from trainhouse.events.model.resume_ref import parse_resume_from
from trainhouse.events.model.spec import JobSpec
from trainhouse.events.model.tracking import ArtifactLogged, DatasetUsed, EnvironmentCaptured, InputsLogged, TraceRecorded
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import MAX_TIME_MS, Record, Row, clamp_ms, event_ms
from trainhouse.projections.rows.one_to_one import is_own_trace

_COMMIT = re.compile(r"/jobs/(?P<job>[^/]+)/commits/(?P<commit>\d+)$")


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """Edges that one event tells; nothing for other events."""
    event = envelope.event
    match event:
        case JobAdmitted() | JobQueued():
            yield from _given(str(event.job_id), event.spec, clamp_ms(event.submitted_at_ms))
        case GangAllocated():
            job_id = str(event.job_id)
            yield edge(job_of(job_id), attempt_of(job_id, event.epoch), "attempt", event_ms(envelope, record), job_id, event.spec.project)
        case CheckpointCompleted():
            job_id = str(event.job_id)
            saved = checkpoint_of(job_id, event.commit)
            yield edge(attempt_of(job_id, event.epoch), saved, "saved", clamp_ms(event.at_ms), job_id)
        case CheckpointRestored():
            job_id = str(event.job_id)
            yield edge(_restored(event), attempt_of(job_id, event.epoch), "restored", clamp_ms(event.at_ms), job_id)
        case DatasetVersionPublished(job_id=job_id) if job_id is not None:
            at, project = clamp_ms(event.published_at_ms), event.version.project
            yield edge(job_of(str(job_id)), f"data:{event.version.name}", "wrote", at, str(job_id), project)
        case ArtifactStored(job_id=job_id, deleted=False) if job_id is not None:
            artifact, at = artifact_of(event.name, event.sha256), clamp_ms(event.at_ms)
            yield edge(job_of(str(job_id)), artifact, "wrote", at, str(job_id), event.project)
        case ArtifactRecorded():
            job, artifact, at = job_of(str(event.job_id)), artifact_of(event.name, event.sha256), clamp_ms(event.at_ms)
            ends = (artifact, job, "used") if event.action == "used" else (job, artifact, "wrote")
            yield edge(*ends, at, str(event.job_id))
        case ArtifactLogged() | InputsLogged() | EnvironmentCaptured() | TraceRecorded():
            yield from _logged(event)


def edge(from_id: str, to_id: str, kind: str, at: int, job_id: str, project: str = "") -> Row:
    """One edge. `at` is milliseconds since 1970; `project` '' where the event does not say it: the job's own counts then."""
    values = {"from_id": from_id, "to_id": to_id, "kind": kind, "version": MAX_TIME_MS - at, "at": at}
    return Row("lineage_rows", values | {"job_id": job_id, "project": project})


def job_of(job_id: str) -> str:
    return f"job:{job_id}"


def attempt_of(job_id: str, epoch: int) -> str:
    return f"attempt:{job_id}/{int(epoch)}"


def artifact_of(name: str, sha256: str) -> str:
    return f"artifact:{name}@sha256:{sha256}"


def checkpoint_of(job_id: str, commit: int) -> str:
    return f"checkpoint:{job_id}@{commit}"


def environment_hash(spec: JobSpec) -> str:
    """Names what a job's ranks run in: image, interpreter and variables; 64 hexadecimal digits."""
    runtime = spec.runtime
    contents = {"image": runtime.image_digest, "interpreter": runtime.interpreter, "env": dict(spec.env)}
    return hashlib.sha256(orjson.dumps(contents, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _given(job_id: str, spec: JobSpec, at: int) -> Iterator[Row]:
    """Yields the inputs of a job's spec."""
    to = job_of(job_id)
    if spec.code is not None:
        yield edge(f"code:{spec.code.sha256}", to, "code", at, job_id, spec.project)
    if spec.data is not None:
        yield edge(f"data:{spec.data.address}", to, "data", at, job_id, spec.project)
    yield edge(f"environment:{environment_hash(spec)}", to, "environment", at, job_id, spec.project)
    if spec.resume_from is not None:
        yield edge(_resumed(spec.resume_from), to, "resumed", at, job_id, spec.project)


def _logged(event: ArtifactLogged | InputsLogged | EnvironmentCaptured | TraceRecorded) -> Iterator[Row]:
    """Yields the lineage that a run logs itself."""
    job_id, at = str(event.job_id), clamp_ms(event.at_ms)
    match event:
        case ArtifactLogged() | TraceRecorded() if is_own_trace(event):
            yield edge(job_of(job_id), f"artifact:{event.uri}", "wrote", at, job_id)
        case InputsLogged():
            for dataset in event.datasets:
                yield edge(f"data:{_data_uri(dataset)}", job_of(job_id), "data", at, job_id)
        case EnvironmentCaptured() if event.environment_id:
            yield edge(f"environment:{event.environment_id}", attempt_of(job_id, event.epoch), "environment", at, job_id)


def _data_uri(dataset: DatasetUsed) -> str:
    """Source address of a dataset, as its client gave it; else its name with its digest."""
    return dataset.source if "://" in dataset.source and len(dataset.source) <= 4096 else f"{dataset.name}@{dataset.digest}"


def _resumed(text: str) -> str:
    """The checkpoint that a spec names, or the job whose newest it means. What cannot be read names itself."""
    try:
        source = parse_resume_from(text)
    except ValueError:
        return f"checkpoint:{text}"
    # Which commit a step or the best one is, the restore tells.
    return job_of(str(source.job_id)) if source.commit is None else checkpoint_of(str(source.job_id), source.commit)


def _restored(event: CheckpointRestored) -> str:
    """The checkpoint by its address: a job that resumes from another one restores that one's."""
    found = _COMMIT.search(event.uri)
    return checkpoint_of(found["job"], int(found["commit"])) if found else checkpoint_of(str(event.job_id), event.commit)
