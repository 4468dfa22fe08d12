"""Figures of the projector and of the alerts process for Prometheus.

Holds: without a registry they count for nobody; labels are lanes, tables, outcomes and severities.
Never: a label with a job's or a node's name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from trainhouse.events.runtime.metrics_server import FAST_S, SLOW_S
from trainhouse.projections.record import Record

if TYPE_CHECKING:
    import pyarrow as pa  # alerts count here too, and never see a table

Lag = Callable[[], int]


class LaneMeters:
    """All lanes of one projector."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.records = Counter("trainhouse_projector_records", "Records whose rows are in", ("lane",), registry=registry)
        self.rows = Counter("trainhouse_projector_rows", "Rows written", ("table",), registry=registry)
        self.dead = Counter("trainhouse_projector_dead_letters", "Records that could not be read", ("lane",), registry=registry)
        self.batch = Histogram(
            "trainhouse_projector_batch_seconds", "From a batch's intent to its last row", ("lane",), registry=registry, buckets=FAST_S
        )
        self.lag = Histogram(
            "trainhouse_projector_ingest_lag_seconds",
            "From the oldest record of a batch, by its own time, until its rows can be read",
            ("lane",),
            registry=registry,
            buckets=SLOW_S,
        )

    def wrote(self, lane: str, tables: Mapping[str, pa.Table], unreadable: int) -> None:
        """The rows of one batch are in."""
        for table, rows in tables.items():
            self.rows.labels(table).inc(rows.num_rows)
        self.dead.labels(lane).inc(unreadable)

    def ingested(self, lane: str, records: Sequence[Record], took_s: float) -> None:
        """A batch is done."""
        self.records.labels(lane).inc(len(records))
        self.batch.labels(lane).observe(took_s)
        oldest_ms = min((r.timestamp_ms for r in records if r.timestamp_ms > 0), default=0)
        if oldest_ms:
            self.lag.labels(lane).observe(max(0.0, time.time() - oldest_ms / 1000))


class LaneLag(Collector):
    """Lag of each lane behind its topics, computed at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lanes: dict[str, Lag] = {}
        registry.register(self)

    def follow(self, lane: str, lag: Lag) -> None:
        """`lag` gives records, transactions' ends among them; it answers at once."""
        self._lanes[lane] = lag

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """For Prometheus' client."""
        family = GaugeMetricFamily(
            "trainhouse_projector_lag_records",
            "Records that a lane has not written; a transaction's end is one",
            labels=("lane",),
        )
        for lane, lag in list(self._lanes.items()):
            family.add_metric((lane,), lag())
        yield family


class QueryMeters:
    """The SQL endpoint."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.seconds = Histogram(
            "trainhouse_projector_query_seconds",
            "A request of the SQL endpoint, its wait for a connection included",
            ("outcome",),
            registry=registry,
            buckets=(*FAST_S, 10.0, 30.0),
        )
        self.running = Gauge("trainhouse_projector_queries_admitted", "Queries that run or wait", registry=registry)


class AlertMeters:
    """The alerts process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.rule = Histogram("trainhouse_alerts_rule_seconds", "One look at one rule", ("outcome",), registry=registry, buckets=FAST_S)
        self.verdicts = Counter("trainhouse_alerts_verdicts", "Verdicts heard", registry=registry)
        self.published = Counter("trainhouse_alerts_told", "Alerts told", ("what", "severity"), registry=registry)
        self.open = Gauge("trainhouse_alerts_open", "Alerts that fired and have not resolved", ("severity",), registry=registry)
