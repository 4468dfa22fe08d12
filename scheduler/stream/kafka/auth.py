"""TLS and SASL settings in the words of aiokafka and of Faust, for stream processors.

Holds: the same KafkaSettings lead to the same connection in every client; clients with settings from here read records with any headers,
and patiently.
"""

from typing import Any

from trainhouse.events.bus.aiokafka_settings import aiokafka_config, ssl_context
from trainhouse.events.bus.any_headers import read_any_headers
from trainhouse.events.settings import KafkaSettings
from trainhouse.scheduler.stream.kafka.fetch_backoff import read_patiently

__all__ = ["aiokafka_config", "faust_broker", "faust_credentials"]

read_any_headers()
read_patiently()


def faust_broker(settings: KafkaSettings) -> list[str]:
    """Broker URLs as Faust takes them."""
    return [f"kafka://{address}" for address in settings.bootstrap.split(",")]


def faust_credentials(settings: KafkaSettings) -> Any:
    """Credentials as Faust takes them; None where none are needed."""
    from faust.auth import SASLCredentials, SSLCredentials

    context = ssl_context(settings)
    if settings.sasl_mechanism:
        return SASLCredentials(
            username=settings.sasl_username,
            password=settings.sasl_password,
            ssl_context=context,
            mechanism=settings.sasl_mechanism,
        )
    return SSLCredentials(context=context) if context is not None else None
