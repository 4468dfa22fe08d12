"""Figures of the exporter for Prometheus.

Holds: without a registry they count for nobody.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge


class ExporterMeters:
    """Figures of one exporter."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.spans = Counter("trainhouse_exporter_spans", "Spans that the collector took", registry=registry)
        self.runs = Counter("trainhouse_exporter_lineage_events", "Events that the lineage service took", registry=registry)
        self.refused = Counter("trainhouse_exporter_refused", "What a peer refused for good; it was left out", ("peer",), registry=registry)
        self.untaken = Counter("trainhouse_exporter_untaken", "Times that a peer or the brokers did not answer", registry=registry)
        self.jobs = Gauge("trainhouse_exporter_jobs", "Jobs that are followed", registry=registry)
        self.waiting = Gauge("trainhouse_exporter_waiting_events", "Events that wait to be put in order", registry=registry)
