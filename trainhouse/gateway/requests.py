"""Translation of a write: ids of events and jobs, and the check that its sender may submit its spec.

Holds: pure. A repeated request with the same Idempotency-Key has the same ids, so that the bus's own rules make it one: the same event id
is one event, and the same job id with another spec is refused.
"""

import hashlib
from typing import Annotated

from fastapi import Header

from trainhouse.events import AskedVia, JobId, JobSpec, RequestedBy
from trainhouse.events.model.job_ids import slug
from trainhouse.events.security.sensitive import refusal
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.errors import ProblemError

UNNAMED_USER = "unknown"
DIGEST_CHARS = 20

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="The same key with the same body is one request, however often it is sent.",
    ),
]


def keyed_job_id(sub: str, key: str) -> JobId:
    """The job of a principal's key, whatever its spec says."""
    return JobId.parse(f"{slug(sub)}-{_digest('job', sub, key)}")


def keyed_event_id(sub: str, key: str, *parts: str) -> str:
    """The event of a principal's key and what it asks for."""
    return f"gateway-{_digest('event', sub, key, *parts)}"


def _digest(*parts: str) -> str:
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARS]


def own_spec(spec: JobSpec, principal: Principal) -> JobSpec:
    """The spec as this principal's. Raises ProblemError where it is not its to submit, or its `env` has what looks like a secret."""
    refused = refusal(spec)
    if refused:
        raise ProblemError(422, "Invalid request", f"spec.{refused}")
    if not principal.sees(spec.project):
        raise ProblemError(
            403,
            "Forbidden",
            f"spec.project: your token has no rights in project {spec.project}; it has {', '.join(principal.projects)}",
        )
    refuse_read_only(spec.project, principal)
    if spec.user == UNNAMED_USER:
        return spec.model_copy(update={"user": principal.sub})
    if spec.user != principal.sub and not principal.may(Role.OPERATOR):
        raise ProblemError(
            403, "Forbidden", f"spec.user: you submit as {principal.sub}, not as {spec.user}; leave it out, or ask an operator"
        )
    return spec


def requested_by(principal: Principal) -> RequestedBy:
    """Returns the requester, as the gateway vouches for it."""
    return RequestedBy(name=principal.sub, via=AskedVia.GATEWAY, role=principal.role.name.lower())


def refuse_read_only(project: str, principal: Principal) -> None:
    """Raises ProblemError 403 where somebody may read what belongs to a project, but not change it."""
    if principal.only_reads(project):
        raise ProblemError(
            403, "Forbidden", f"{principal.sub} may read project {project}, and no more: ask one of its maintainers to be made a submitter"
        )


def refuse_named(job_id: str | None, principal: Principal) -> None:
    """Ids of jobs are one namespace of all projects: only who sees them all may choose one. Raises ProblemError 403."""
    if job_id is not None and not principal.everywhere:
        raise ProblemError(
            403,
            "Forbidden",
            "job_id: only a token of all projects may choose a job's id; send an Idempotency-Key to make a repeat harmless",
        )


def reused_key(key: str) -> ProblemError:
    """A key that stands for another request already."""
    return ProblemError(
        422, "Idempotency key reused", f"the Idempotency-Key {key!r} was used for another spec; use a new key for a new request"
    )
