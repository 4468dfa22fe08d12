"""Model of the report: figures of one period, and derived figures. Pure.

Holds: a figure for which there is no data is None, never 0; device time is in device-seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainhouse.projections.report.device_time import CAUSES
from trainhouse.projections.report.period import Period

INFRASTRUCTURE = ("NODE", "DEVICE", "NETWORK", "STORAGE", "PLATFORM")
"""Categories of failures that the fleet answers for."""

WASTE = ("REWORK", "STARTING", "DATA_WAIT", "SAVE_STALL", "ENDING")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Recovery:
    """Failures of one category (or of all), and the seconds until their jobs made a step again."""

    failures: int
    jobs: int
    recovered: int
    by_status: int
    p50_s: float | None
    p95_s: float | None
    worst_s: float | None
    lost_steps: int | None


@dataclass(frozen=True)
class Health:
    """A period in figures. `time`: device-seconds by piece and cause."""

    period: Period
    total: Recovery | None = None
    by_category: Mapping[str, Recovery] = field(default_factory=dict)
    by_rule: Sequence[Row] = ()
    by_team: Sequence[Row] = ()
    by_job: Sequence[Row] = ()
    over_time: Mapping[tuple[int, str], int] = field(default_factory=dict)
    time: Mapping[tuple[int, str], float] = field(default_factory=dict)
    node_s: float = 0.0
    unjudged: int = 0
    checkpoints: Row = field(default_factory=dict)
    checkpoint_failures: Sequence[Row] = ()
    nodes: Sequence[Row] = ()
    alerts: Sequence[Row] = ()

    @property
    def failures(self) -> int:
        return self.total.failures if self.total else 0

    @property
    def infrastructure_failures(self) -> int:
        return sum(r.failures for c, r in self.by_category.items() if c in INFRASTRUCTURE)

    @property
    def device_s(self) -> float:
        """All device time that gangs held."""
        return sum(self.time.values())

    @property
    def measured_s(self) -> float:
        """Device-seconds with a known cause."""
        return sum(s for (_, cause), s in self.time.items() if cause != "UNMEASURED")

    def of(self, cause: str) -> float:
        """Device-seconds of one cause."""
        assert cause in CAUSES
        return sum(s for (_, c), s in self.time.items() if c == cause)

    @property
    def goodput(self) -> float | None:
        """Share of the measured device time that made steps that were kept."""
        return self.of("KEPT") / self.measured_s if self.measured_s else None

    @property
    def wasted_s(self) -> float | None:
        return sum(self.of(c) for c in WASTE) if self.measured_s else None

    def between_failures_s(self, infrastructure: bool, nodes: bool = False) -> float | None:
        """Device-seconds (or node-seconds) per failure; None without a failure or without allocated time."""
        failures = self.infrastructure_failures if infrastructure else self.failures
        allocated_s = self.node_s if nodes else self.device_s
        return allocated_s / failures if failures and allocated_s else None

    @property
    def saves(self) -> int:
        """Saves that ended, well or not."""
        return int(self.checkpoints.get("completed") or 0) + int(self.checkpoints.get("failed") or 0)

    @property
    def failed_saves_share(self) -> float | None:
        return int(self.checkpoints.get("failed") or 0) / self.saves if self.saves else None

    @property
    def empty(self) -> bool:
        """True if nothing at all is known of the period."""
        return not (self.device_s or self.failures or self.unjudged or self.saves or self.nodes or self.alerts)


@dataclass(frozen=True)
class Compared:
    """A period and the one of the same length before it. `made_at_ms`: when it was asked."""

    now: Health
    before: Health
    made_at_ms: int
