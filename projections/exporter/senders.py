"""The ways out: OTLP over HTTP to a collector, OpenLineage's HTTP API to a lineage service.

Holds: `send` takes away what the peer has taken, and raises NotDeliveredError where it may take the rest later; what it refuses for good
is left out,
said once, and counted.
Never: drops what a peer might still take.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

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
from prometheus_client import Counter

from trainhouse.projections.errors import ProjectionError
from trainhouse.projections.exporter.export_metrics import ExporterMeters
from trainhouse.projections.exporter.openlineage_runs import LineageRun, as_event
from trainhouse.projections.exporter.settings import ExporterSettings
from trainhouse.projections.exporter.spans import Span
from trainhouse.projections.exporter.translate import Exported
from trainhouse.projections.http_status import FOR_GOOD
from trainhouse.projections.record import clamp_ms

SPANS_A_REQUEST = 512
NS_A_MS = 1_000_000
MAX_ANSWER_CHARS = 500

T = TypeVar("T")
log = structlog.get_logger(__name__)


class NotDeliveredError(ProjectionError):
    """A peer did not take what it was told; it is told again."""


class Sender(Protocol):
    """One peer."""

    def send(self, exported: Exported) -> None:
        """Blocks until all that is meant for it is taken, and no longer in `exported`. Raises NotDeliveredError; then the rest may be
        sent again."""

    def close(self) -> None:
        """Leaves."""


class Refusals:
    """Permanent refusals of a peer: counted, and logged once for each kind of answer until the peer accepts something."""

    def __init__(self, peer: str, address: str, refused: Counter) -> None:
        self._peer = peer
        self._address = address
        self._refused = refused.labels(peer)
        self._logged: set[int] = set()

    def taken(self) -> None:
        """The peer took something."""
        self._logged.clear()

    def refused(self, answer: requests.Response, count: int, job_id: str) -> None:
        """It answered that it never will; `job_id`: the first that this is about."""
        self._refused.inc(count)
        if answer.status_code in self._logged:
            return
        self._logged.add(answer.status_code)
        log.error(
            "a peer refuses for good what it is told: that is left out and counted, what comes next is tried; look at its address and key",
            peer=self._peer,
            address=self._address,
            answer=f"{answer.status_code} {answer.reason}: {answer.text[:MAX_ANSWER_CHARS]}",
            job_id=job_id,
        )


class Traces:
    """A collector."""

    def __init__(self, settings: ExporterSettings, meters: ExporterMeters) -> None:
        assert settings.otlp_endpoint is not None
        self._address = f"{settings.otlp_endpoint.rstrip('/')}/v1/traces"
        headers = {name: value.get_secret_value() for name, value in settings.otlp_headers.items()}
        session = requests.Session()
        session.hooks["response"].append(self._keep_answer)
        self._exporter = OTLPSpanExporter(
            self._address, headers=headers, timeout=settings.timeout_s, compression=Compression.Gzip, session=session
        )
        self._resource = Resource({"service.name": "trainhouse", "service.namespace": settings.namespace})
        self._answers: list[requests.Response] = []
        self._spans = meters.spans
        self._refusals = Refusals("traces", self._address, meters.refused)

    def send(self, exported: Exported) -> None:
        in_pieces(exported.spans, SPANS_A_REQUEST, self._send)

    def _send(self, spans: list[Span]) -> None:
        self._answers.clear()
        if self._exporter.export([as_readable(span, self._resource) for span in spans]) is SpanExportResult.SUCCESS:
            self._spans.inc(len(spans))
            self._refusals.taken()
            return
        last = self._answers[-1] if self._answers else None
        if last is not None and last.status_code in FOR_GOOD:
            self._refusals.refused(last, len(spans), str(spans[0].attributes.get("trainhouse.job_id", "")))
        else:
            why = "it does not answer" if last is None else f"{last.status_code} {last.reason}"
            raise NotDeliveredError(f"{self._address} did not take {len(spans)} spans: {why}; is the collector up?")

    def _keep_answer(self, answer: requests.Response, *_: Any, **__: Any) -> None:
        """The library says only whether it was taken; why not is in the answer."""
        self._answers.append(answer)

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class Lineage:
    """A lineage service."""

    def __init__(self, settings: ExporterSettings, meters: ExporterMeters) -> None:
        assert settings.openlineage_url is not None
        token = settings.openlineage_token
        auth = ApiKeyTokenProvider({"apiKey": token.get_secret_value()}) if token is not None else TokenProvider({})
        # Whoever calls tries again, and says so; tries in here would hide the answer, and hold up the end of the process.
        config = HttpConfig(settings.openlineage_url, settings.openlineage_path, timeout=settings.timeout_s, auth=auth, retry={"total": 0})
        self._transport = HttpTransport(config)
        self._namespace = settings.namespace
        self._runs = meters.runs
        self._refusals = Refusals("lineage", self._transport.url, meters.refused)

    def send(self, exported: Exported) -> None:
        in_pieces(exported.runs, 1, self._send)

    def _send(self, runs: list[LineageRun]) -> None:
        (run,) = runs
        try:
            self._transport.emit(as_event(run, self._namespace))
        except requests.RequestException as error:
            if error.response is None or error.response.status_code not in FOR_GOOD:
                raise NotDeliveredError(f"{self._transport.url} did not take an event of {run.job_id}: {error}") from error
            self._refusals.refused(error.response, 1, run.job_id)
        else:
            self._runs.inc()
            self._refusals.taken()

    def close(self) -> None:
        self._transport.close()


def in_pieces(waiting: list[T], size: int, send: Callable[[list[T]], None]) -> None:
    """Sends the first ones again and again, so many at a time; takes away what was sent, so that a next call goes on from there."""
    while waiting:
        send(waiting[:size])
        del waiting[:size]


def senders(settings: ExporterSettings, meters: ExporterMeters) -> list[Sender]:
    """Sender of each peer that the settings name."""
    found: list[Sender] = []
    if settings.otlp_endpoint is not None:
        found.append(Traces(settings, meters))
    if settings.openlineage_url is not None:
        found.append(Lineage(settings, meters))
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
