"""Figures of the stream processors for Prometheus: what a journal's owner, intake's first stage and the detector count and time.

Holds: without a registry they are not exported, so that a test needs none; every label is a partition, a topic or a verdict's type.
Never: decides anything; raises.
"""

import asyncio
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trainhouse.events.runtime.metrics_server import FAST_S
from trainhouse.events.wire.journal import InputRefused, JournalRecord
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.stream.interfaces import Log

LAG_EVERY_S = 5.0


class JournalMeters:
    """One journal in one process; `process` is the word in the names: `trainhouse_scheduler_…`."""

    def __init__(self, process: str, registry: CollectorRegistry | None = None) -> None:
        name, by = f"trainhouse_{process}", ("partition",)
        self.decision = Histogram(f"{name}_decision_seconds", "From inputs to one proposed record", registry=registry, buckets=FAST_S)
        self.append = Histogram(
            f"{name}_append_seconds", "From sending a record until this process has folded it", registry=registry, buckets=FAST_S
        )
        self.records = Counter(f"{name}_records", "Records of this process that it proposed", registry=registry)
        self.inputs = Counter(f"{name}_inputs", "Inputs in those records, ticks left out", registry=registry)
        self.decisions = Counter(f"{name}_decisions", "Decisions in those records", registry=registry)
        self.refused = Counter(f"{name}_refused_inputs", "Inputs that were journaled as refused", registry=registry)
        self.lag = Gauge(f"{name}_input_lag_records", "Inputs on the topic beyond the journal's cursor", by, registry=registry)
        self.deciding = Gauge(f"{name}_deciding", "1 while this process decides the partition, 0 while it stands by", by, registry=registry)
        self.unpublished = Gauge(f"{name}_unpublished_records", "Folded records whose effects are not out yet", by, registry=registry)
        self.halted = Gauge(
            f"{name}_partition_halted",
            "1 while the partition decides nothing (STOPPED) or places nothing (PLACEMENT_FROZEN)",
            ("partition", "fault"),
            registry=registry,
        )
        self.clock_off = Gauge(
            f"{name}_clock_off_seconds",
            "Difference of a wall clock (own: this machine's; brokers: the log's) from journal time",
            ("partition", "clock"),
            registry=registry,
        )
        self.seq = Gauge(f"{name}_folded_seq", "Seq of the newest folded record", by, registry=registry)

    def proposed(self, record: JournalRecord, took_s: float) -> None:
        """A record was made of inputs."""
        self.decision.observe(took_s)
        self.records.inc()
        self.inputs.inc(sum(i.offset is not None for i in record.inputs))
        self.decisions.inc(len(record.decisions))
        self.refused.inc(sum(isinstance(d, InputRefused) for d in record.decisions))


class ProgressMeters:
    """Metrics of the scheduler's live progress feed."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.reports = Counter("trainhouse_scheduler_progress_reports", "Reports read from the topic of progress", registry=registry)
        self.refused = Counter(
            "trainhouse_scheduler_refused_progress_reports", "Of that topic, what is unreadable or in another's name", registry=registry
        )


class ScreeningMeters:
    """Intake's first stage, on the public topic."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.screened = Counter("trainhouse_intake_screened_records", "Records of the public topic that were looked at", registry=registry)
        self.dead = Counter("trainhouse_intake_dead_letters", "Records that became dead letters", registry=registry)
        self.own_failures = Counter("trainhouse_intake_own_failures", "Of those, where intake's own code failed", registry=registry)
        self.lag = Gauge(
            "trainhouse_intake_jobs_lag_records",
            "Records on the public topic that intake has not handled, of partitions that it has read from",
            ("partition",),
            registry=registry,
        )


class DetectorMeters:
    """The detector, on heartbeats."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.heartbeats = Counter("trainhouse_detector_heartbeats", "Heartbeats taken", registry=registry)
        self.unreadable = Counter(
            "trainhouse_detector_unreadable_records", "Records that are no heartbeat, or one that cannot be judged", registry=registry
        )
        self.verdicts = Counter("trainhouse_detector_verdicts", "Verdicts said", ("type",), registry=registry)
        self.tick = Histogram("trainhouse_detector_tick_seconds", "One look at all nodes", registry=registry, buckets=FAST_S)
        self.nodes = Gauge("trainhouse_detector_nodes", "Nodes that are watched", registry=registry)
        self.waiting = Gauge("trainhouse_detector_waiting_verdicts", "Verdicts that the brokers have not taken yet", registry=registry)
        self.lag = Gauge(
            "trainhouse_detector_input_lag_records", "Heartbeats on the topic that are not taken yet", ("partition",), registry=registry
        )


async def measure_lag(log: Log, topic: str, cursors: Callable[[], Mapping[int, int]], gauge: Gauge) -> None:
    """Sets how far the topic is ahead of the last handled offset of each partition, every few seconds; runs until cancelled."""
    while True:
        handled = cursors()
        try:
            ends = await log.ends(topic, handled.keys())
        except LogUnavailableError:
            ends = {}  # the brokers are away: the last known figures stay
        for partition, end in ends.items():
            gauge.labels(partition).set(max(0, end - handled[partition] - 1))
        await asyncio.sleep(LAG_EVERY_S)
