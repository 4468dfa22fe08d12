"""Service level of a part of the platform, as its users measure it.

Holds: measured from outside, by a user of the part; a span without questions has no event.
"""

from pydantic import Field

from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import Count, DurationS, TimestampMs


class ServiceMeasured(Event, type="trainhouse.service.measured.v1"):
    """Questions to `service` between two moments: `good` were answered within `limit_s`, `failed` not at all. Times in seconds."""

    service: str = Field(min_length=1, max_length=64)
    source: str = Field(min_length=1, max_length=128, description="who asked")
    since_ms: TimestampMs
    at_ms: TimestampMs
    total: Count = Field(ge=1)
    good: Count
    failed: Count = 0
    limit_s: DurationS = Field(gt=0)
    p50_s: DurationS | None = Field(None, ge=0)
    p99_s: DurationS | None = Field(None, ge=0)
    max_s: DurationS | None = Field(None, ge=0)

    def subject(self) -> str:
        return self.service
