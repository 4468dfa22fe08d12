"""Faust's monitor as figures for Prometheus, beside the process's own ones.

An event of a stream is a batch: what one fetch brought of one partition (`batching`); records are counted for themselves.

Holds: labels are topics and partitions. Never: decides anything; raises.
"""

from typing import Any

from faust.sensors import Monitor
from faust.types import TP
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trainhouse.events.runtime.metrics_server import FAST_S, SLOW_S

NAME = "trainhouse_faust"


class FaustFigures(Monitor):
    """The monitor of one app, which its web view shows; each figure goes to the registry too."""

    def __init__(self, registry: CollectorRegistry, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        of: dict[str, Any] = {"labelnames": ("topic",), "registry": registry}
        at: dict[str, Any] = {"labelnames": ("topic", "partition"), "registry": registry}
        self._records = Counter(f"{NAME}_records", "Records that came to an agent's stream", **of)
        self._events = Counter(f"{NAME}_events", "Events of an agent's stream: batches, one partition's of one fetch", **of)
        self._runtime = Histogram(f"{NAME}_event_seconds", "One event in its agent", buckets=FAST_S, **of)
        self._full = Counter(f"{NAME}_full_buffers", "Times that a partition was not fetched since its agent was behind", **of)
        self._commit = Histogram(f"{NAME}_commit_seconds", "One commit of group offsets", registry=registry, buckets=FAST_S)
        self._committed = Gauge(f"{NAME}_committed_offset", "Group offset of this process's last commit", **at)
        self._read = Gauge(f"{NAME}_read_offset", "Offset of the newest record that came to the stream", **at)
        self._lag = Gauge(f"{NAME}_lag_records", "Records behind the newest that came to the stream, when it came", **at)
        self._assigned = Gauge(f"{NAME}_assigned_partitions", "Partitions that the group gives this process", **of)
        self._rebalances = Counter(f"{NAME}_rebalances", "Rebalances of the group", registry=registry)
        self._rebalance = Histogram(f"{NAME}_rebalance_seconds", "One rebalance, until streams go on", registry=registry, buckets=SLOW_S)

    def on_message_in(self, tp: TP, offset: int, message: Any) -> None:
        """A batch goes to the streams."""
        super().on_message_in(tp, offset, message)
        self._records.labels(tp.topic).inc(len(message.value.entries))
        self._read.labels(tp.topic, tp.partition).set(offset)
        self._lag.labels(tp.topic, tp.partition).set(max(0, self.tp_end_offsets.get(tp, 0) - offset - 1))

    def on_stream_event_in(self, tp: TP, offset: int, stream: Any, event: Any) -> Any:
        """An agent begins with a batch."""
        self._events.labels(tp.topic).inc()
        return super().on_stream_event_in(tp, offset, stream, event)

    def on_stream_event_out(self, tp: TP, offset: int, stream: Any, event: Any, state: Any = None) -> None:
        """An agent asks for the next."""
        super().on_stream_event_out(tp, offset, stream, event, state)
        if state is not None:
            self._runtime.labels(tp.topic).observe(self.events_runtime[-1])

    def on_topic_buffer_full(self, tp: TP) -> None:
        """A partition is not fetched until its agent has caught up."""
        super().on_topic_buffer_full(tp)
        self._full.labels(tp.topic).inc()

    def on_commit_completed(self, consumer: Any, state: Any) -> None:
        """Offsets are committed, or there were none."""
        super().on_commit_completed(consumer, state)
        self._commit.observe(self.commit_latency[-1])

    def on_tp_commit(self, tp_offsets: Any) -> None:
        """These offsets are committed."""
        super().on_tp_commit(tp_offsets)
        for tp, offset in tp_offsets.items():
            self._committed.labels(tp.topic, tp.partition).set(offset)

    def on_rebalance_start(self, app: Any) -> Any:
        """The group changes."""
        self._rebalances.inc()
        return super().on_rebalance_start(app)

    def on_rebalance_end(self, app: Any, state: Any) -> None:
        """The group has changed; figures of partitions are those of now."""
        super().on_rebalance_end(app, state)
        self._rebalance.observe(self.rebalance_end_latency[-1])
        for gauge in (self._read, self._lag, self._committed, self._assigned):
            gauge.clear()
        for tp in app.consumer.assignment():
            self._assigned.labels(tp.topic).inc()
