"""`trainhouse run gateway`: one process that serves the app. Its composition root.

Holds: slow and huge senders are bounded before the app sees them, and so is what waits for a slow reader; a stop lets requests that run
end, and cuts streams.
"""

from __future__ import annotations

import logging
import time

import structlog
import uvicorn

from trainhouse.events.runtime.watched_files import Followed
from trainhouse.events.security.key_files import read_key
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.tunnel.tunnel_call import MAX_MESSAGE_BYTES
from trainhouse.gateway.app import make_app
from trainhouse.gateway.auth import local_token
from trainhouse.gateway.auth.keyring import Keyring
from trainhouse.gateway.bus import Bus
from trainhouse.gateway.context import Gateway
from trainhouse.gateway.limits.bounded_websockets import BoundedWebSocket
from trainhouse.gateway.limits.connection_timeouts import PatientProtocol, listening
from trainhouse.gateway.live.hub import Hub
from trainhouse.gateway.queries.sql_reader import SqlReader
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.projections.settings import ClickHouseSettings

log = structlog.get_logger(__name__)

STOP_S = 5


def gateway_of_settings(settings: GatewaySettings, kafka: KafkaSettings, clickhouse: ClickHouseSettings) -> Gateway:
    """The ports of a gateway. Raises KeyUnusableError, InvalidKeyError. Does not connect."""
    keys = Keyring.of_settings(settings)
    if settings.token_file is not None:
        local_token.ensure(settings.token_file, keys.now().newest, int(time.time()))
    hub = Hub(settings.stream_watchers, settings.stream_waiting)
    path = settings.operations_key
    operations = None if path is None else Bus(kafka, Followed((path,), lambda: read_key(path)).now)
    return Gateway(settings, keys, SqlReader(clickhouse), Bus(kafka), hub, kafka, operations)


def main(settings: GatewaySettings, kafka: KafkaSettings, clickhouse: ClickHouseSettings, log_level: str = "info") -> int:
    """Serves until SIGTERM. Blocks."""
    # Each question to the projections would be a line, with what it asks for.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    server = uvicorn.Server(server_config(settings, kafka, clickhouse, log_level))
    try:
        server.config.load()
    except OSError as error:
        log.error("the gateway's certificate or its key cannot be used; see tls_cert and tls_key of its settings", error=str(error))
        return 1
    try:
        listener = listening(settings.host, settings.port)
    except OSError as error:
        log.error("the gateway cannot listen; set TRAINHOUSE_GATEWAY_PORT", host=settings.host, port=settings.port, error=str(error))
        return 1
    server.run(sockets=[listener])
    return 0 if server.started else 1


def server_config(settings: GatewaySettings, kafka: KafkaSettings, clickhouse: ClickHouseSettings, log_level: str) -> uvicorn.Config:
    """Returns the server's configuration."""
    return uvicorn.Config(
        make_app(gateway_of_settings(settings, kafka, clickhouse)),
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level=log_level,
        access_log=False,
        server_header=False,
        # Else whoever is on this machine could say to come from anywhere.
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
        http=PatientProtocol,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        ws=BoundedWebSocket,
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,
        # Who reads nothing for a while, as behind a pager, answers no ping; TCP's keepalive finds who is gone.
        ws_ping_interval=None,
        h11_max_incomplete_event_size=settings.header_bytes,
        limit_concurrency=settings.requests_at_once,
        timeout_keep_alive=round(settings.idle_s),
        timeout_graceful_shutdown=STOP_S,
    )
