"""How well a part of the platform answered, as somebody saw it who asked.

Holds: measured from outside, by who uses the part; a span without questions has no event.
"""

from pydantic import Field

from trainhouse.events.base import Event


class ServiceMeasured(Event, type="trainhouse.service.measured.v1"):
    """Questions to `service` between two moments: `good` were answered within `limit_s`, `failed` not at all. Times in seconds."""

    service: str = Field(min_length=1, max_length=64)
    source: str = Field(min_length=1, max_length=128, description="who asked")
    since_ms: int
    at_ms: int
    total: int = Field(ge=1)
    good: int = Field(ge=0)
    failed: int = Field(0, ge=0)
    limit_s: float = Field(gt=0)
    p50_s: float | None = Field(None, ge=0)
    p99_s: float | None = Field(None, ge=0)
    max_s: float | None = Field(None, ge=0)

    def subject(self) -> str:
        return self.service
