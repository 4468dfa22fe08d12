"""A gateway on a port of its own, for what a test client cannot do: streams that do not end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from tests.support.gateway_world import ListBus, World
from tests.support.waiting import until
from trainhouse.gateway.app import make_app
from trainhouse.gateway.auth.keyring import Keyring
from trainhouse.gateway.context import Gateway
from trainhouse.gateway.limits.connection_timeouts import PatientProtocol, listening
from trainhouse.gateway.live.hub import Hub
from trainhouse.gateway.queries.sql_reader import SqlReader
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.projections.settings import ClickHouseSettings


@contextmanager
def served(world: World, settings: GatewaySettings) -> Iterator[str]:
    """A gateway on a port of its own, over the world's tables."""
    reader = SqlReader(ClickHouseSettings(url=world.tables.url))
    gateway = Gateway(settings, Keyring.of_settings(settings), reader, ListBus(), Hub(settings.stream_watchers, 100))  # type: ignore[arg-type]
    gateway.revocations.complete()
    gateway.projects.complete()
    listener = listening("127.0.0.1", 0)
    app, at_once = make_app(gateway), settings.requests_at_once
    server = uvicorn.Server(uvicorn.Config(app, http=PatientProtocol, log_config=None, ws="none", limit_concurrency=at_once))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        until(lambda: server.started, "the gateway never started")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(30)
