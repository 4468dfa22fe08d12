"""Folds one event into spans and lineage, and into the state of its job. Pure.

    submission ── intake ── wait ── decision ── launch (each node) ── first step

The span `job start` goes from the submission to the first step (a restart: from the wait on), so that a trace is whole while the job
trains. Lineage has a run for each attempt.

Holds: one attempt's parts hang below its start; what happened twice is told once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from trainhouse.events import (
    AttemptStarted,
    CheckpointCompleted,
    CheckpointRestored,
    GangAllocated,
    JobAdmitted,
    JobState,
    JobStatus,
    JobSubmitted,
    ProgressReported,
)
from trainhouse.events.model.trace_state import JobTraced
from trainhouse.events.model.tracking import ArtifactLogged, InputsLogged
from trainhouse.projections.exporter.job_state import Kept, Seen, begun
from trainhouse.projections.exporter.openlineage_runs import LineageRun, Verb, code_of, data_of, dataset_of
from trainhouse.projections.exporter.spans import Attributes, Span, span_id_of

START = "start"


@dataclass
class Exported:
    """Spans and lineage of some events, for export."""

    spans: list[Span] = field(default_factory=list)
    runs: list[LineageRun] = field(default_factory=list)


def export_event(kept: Kept, seen: Seen, exported: Exported) -> None:
    """Folds one event into spans and lineage; ignores jobs with no observed submission."""
    event: Any = seen.envelope.event
    job_id = getattr(event, "job_id", None)
    job = kept.jobs.get(str(job_id))
    if job is None:
        job = begun(seen)
        if job is None:
            return
        kept.put(job)
    handle = _HANDLERS.get(type(event))
    if handle is not None:
        kept.put(handle(job, seen, event, exported))


def _submitted(job: JobTraced, seen: Seen, event: JobSubmitted, exported: Exported) -> JobTraced:
    first = begun(seen)
    if first is None or first.submission_id != job.submission_id or job.told:
        return job  # a repetition, or it came after what followed from it: the trace has its ids already
    return job.model_copy(update={"trace_id": first.trace_id, "parent_id": first.parent_id, "sampled": first.sampled})


def _admitted(job: JobTraced, seen: Seen, event: JobAdmitted, exported: Exported) -> JobTraced:
    if job.epoch or "intake" in job.told:
        return job
    return _span(job, exported, "intake", "intake", job.submitted_ms, seen.at_ms, {}, waits_since_ms=seen.at_ms)


def _allocated(job: JobTraced, seen: Seen, event: GangAllocated, exported: Exported) -> JobTraced:
    if int(event.epoch) <= job.epoch:
        return job
    if job.running:  # its end was not read yet, or never told: this attempt took its place
        job = _ended(job, seen.time_ms, Verb.FAIL, "another attempt took its place", exported)
    again = job.epoch > 0
    job = job.model_copy(
        update={
            "attempt": int(event.attempt),
            "epoch": int(event.epoch),
            "nodes": tuple(str(part.node_id) for part in event.placements),
            "begun_ms": job.waits_since_ms if again else job.submitted_ms,
            "allocated_ms": seen.time_ms,
            "published_ms": seen.at_ms,
            "restored_step": None,
            "running_ms": None,
            "started_ms": {},
            "told": (),
            "running": True,
        }
    )
    job = _span(job, exported, "wait", "wait for devices", job.waits_since_ms, seen.time_ms, {"trainhouse.world_size": event.world_size})
    order = str(seen.envelope.order or "")
    job = _span(job, exported, "decision", "decision", seen.time_ms, seen.at_ms, {"trainhouse.order": order})
    inputs = [d for d in (data_of(event.spec), code_of(event.spec)) if d is not None]
    exported.runs.append(_run(job, seen.time_ms, Verb.START, inputs=tuple(inputs)))
    return job


def _started(job: JobTraced, seen: Seen, event: AttemptStarted, exported: Exported) -> JobTraced:
    node = str(event.node_id)
    if int(event.epoch) != job.epoch or node in job.started_ms or not _has(job, node):
        return job
    attributes: Attributes = {"trainhouse.node_id": node, "trainhouse.warm": event.warm}
    started = {**job.started_ms, node: event.started_at_ms}
    return _span(job, exported, f"launch:{node}", "launch", job.published_ms, event.started_at_ms, attributes, started_ms=started)


def _has(job: JobTraced, node_id: str) -> bool:
    """Returns whether the attempt was given the node. Of a job that an older version kept none is known."""
    return not job.nodes or node_id in job.nodes


def _restored(job: JobTraced, seen: Seen, event: CheckpointRestored, exported: Exported) -> JobTraced:
    if int(event.epoch) != job.epoch or "restore" in job.told:
        return job
    # Of a job that an older version kept no nodes are known.
    if seen.signers is not None and job.nodes and not seen.signers.intersection(job.nodes):
        return job  # anybody's word who may write to the topic
    exported.runs.append(_run(job, event.at_ms, Verb.RUNNING, inputs=(dataset_of(event.uri),)))
    attributes: Attributes = {"trainhouse.commit": event.commit, "trainhouse.step": event.step}
    begin_ms = event.at_ms - (round(event.restore_s * 1000) if isfinite(event.restore_s) else 0)
    return _span(job, exported, "restore", "restore", begin_ms, event.at_ms, attributes, restored_step=event.step)


def _progressed(job: JobTraced, seen: Seen, event: ProgressReported, exported: Exported) -> JobTraced:
    if int(event.epoch) != job.epoch or START in job.told or event.step <= (job.restored_step or 0) or not _has(job, event.node_id):
        return job
    since_ms = max(job.started_ms.values(), default=job.published_ms)
    job = _span(job, exported, "first-step", "first step", since_ms, event.at_ms, {"trainhouse.step": event.step})
    exported.runs.append(_run(job, event.at_ms, Verb.RUNNING))
    return _start(job, event.at_ms, "", exported)


def _saved(job: JobTraced, seen: Seen, event: CheckpointCompleted, exported: Exported) -> JobTraced:
    if int(event.epoch) == job.epoch:
        exported.runs.append(_run(job, event.at_ms, Verb.RUNNING, outputs=(dataset_of(event.uri),)))
    return job


def _artifact(job: JobTraced, seen: Seen, event: ArtifactLogged, exported: Exported) -> JobTraced:
    if job.running and not event.deleted:
        exported.runs.append(_run(job, event.at_ms, Verb.RUNNING, outputs=(dataset_of(event.uri, event.sha256),)))
    return job


def _inputs(job: JobTraced, seen: Seen, event: InputsLogged, exported: Exported) -> JobTraced:
    if job.running and event.datasets:
        datasets = tuple(dataset_of(d.source if "://" in d.source else f"dataset://{d.name}", d.digest) for d in event.datasets)
        exported.runs.append(_run(job, event.at_ms, Verb.RUNNING, inputs=datasets))
    return job


def _status(job: JobTraced, seen: Seen, event: JobStatus, exported: Exported) -> JobTraced:
    if int(event.epoch) < job.epoch or (event.submission_id is not None and str(event.submission_id) != job.submission_id):
        return job
    if event.state is JobState.RUNNING and job.running_ms is None:
        return job.model_copy(update={"running_ms": event.running_at_ms or event.updated_at_ms})
    if event.state in _ENDS and (job.running or (event.state.final and job.finished_ms is None)):
        job = _ended(job, event.finished_at_ms or event.updated_at_ms, _ENDS[event.state], event.reason, exported)
    update: dict[str, Any] = {"waits_since_ms": event.updated_at_ms} if event.state is JobState.PENDING and job.epoch else {}
    if event.state.final and job.finished_ms is None:
        update["finished_ms"] = seen.at_ms
    return job.model_copy(update=update)


def _ended(job: JobTraced, at_ms: int, verb: Verb, reason: str, exported: Exported) -> JobTraced:
    """The end of an attempt, or of a job that never had one."""
    if job.running:
        exported.runs.append(_run(job, at_ms, verb, reason="" if verb is Verb.COMPLETE else reason))
    if START not in job.told:
        # A script that reports no steps trained all the same when its job says RUNNING.
        done_ms = job.running_ms if verb is Verb.COMPLETE and job.running_ms else at_ms
        job = _start(job, done_ms, "" if verb is Verb.COMPLETE else reason or verb.value, exported)
    return job.model_copy(update={"running": False})


def _start(job: JobTraced, end_ms: int, error: str, exported: Exported) -> JobTraced:
    name = "job start" if job.attempt == 0 else "job restart"
    return _span(job, exported, START, name, job.begun_ms, end_ms, {}, error)


def _span(
    job: JobTraced, exported: Exported, part: str, name: str, start_ms: int, end_ms: int, more: Attributes, error: str = "", **update: Any
) -> JobTraced:
    """Exports the span of one part of an attempt, once; returns the job with that part marked as exported."""
    after = job.model_copy(update={"told": (*job.told, part), **update})
    root = span_id_of(str(job.job_id), 0, START)
    own_start = span_id_of(str(job.job_id), job.attempt, START)
    parent = own_start if part != START else (job.parent_id if job.attempt == 0 else root)
    if job.sampled and part not in job.told:
        span_id = own_start if part == START else span_id_of(str(job.job_id), job.attempt, part)
        begin_ms = min(start_ms, end_ms)
        exported.spans.append(Span(job.trace_id, span_id, parent, name, begin_ms, end_ms, _about(job) | more, error))
    return after


def _about(job: JobTraced) -> Attributes:
    return {
        "trainhouse.job_id": str(job.job_id),
        "trainhouse.job_name": job.name,
        "trainhouse.attempt": job.attempt,
        "trainhouse.epoch": job.epoch,
        "trainhouse.project": job.project,
        "trainhouse.pool": job.pool,
        "enduser.id": job.user,
    }


def _run(job: JobTraced, at_ms: int, verb: Verb, **more: Any) -> LineageRun:
    return LineageRun(verb, at_ms, str(job.job_id), job.attempt, job.epoch, job.name, job.project, job.user, job.pool, **more)


_ENDS = {
    JobState.SUCCEEDED: Verb.COMPLETE,
    JobState.FAILED: Verb.FAIL,
    JobState.REJECTED: Verb.FAIL,
    JobState.PENDING: Verb.FAIL,
    JobState.CANCELLED: Verb.ABORT,
    JobState.PREEMPTED: Verb.ABORT,
    JobState.NEEDS_REVIEW: Verb.ABORT,
}
_Handler = Callable[[JobTraced, Seen, Any, Exported], JobTraced]
_HANDLERS: dict[type, _Handler] = {
    JobSubmitted: _submitted,
    JobAdmitted: _admitted,
    GangAllocated: _allocated,
    AttemptStarted: _started,
    CheckpointRestored: _restored,
    CheckpointCompleted: _saved,
    ProgressReported: _progressed,
    JobStatus: _status,
    ArtifactLogged: _artifact,
    InputsLogged: _inputs,
}
