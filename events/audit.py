"""Who asked what of the gateway and got which answer; tokens that were issued or revoked.

Holds: texts that come from callers are bounded; a refusal that was repeated is one event with a count, so that a flood of bad
requests is a few events.  Never: a token, a key or a request's body.
"""

from pydantic import Field

from trainhouse.events.base import Event


class AccessRefused(Event, type="trainhouse.access.refused.v1"):
    """A request was refused: no sound token (401), no right to it (403), no such thing that its asker may see (404),
    or more than was given (429).

    `sub` and `token_id` are empty where the token told nothing that could be believed. `count`: so many alike since `since_ms`.
    """

    at_ms: int
    since_ms: int
    count: int = Field(1, ge=1)
    status: int = Field(ge=100, le=599)
    action: str = Field(max_length=256, description="method and route, as GET /v1/training-jobs/{job_id}")
    target: str = Field("", max_length=256, description="what was asked for: a job's id, a node …")
    sub: str = Field("", max_length=128)
    token_id: str = Field("", max_length=128)
    address: str = Field("", max_length=64, description="where the request came from")
    reason: str = Field("", max_length=1024)

    def subject(self) -> str:
        return self.sub or "unknown"


class RequestAccepted(Event, type="trainhouse.access.accepted.v1"):
    """A request that changes something was passed on: `event_id` is that of the event which it became, on `topic`."""

    at_ms: int
    action: str = Field(max_length=256)
    target: str = Field("", max_length=256)
    project: str = Field("", max_length=128)
    sub: str = Field(max_length=128)
    token_id: str = Field("", max_length=128)
    address: str = Field("", max_length=64)
    event_id: str = Field("", max_length=512)
    topic: str = Field("", max_length=128)

    def subject(self) -> str:
        return self.sub


class TokenIssued(Event, type="trainhouse.token.issued.v1"):
    """A token was made. What it says, never the token itself. `expires_at_ms` None: only a revocation ends it."""

    token_id: str = Field(min_length=1, max_length=128)
    sub: str = Field(min_length=1, max_length=128)
    roles: tuple[str, ...] = Field(max_length=4)
    projects: tuple[str, ...] = Field(max_length=256)
    at_ms: int
    expires_at_ms: int | None = None
    by: str = Field("", max_length=128)

    def subject(self) -> str:
        return self.token_id


class TokenRevoked(Event, type="trainhouse.token.revoked.v1"):
    """A token counts no more, whatever it says of its end."""

    token_id: str = Field(min_length=1, max_length=128)
    at_ms: int
    by: str = Field("", max_length=128)
    reason: str = Field("", max_length=1024)

    def subject(self) -> str:
        return self.token_id
