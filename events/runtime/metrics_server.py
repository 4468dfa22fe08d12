"""Figures of a process for Prometheus: one registry a process, served as text on a port from settings.

Holds: a process that cannot serve its figures says so and works on; labels name what is few (a partition, a lane, a topic, a type).
Never: a label that grows with the work (a job, a node, a person); work at import.
"""

from dataclasses import dataclass
from threading import Thread
from wsgiref.simple_server import WSGIServer

import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, start_http_server
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_1_0_0, generate_latest
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection

# Bounds in seconds for what should take milliseconds, and for what may take minutes.
FAST_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SLOW_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

log = structlog.get_logger(__name__)


class MetricsSettings(TomlSection):
    """Address of a process's metrics: `http://host:port/metrics`. Port 0 serves nothing."""

    section = "metrics"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_METRICS_", extra="ignore")

    host: str = Field("127.0.0.1", description="address that /metrics listens on")
    port: int = Field(0, ge=0, le=65535, description="its port; 0: none")


@dataclass(frozen=True)
class Serving:
    """A running server of figures."""

    port: int
    server: WSGIServer
    thread: Thread

    def close(self) -> None:
        """Stops it."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def new_registry() -> CollectorRegistry:
    """A registry with what every process tells: its memory, processor time, open files, Python and garbage."""
    registry = CollectorRegistry(auto_describe=True)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def serve(registry: CollectorRegistry, settings: MetricsSettings | None = None) -> Serving | None:
    """Serves a registry in a thread of its own; None when the port is 0 or cannot be had. Does not block."""
    settings = settings or MetricsSettings()
    if not settings.port:
        return None
    try:
        server, thread = start_http_server(settings.port, settings.host, registry)
    except OSError as error:
        log.warning(
            "figures are not served; set TRAINHOUSE_METRICS_PORT to a free port, or to 0 for none",
            host=settings.host,
            port=settings.port,
            error=str(error),
        )
        return None
    return Serving(server.server_port, server, thread)


def exposition(registry: CollectorRegistry) -> tuple[str, bytes]:
    """Content type and text of a registry, for a process that has an HTTP server of its own."""
    return CONTENT_TYPE_PLAIN_1_0_0, generate_latest(registry)
