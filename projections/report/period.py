"""The time that a report is about, and the pieces of it that its plots show.

Holds: half open, [since, until); pieces are of equal length and cover it without a gap.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MAX_PIECES = 62


@dataclass(frozen=True)
class Period:
    """Times in milliseconds since 1970. `pool` None: all pools."""

    since_ms: int
    until_ms: int
    pool: str | None = None

    def __post_init__(self) -> None:
        if self.until_ms <= self.since_ms:
            raise ValueError("the report ends before it begins: --since must be earlier than --until")

    @property
    def length_ms(self) -> int:
        return self.until_ms - self.since_ms

    @property
    def before(self) -> "Period":
        """The time of the same length just before."""
        return Period(self.since_ms - self.length_ms, self.since_ms, self.pool)

    @property
    def pieces(self) -> int:
        """Days, or hours where there are less than two days; at most MAX_PIECES."""
        unit_ms = DAY_MS if self.length_ms >= 2 * DAY_MS else HOUR_MS
        return max(1, min(MAX_PIECES, round(self.length_ms / unit_ms)))

    @property
    def piece_ms(self) -> int:
        """Length of each piece; the last one may reach beyond the end by less than a millisecond a piece."""
        return -(-self.length_ms // self.pieces)

    def label(self, piece: int) -> str:
        """Formats the begin of a piece, UTC."""
        began = datetime.fromtimestamp((self.since_ms + piece * self.piece_ms) / 1000, UTC)
        return began.strftime("%a %d" if self.piece_ms >= DAY_MS * 0.9 else "%H:%M")

    @property
    def noun(self) -> str:
        """Name of a period, for people."""
        return "week" if abs(self.length_ms - 7 * DAY_MS) < HOUR_MS else "day" if abs(self.length_ms - DAY_MS) < HOUR_MS else "period"
