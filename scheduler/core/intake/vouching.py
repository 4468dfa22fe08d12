"""Origin of a request: intake derives it from the topic on which the event came.

Holds: on a project's topic the project is the topic's, whatever the event claims: its spec names that project, its jobs' ids begin with
`PROJECT.`, its event's id becomes `PROJECT/ID` (so it is never taken for another's event, nor a refusal of it for a status), and its user
becomes `PROJECT/USER`: a claim that the project vouches for, and no other. On `trainhouse.jobs`, names are believed: operators and the
gateway write there.
Never: lets a project ask anything of a pool or a node.
"""

from dataclasses import replace
from typing import Any

from trainhouse.events import (
    AskedVia,
    CancelJob,
    ChangeJob,
    Envelope,
    Event,
    EventId,
    InvalidEvent,
    JobSpec,
    JobSubmitted,
    RequestedBy,
    ReviewJob,
)
from trainhouse.events.wire.project_topics import jobs_topic

UNNAMED = "unknown"
MAX_USER_CHARS = 128
# What a spec says that names none.
NO_PROJECT = str(JobSpec.model_fields["project"].default)
ALLOWED: tuple[type[Event], ...] = (JobSubmitted, CancelJob, ChangeJob, ReviewJob)


def vouched(envelope: Envelope, project: str | None) -> Envelope:
    """The event as intake passes it on. Raises InvalidEvent for what a project's topic does not take."""
    if project is None:
        return replace(envelope, project=None, event=_by_operator(envelope.event))
    if not isinstance(envelope.event, ALLOWED):
        kinds = ", ".join(cls.event_type for cls in ALLOWED)
        raise InvalidEvent(
            f"{envelope.type} does not belong on {jobs_topic(project)}: a project's topic takes {kinds}; ask an operator",
            **_hints(envelope),
        )
    return replace(
        envelope,
        id=_event_id(envelope, project),
        source=f"trainhouse/projects/{project}/{envelope.source}",
        project=project,
        event=_by_project(envelope, project),
    )


def claimed_user(project: str, user: str) -> str:
    """A user as a project names one."""
    return f"{project}/{user.removeprefix(project + '/')}"


def _by_operator(event: Event) -> Event:
    """Fills in the requester where the gateway has not; on this topic only the gateway and operators write."""
    if "requested_by" not in type(event).model_fields:
        return event
    requester: RequestedBy | None = getattr(event, "requested_by", None)
    if requester is not None and requester.via is not AskedVia.PROJECT:
        return event
    name = requester.name if requester is not None else str(getattr(event, "user", "") or UNNAMED)
    return event.model_copy(update={"requested_by": RequestedBy(name=name, via=AskedVia.OPERATOR)})


def _by_project(envelope: Envelope, project: str) -> Event:
    event = envelope.event
    if isinstance(event, JobSubmitted):
        return _submission(envelope, event, project)
    requester: RequestedBy | None = getattr(event, "requested_by", None)
    user = event.user if isinstance(event, CancelJob | ReviewJob) else requester.name if requester is not None else UNNAMED
    name = _user(envelope, project, user)
    asked = RequestedBy(name=name, via=AskedVia.PROJECT, project=project)
    more: dict[str, Any] = {"user": name} if isinstance(event, CancelJob | ReviewJob) else {}
    return event.model_copy(update={"requested_by": asked} | more)


def _submission(envelope: Envelope, event: JobSubmitted, project: str) -> JobSubmitted:
    spec = event.spec
    if spec.project not in (NO_PROJECT, project):
        raise InvalidEvent(
            f"spec.project: this topic is that of project {project}; leave the field out, or write {project}", **_hints(envelope)
        )
    if not event.job_id.startswith(f"{project}."):
        raise InvalidEvent(f"job_id: the ids of jobs on this topic begin with {project!r} and a dot: {project}.NAME", **_hints(envelope))
    own = spec.model_copy(update={"project": project, "user": _user(envelope, project, spec.user)})
    # A role is the gateway's to say.
    return event.model_copy(update={"spec": own, "asked_as": None})


def _user(envelope: Envelope, project: str, user: str) -> str:
    name = claimed_user(project, user)
    if len(name) > MAX_USER_CHARS:
        raise InvalidEvent(
            f"user: with the project before it, {name[:40]!r}… has {len(name)} characters; at most {MAX_USER_CHARS}", **_hints(envelope)
        )
    return name


def _event_id(envelope: Envelope, project: str) -> EventId:
    try:
        return EventId.parse(outcome_id(project, envelope.id))
    except ValueError as error:
        raise InvalidEvent("id: with the project before it, it is too long; use at most 400 characters", **_hints(envelope)) from error


def outcome_id(project: str | None, event_id: str) -> str:
    """The id under which a request's outcome is published."""
    return event_id if project is None else f"{project}/{event_id}"


def _hints(envelope: Envelope) -> dict[str, str | None]:
    job_id = getattr(envelope.event, "job_id", None)
    return {"job_id": str(job_id) if job_id is not None else None, "event_id": str(envelope.id)}
