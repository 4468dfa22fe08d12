"""A gateway process over projections alone: `python -m tests.browser.served`. All of it is real but what comes from Kafka.

Holds: nothing is followed on the bus, so statuses are news only after a reconnection, and no token was ever revoked; metrics, lines and
events come live from the projections.
"""

from __future__ import annotations

import uvicorn

from trainhouse.events.settings import KafkaSettings
from trainhouse.gateway.app import make_app
from trainhouse.gateway.serve import gateway_of_settings
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.projections.settings import ClickHouseSettings


def main() -> None:
    """Serves until SIGTERM."""
    settings = GatewaySettings()
    gateway = gateway_of_settings(settings, KafkaSettings(), ClickHouseSettings())
    gateway.kafka = None
    gateway.revocations.complete()
    gateway.projects.complete()
    config = uvicorn.Config(make_app(gateway), host=settings.host, port=settings.port, log_level="warning", timeout_graceful_shutdown=2)
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
