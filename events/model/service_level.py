"""Service level of a part of the platform, as its users measure it.

Holds: measured from outside, by a user of the part; a span without questions has no event.
"""

from pydantic import Field

from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import Count, DurationS, TimestampMs


class ServiceMeasured(Event, type="trainhouse.service.measured.v1"):
    """Questions to `service` between two moments: `good` were answered within `limit_s`, `failed` not at all. Times in seconds."""

    service: str = Field(min_length=1, max_length=64, description="part of the platform that was asked")
    source: str = Field(min_length=1, max_length=128, description="who asked")
    since_ms: TimestampMs = Field(description="begin of the span, in milliseconds since 1970")
    at_ms: TimestampMs = Field(description="end of the span, in milliseconds since 1970")
    total: Count = Field(ge=1, description="questions")
    good: Count = Field(description="those answered within `limit_s`")
    failed: Count = Field(0, description="those not answered at all")
    limit_s: DurationS = Field(gt=0, description="seconds within which an answer is good")
    p50_s: DurationS | None = Field(None, ge=0, description="median time of an answer, in seconds")
    p99_s: DurationS | None = Field(None, ge=0, description="99th percentile, in seconds")
    max_s: DurationS | None = Field(None, ge=0, description="longest, in seconds")

    def subject(self) -> str:
        return self.service
