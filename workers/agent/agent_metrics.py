"""Metrics of a node agent for Prometheus, read off the agent at each scrape.

Holds: the agent's loop does nothing for them; labels are the phases of an attempt.
Never: a label with an attempt's or a job's name.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PHASES = ("waiting", "launching", "running", "stopping", "sweeping", "draining", "reporting")
TRIES = 10


@dataclass(frozen=True)
class Figures:
    """One look. `attempts` counts them by phase; `heartbeats` are those since this start."""

    attempts: dict[str, int]
    ranks: int
    spool_lag_bytes: int
    unacked_records: int
    unacked_bytes: int
    records_taken: int
    heartbeats: int


class Looked(Protocol):
    """Source of the metrics."""

    def figures(self) -> Figures:
        """Raises RuntimeError when it changed while it was read."""


class AgentFigures(Collector):
    """The collector of one agent."""

    def __init__(self, agent: Looked) -> None:
        self._agent = agent

    def collect(self) -> Iterable[Metric]:
        """For Prometheus' client."""
        seen = self._look()
        if seen is None:
            return
        attempts = GaugeMetricFamily("trainhouse_agent_attempts", "Attempts on this node, by phase", labels=("phase",))
        for phase in PHASES:
            attempts.add_metric((phase,), seen.attempts.get(phase, 0))
        yield attempts
        yield GaugeMetricFamily("trainhouse_agent_ranks", "Ranks that run on this node", seen.ranks)
        yield GaugeMetricFamily("trainhouse_agent_spool_lag_bytes", "Bytes of files not with the brokers yet", seen.spool_lag_bytes)
        yield GaugeMetricFamily("trainhouse_agent_unacked_records", "Records that the brokers have not acked", seen.unacked_records)
        yield GaugeMetricFamily("trainhouse_agent_unacked_bytes", "Their bytes", seen.unacked_bytes)
        yield CounterMetricFamily("trainhouse_agent_records", "Records given to the brokers since this start", seen.records_taken)
        yield CounterMetricFamily("trainhouse_agent_heartbeats", "Heartbeats sent since this start", seen.heartbeats)

    def _look(self) -> Figures | None:
        for _ in range(TRIES):
            try:
                return self._agent.figures()
            except RuntimeError:
                continue
        return None
