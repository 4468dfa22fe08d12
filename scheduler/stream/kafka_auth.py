"""TLS and SASL settings in the words of aiokafka and of Faust.

Holds: the same KafkaSettings lead to the same connection in every client; clients with settings from here read records with any headers.
"""

import ssl
from typing import Any

from trainhouse.events.settings import KafkaSettings
from trainhouse.scheduler.stream.any_headers import read_any_headers

read_any_headers()


def ssl_context(settings: KafkaSettings) -> ssl.SSLContext | None:
    """The TLS context, None for clusters without TLS. Reads the certificate files."""
    if "SSL" not in settings.security_protocol.upper():
        return None
    context = ssl.create_default_context(cafile=settings.ssl_ca_location)
    if settings.ssl_certificate_location:
        context.load_cert_chain(settings.ssl_certificate_location, settings.ssl_key_location, settings.ssl_key_password)
    return context


def aiokafka_config(settings: KafkaSettings) -> dict[str, Any]:
    """Arguments of every aiokafka client."""
    config: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap.split(","),
        "security_protocol": settings.security_protocol.upper(),
        "ssl_context": ssl_context(settings),
    }
    if settings.sasl_mechanism:
        config |= {
            "sasl_mechanism": settings.sasl_mechanism,
            "sasl_plain_username": settings.sasl_username,
            "sasl_plain_password": settings.sasl_password,
        }
    return config


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
