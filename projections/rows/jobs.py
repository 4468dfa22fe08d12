"""JobStatus and JobRejected to `jobs`, `job_status_history` and `rejections`.

Holds: a status replaces an older one by status_seq; the last one of a job is the same row by its topic and by the journal, which has it
when the topic has a tombstone in its place; the history of statuses has those of the journal, so that a rebuild makes the same one: what
follows progress alone, and stands on the compacted topic only, is not in it; a rejection that is keyed by its event never replaces a
status.
"""

from collections.abc import Iterator

from trainhouse.events.model.job import JobRejected, JobState, JobStatus
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms, event_ms, optional_ms


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """Rows of one status or rejection; nothing for other events."""
    event = envelope.event
    if isinstance(event, JobRejected):
        yield from _rejected(
            str(event.job_id or ""),
            str(event.submission_id),
            event.reason,
            clamp_ms(event.rejected_at_ms),
            JobStatus(
                job_id=event.job_id,
                status_seq=0,
                state=JobState.REJECTED,
                reason=event.reason,
                submission_id=event.submission_id,
                finished_at_ms=event.rejected_at_ms,
                updated_at_ms=event.rejected_at_ms,
            ),
        )
    elif isinstance(event, JobStatus):
        if _is_keyed_rejection(event, record):
            at = clamp_ms(event.updated_at_ms or event_ms(envelope, record))
            yield from _rejected(str(event.job_id or ""), str(event.submission_id or envelope.id), event.reason, at, event)
        else:
            yield _status_row(event, str(event.job_id or event.submission_id or envelope.id), event.status_seq + 1)
            if envelope.order is None or not envelope.order.live:
                yield _transition(event, envelope, record)


def history(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one status as it was decided, for its job's history alone; nothing for other events."""
    if isinstance(envelope.event, JobStatus):
        yield _transition(envelope.event, envelope, record)


def ended(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of a job's last status as it was decided; nothing for other events. The status topic gives jobs up that ended long ago."""
    event = envelope.event
    if isinstance(event, JobStatus) and event.state.final and event.job_id is not None:
        yield _status_row(event, str(event.job_id), event.status_seq + 1)


def _is_keyed_rejection(event: JobStatus, record: Record) -> bool:
    key = (record.key or b"").decode("utf-8", "replace")
    return event.state is JobState.REJECTED and (event.job_id is None or key != event.job_id)


def _rejected(job_id: str, submission_id: str, reason: str, at: int, status: JobStatus) -> Iterator[Row]:
    yield Row("rejections_rows", {"submission_id": submission_id, "job_id": job_id, "reason": reason, "rejected_at": at})
    yield _status_row(status, job_id or submission_id, 0)


def _transition(event: JobStatus, envelope: Envelope, record: Record) -> Row:
    return Row(
        "statuses_rows",
        {
            "job_id": str(event.job_id or ""),
            "status_seq": event.public_seq,
            "at": clamp_ms(event.updated_at_ms or event_ms(envelope, record)),
            "state": event.state.value,
            "reason": event.reason,
            "attempt": int(event.attempt),
            "epoch": int(event.epoch),
            "restarts": event.restarts,
            "pool": str(event.pool or ""),
            "priority": event.priority,
            "world_size": event.world_size,
            "node_ids": [str(p.node_id) for p in event.allocation],
            "step": event.step,
        },
    )


def _status_row(event: JobStatus, job_key: str, version: int) -> Row:
    last = event.last_checkpoint
    return Row(
        "jobs_rows",
        {
            "job_key": job_key,
            "version": version,
            "job_id": str(event.job_id or ""),
            "name": event.name,
            "project": event.project,
            "purpose": event.purpose,
            "team": event.team,
            "user": event.user,
            "pool": str(event.pool or ""),
            "priority": event.priority,
            "state": event.state.value,
            "reason": event.reason,
            "attempt": int(event.attempt),
            "epoch": int(event.epoch),
            "restarts": event.restarts,
            "world_size": event.world_size,
            "node_ids": [str(p.node_id) for p in event.allocation],
            "step": event.step,
            "total_steps": event.total_steps,
            "loss": event.loss,
            "learning_rate": event.learning_rate,
            "steps_per_s": event.steps_per_s,
            "samples_per_s": event.samples_per_s,
            "elapsed_s": event.elapsed_s,
            "eta_s": event.eta_s,
            "last_checkpoint_step": last.step if last else None,
            "last_checkpoint_commit": last.commit if last else None,
            "last_checkpoint_uri": last.uri if last else "",
            "submission_id": str(event.submission_id or ""),
            "spec_sha256": event.spec_sha256,
            "submitted_at": optional_ms(event.submitted_at_ms),
            "allocated_at": optional_ms(event.allocated_at_ms),
            "started_at": optional_ms(event.running_at_ms),
            "finished_at": optional_ms(event.finished_at_ms),
            "updated_at": clamp_ms(event.updated_at_ms),
        },
    )
