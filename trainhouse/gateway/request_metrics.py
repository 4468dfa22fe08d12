"""The gateway's own figures for Prometheus: requests by route and answer, their time, open streams.

Holds: a route is told by its pattern, never by what callers fill in.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainhouse.events.runtime.metrics_server import FAST_S, new_registry
from trainhouse.gateway.audit.audit_log import AuditLog

UNKNOWN = "none"


class Figures:
    """One gateway's registry; `streams` tells how many are open, `audit` what waits on its way to the brokers."""

    def __init__(self, streams: Callable[[], int], audit: AuditLog) -> None:
        self.registry = new_registry()
        self.requests = Counter(
            "trainhouse_gateway_requests", "Requests that were answered.", ("method", "route", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "trainhouse_gateway_request_seconds", "Until an answer began.", ("method", "route"), buckets=FAST_S, registry=self.registry
        )
        Gauge("trainhouse_gateway_streams", "Live streams that are open.", registry=self.registry).set_function(streams)
        waiting = Gauge("trainhouse_gateway_audit_waiting", "Events of the audit that the brokers do not have yet.", registry=self.registry)
        waiting.set_function(lambda: audit.waiting)
        lost = Gauge("trainhouse_gateway_audit_lost", "Events of the audit that were lost since the start.", registry=self.registry)
        lost.set_function(lambda: audit.lost)


class Measured:
    """ASGI middleware: counts and times every request until its answer begins."""

    def __init__(self, app: ASGIApp, figures: Figures) -> None:
        self._app = app
        self._figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.monotonic()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(scope, message["status"], time.monotonic() - began_s)
            await send(message)

        await self._app(scope, receive, noted)

    def _note(self, scope: Scope, status: int, took_s: float) -> None:
        route = getattr(scope.get("route"), "path", UNKNOWN)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._figures.requests.labels(method, route, status).inc()
        self._figures.seconds.labels(method, route).observe(took_s)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
