"""Registrations that jobs' specs ask for (`register: NAME`): which status asks for one, and the request. Pure.

Holds: equal statuses give requests of equal ids and times, so that one which is sent again counts once; the submitter asks, by no better
evidence than the topic of the submission. A job that succeeded without a checkpoint that can be a version asks as well: the registry
refuses it with the reason, in the model's history.
"""

from dataclasses import dataclass
from typing import Final

from trainhouse.events import AskedVia, EventId, JobSpec, JobState, JobStatus, ModelRegistered, RequestedBy
from trainhouse.events.model.model_registry import MOST_DATA
from trainhouse.events.wire.envelope import Envelope, envelope_of
from trainhouse.scheduler.core.intake.request_ids import request_digest
from trainhouse.scheduler.core.registry.registry_state import RegistryState

SOURCE: Final = "trainhouse/jobs"


@dataclass(frozen=True, slots=True)
class RegisteredCheckpoint:
    """A job's last checkpoint, as a version is made of it. `data`, `splits`: of its spec, as `VersionFacts` has them."""

    project: str
    job_id: str
    commit: int
    code: str | None = None
    data: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()


def asks_for_version(status: JobStatus) -> bool:
    """Whether a job has succeeded whose last checkpoint is to become a version."""
    return status.registers is not None and status.state is JobState.SUCCEEDED and status.job_id is not None


def checkpoint_of(status: JobStatus, spec: JobSpec | None) -> RegisteredCheckpoint | None:
    """The checkpoint that becomes a version; None where the job has none. `spec`: as the job was admitted; None: on no topic any more."""
    if status.last_checkpoint is None or status.job_id is None:
        return None
    code = spec.code.sha256 if spec is not None and spec.code is not None else None
    data, splits = ((), ()) if spec is None else data_of(spec)
    return RegisteredCheckpoint(status.project, str(status.job_id), status.last_checkpoint.commit, code, data, splits)


def data_of(spec: JobSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Versions of datasets that a spec names, and their splits; a split that its program chooses is not known."""
    if spec.data is None or spec.data.dataset is None:
        return (), ()
    named = str(spec.data.dataset)
    return (named,), (f"{named}/{spec.data.split}",) if spec.data.split is not None else ()


def registration(status: JobStatus, checkpoint: RegisteredCheckpoint | None, content: str | None) -> Envelope:
    """The request. `content`: hash of the content that was made of the checkpoint; None: there is none, which the registry refuses."""
    asked = ModelRegistered.model_validate(
        {
            "project": status.project,
            "name": status.registers,
            "content": content,
            "job_id": status.job_id,
            "commit": checkpoint.commit if checkpoint is not None else None,
            "splits": checkpoint.splits[:MOST_DATA] if checkpoint is not None else (),
            "user": status.user[:128],
            "requested_by": _submitter(status),
        }
    )
    return envelope_of(asked, id=EventId.parse(f"{status.job_id}:registered"), source=SOURCE, now_ms=status.finished_at_ms or 0)


def digest_of(status: JobStatus) -> bytes:
    """Hash by which the registry knows the request of a status."""
    return request_digest(registration(status, None, None))


def is_held(state: RegistryState, digest: bytes) -> bool:
    """Whether a request waits for the object store."""
    return digest.hex() in state.held


def is_answered(state: RegistryState, status: JobStatus, digest: bytes, is_out: bool) -> bool:
    """Whether a request was answered for good: by a version, or a refusal. `is_out`: it was sent; the answer to one that is too old to be
    told from a repeat may be forgotten by now."""
    if is_held(state, digest):
        return False
    return state.asked.knows(None, digest) or (is_out and state.asked.too_old(None, status.finished_at_ms or 0))


def _submitter(status: JobStatus) -> RequestedBy:
    """The user of a job; on a project's topic intake puts the project before it, and its jobs' ids begin with the project, too."""
    of_topic = status.user.startswith(f"{status.project}/") and str(status.job_id).startswith(f"{status.project}.")
    name = status.user[:256] or "unknown"
    if of_topic:
        return RequestedBy(name=name, via=AskedVia.PROJECT, project=status.project[:128])
    return RequestedBy(name=name, via=AskedVia.OPERATOR)
