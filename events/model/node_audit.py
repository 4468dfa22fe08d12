"""Audit of accesses on a node: commands, stacks and secrets that its agent granted, refused, or saw end.

Holds: texts that come from callers are bounded; a refusal that was repeated is one event with a count, and the counts add up.
Never: the value of a secret.
"""

from enum import StrEnum

from pydantic import Field

from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import ByteCount, Count, Int32, SmallCount, SpanMs, TimestampMs


class Outcome(StrEnum):
    """Outcome of an access. ENDED: one that was granted is over."""

    GRANTED = "granted"
    REFUSED = "refused"
    ENDED = "ended"


class NodeAccess(Event, type="trainhouse.access.node.v1"):
    """An access to what a node has, by its agent or by whoever changes the node's secrets; signed with the node's key.

    `access` is its class: exec (commands, stacks and profiles), secret (what a launch gets, and changes of secrets). `sub` is empty where
    nothing could be believed. An ENDED one has the `access_id` of its GRANTED one.
    """

    at_ms: TimestampMs
    since_ms: TimestampMs
    count: Count = Field(1, ge=1)
    outcome: Outcome = Field(description="granted, refused, or ended")
    access: str = Field(max_length=32, description="class: exec or secret")
    action: str = Field(max_length=256, description="as ExecuteCommand, or secrets grant")
    target: str = Field("", max_length=256, description="what was asked for")
    node_id: str = Field("", max_length=256)
    job_id: str = Field("", max_length=512)
    project: str = Field("", max_length=128)
    attempt: SmallCount | None = None
    ranks: tuple[SmallCount, ...] = Field((), max_length=1024, description="ranks that it was about")
    sub: str = Field("", max_length=128)
    address: str = Field("", max_length=64, description="the host from which it was asked, as the request says")
    reason: str = Field("", max_length=1024, description="what the name rests on, or why it was refused")
    access_id: str = Field("", max_length=64)
    text: str = Field("", max_length=65_536, description="the command, or names of secrets; values are masked")
    text_sha256: str = Field("", max_length=64, description="of the whole text, where it was cut")
    exit_code: Int32 | None = None
    size_bytes: ByteCount = Field(0, description="bytes of the output")
    took_ms: SpanMs | None = Field(None, description="milliseconds from begin to end")

    def subject(self) -> str:
        return self.node_id or "unknown"
