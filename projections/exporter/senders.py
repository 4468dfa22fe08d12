"""The ways out: OTLP over HTTP to a collector, OpenLineage's HTTP API to a lineage service.

Holds: `send` returns once the peer has taken everything, and raises Untaken otherwise; then the same may be sent again.
Never: drops what a peer might still take.
"""

from typing import Protocol

import requests
import structlog
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport, TokenProvider
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from trainhouse.projections.errors import ProjectionError
from trainhouse.projections.exporter.lineage import RunTold, as_event
from trainhouse.projections.exporter.settings import ExporterSettings
from trainhouse.projections.exporter.spans import Span
from trainhouse.projections.exporter.telling import Told
from trainhouse.projections.record import clamp_ms

SPANS_A_REQUEST = 512
NS_A_MS = 1_000_000
HOPELESS = frozenset({400, 413, 422})

log = structlog.get_logger(__name__)


class Untaken(ProjectionError):
    """A peer did not take what it was told; it is told again."""


class Sender(Protocol):
    """One peer."""

    def send(self, told: Told) -> None:
        """Blocks until it is taken. Raises Untaken."""

    def close(self) -> None:
        """Leaves."""


class Traces:
    """A collector."""

    def __init__(self, settings: ExporterSettings) -> None:
        assert settings.otlp_endpoint is not None
        self._address = f"{settings.otlp_endpoint.rstrip('/')}/v1/traces"
        headers = {name: value.get_secret_value() for name, value in settings.otlp_headers.items()}
        self._exporter = OTLPSpanExporter(self._address, headers=headers, timeout=settings.timeout_s, compression=Compression.Gzip)
        self._resource = Resource({"service.name": "trainhouse", "service.namespace": settings.namespace})

    def send(self, told: Told) -> None:
        for first in range(0, len(told.spans), SPANS_A_REQUEST):
            batch = [as_readable(span, self._resource) for span in told.spans[first : first + SPANS_A_REQUEST]]
            if self._exporter.export(batch) is not SpanExportResult.SUCCESS:
                raise Untaken(f"{self._address} did not take {len(batch)} spans; is the collector up?")

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class Lineage:
    """A lineage service. What it refuses as malformed (400, 413, 422) is left out, loudly: it would refuse it for ever."""

    def __init__(self, settings: ExporterSettings) -> None:
        assert settings.openlineage_url is not None
        token = settings.openlineage_token
        auth = ApiKeyTokenProvider({"apiKey": token.get_secret_value()}) if token is not None else TokenProvider({})
        config = HttpConfig(settings.openlineage_url, settings.openlineage_path, timeout=settings.timeout_s, auth=auth)
        self._transport = HttpTransport(config)
        self._namespace = settings.namespace

    def send(self, told: Told) -> None:
        for run in told.runs:
            self._send(run)

    def _send(self, run: RunTold) -> None:
        try:
            self._transport.emit(as_event(run, self._namespace))
        except requests.RequestException as error:
            if error.response is not None and error.response.status_code in HOPELESS:
                log.error(
                    "the lineage service refuses an event for good; it is left out", job_id=run.job_id, verb=run.verb, error=str(error)
                )
                return
            raise Untaken(f"{self._transport.url} did not take an event of {run.job_id}: {error}") from error

    def close(self) -> None:
        self._transport.close()


def senders(settings: ExporterSettings) -> list[Sender]:
    """One for each peer that the settings name."""
    found: list[Sender] = []
    if settings.otlp_endpoint is not None:
        found.append(Traces(settings))
    if settings.openlineage_url is not None:
        found.append(Lineage(settings))
    return found


def as_readable(span: Span, resource: Resource) -> ReadableSpan:
    """In OpenTelemetry's own model; times that its wire cannot hold (anybody's clock tells them) become the next one that it can."""
    trace_id = int(span.trace_id, 16)
    flags = TraceFlags(TraceFlags.SAMPLED)
    return ReadableSpan(
        span.name,
        context=SpanContext(trace_id, int(span.span_id, 16), is_remote=False, trace_flags=flags),
        parent=SpanContext(trace_id, int(span.parent_id, 16), is_remote=True, trace_flags=flags) if span.parent_id else None,
        resource=resource,
        attributes=dict(span.attributes),
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.OK),
        start_time=clamp_ms(span.start_ms) * NS_A_MS,
        end_time=clamp_ms(span.end_ms) * NS_A_MS,
        instrumentation_scope=InstrumentationScope("trainhouse"),
    )
