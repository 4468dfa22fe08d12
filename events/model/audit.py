"""Audit of requests and their answers, and of tokens that were issued or revoked.

Holds: texts that come from callers are bounded; a refusal, or a read, that was repeated is one event with a count, so that a flood of
them is a few events, and the counts add up.  Never: a token, a key or a request's body; of SQL the statement, which is what was asked.
"""

from pydantic import Field

from trainhouse.events.model.absence import is_absent
from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import ByteCount, Count, ShortText, SpanMs, TimestampMs
from trainhouse.events.model.ids import JobId


class AccessRefused(Event, type="trainhouse.access.refused.v1"):
    """A request was refused: no sound token (401), no right to it (403), no such thing that its asker may see (404),
    or more than was given (429).

    `sub` and `token_id` are empty where the token told nothing that could be believed. `count`: so many alike since `since_ms`.
    """

    at_ms: TimestampMs
    since_ms: TimestampMs
    count: Count = Field(1, ge=1)
    status: int = Field(ge=100, le=599, description="status of the answer")
    action: str = Field(max_length=256, description="method and route, as GET /v1/training-jobs/{job_id}")
    target: str = Field("", max_length=256, description="what was asked for: a job's id, a node …")
    sub: str = Field("", max_length=128)
    token_id: str = Field("", max_length=128)
    address: str = Field("", max_length=64, description="where the request came from")
    reason: str = Field("", max_length=1024)

    def subject(self) -> str:
        return self.sub or "unknown"


class AccessGranted(Event, type="trainhouse.access.granted.v1"):
    """An access was let in, and why. `count`: so many alike since `since_ms`, with the bytes of all their answers.

    `access` is its class: read, track (points and tags of a tracked run), write, sql, stream, session, exec. Of sql and streams this is the
    beginning, and AccessEnded with the same `access_id` the end.
    """

    at_ms: TimestampMs
    since_ms: TimestampMs
    count: Count = Field(1, ge=1)
    access: str = Field(max_length=32, description="class: read, track, write, sql, stream, session or exec")
    action: str = Field(max_length=256, description="method and route, as GET /v1/training-jobs/{job_id}")
    target: str = Field("", max_length=256, description="what was asked for: a job's id, a node …")
    sub: str = Field("", max_length=128)
    token_id: str = Field("", max_length=128)
    session_id: str = Field("", max_length=128, description="session of the pages, if it came from one")
    address: str = Field("", max_length=64)
    reason: str = Field("", max_length=1024, description="why it was allowed: the role that it needs, and what the asker has")
    access_id: str = Field("", max_length=64)
    text: str = Field("", max_length=65_536, description="the statement in SQL, or the command; or all ids, where the target is cut")
    text_sha256: str = Field("", max_length=64, description="of the whole text, where it was cut")
    size_bytes: ByteCount = Field(0, description="bytes of all answers")

    def subject(self) -> str:
        return self.sub or "unknown"


class AccessEnded(Event, type="trainhouse.access.ended.v1"):
    """An access that AccessGranted began has ended. `rows` None: not known in this form of answer."""

    at_ms: TimestampMs
    access_id: str = Field(max_length=64)
    access: str = Field(max_length=32, description="class: sql or stream")
    action: str = Field(max_length=256, description="method and route")
    target: str = Field("", max_length=256, description="what was asked for")
    sub: str = Field("", max_length=128)
    token_id: str = Field("", max_length=128)
    address: str = Field("", max_length=64)
    status: int = Field(ge=100, le=599, description="status of the answer")
    rows: Count | None = Field(None, description="rows of the answer; none: not known in this form")
    size_bytes: ByteCount = Field(0, description="bytes of the answer")
    took_ms: SpanMs = Field(0, description="milliseconds from begin to end")
    reason: str = Field("", max_length=1024, description="why it was not answered")

    def subject(self) -> str:
        return self.sub or "unknown"


class AuditLost(Event, type="trainhouse.access.audit-lost.v1"):
    """So many events of the audit were lost since `since_ms`: the bus did not take them, and the operator chose that work goes on."""

    at_ms: TimestampMs
    since_ms: TimestampMs
    count: Count = Field(ge=1)
    source: str = Field("", max_length=128, description="process that lost them")
    reason: str = Field("", max_length=1024)

    def subject(self) -> str:
        return self.source or "unknown"


class RequestAccepted(Event, type="trainhouse.access.accepted.v1"):
    """A request that changes something was passed on: `event_id` is that of the event which it became, on `topic`."""

    at_ms: TimestampMs
    action: str = Field(max_length=256, description="method and route")
    target: str = Field("", max_length=256, description="what it changes")
    project: str = Field("", max_length=128)
    sub: str = Field(max_length=128)
    token_id: str = Field("", max_length=128)
    address: str = Field("", max_length=64)
    event_id: str = Field("", max_length=512, description="id of the event that it became")
    topic: str = Field("", max_length=128, description="topic of that event")

    def subject(self) -> str:
        return self.sub


class TokenIssued(Event, type="trainhouse.token.issued.v1"):
    """A token was made. What it says, never the token itself. `expires_at_ms` None: only a revocation ends it."""

    token_id: str = Field(min_length=1, max_length=128, description="id of the token")
    sub: str = Field(min_length=1, max_length=128, description="user or service that it names")
    roles: tuple[ShortText, ...] = Field(max_length=4, description="roles that it gives")
    projects: tuple[ShortText, ...] = Field(max_length=256, description="projects that it is for; *: all")
    at_ms: TimestampMs
    expires_at_ms: TimestampMs | None = Field(
        None, description="time of its end, in milliseconds since 1970; none: only a revocation ends it"
    )
    by: str = Field("", max_length=128, description="who made it")
    job_id: JobId | None = Field(None, exclude_if=is_absent, description="only job whose page it opens; absent: a token as any other")

    def subject(self) -> str:
        return self.token_id


class TokenRevoked(Event, type="trainhouse.token.revoked.v1"):
    """A token counts no more, whatever it says of its end."""

    token_id: str = Field(min_length=1, max_length=128, description="id of the token")
    at_ms: TimestampMs
    by: str = Field("", max_length=128, description="who revoked it")
    reason: str = Field("", max_length=1024)

    def subject(self) -> str:
        return self.token_id
