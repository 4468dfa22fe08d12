"""Times as text. Pure, without models."""

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(time_ms: int) -> str:
    """Milliseconds since 1970 as RFC 3339 text in UTC."""
    return (EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
