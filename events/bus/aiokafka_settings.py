"""TLS and SASL settings in the words of aiokafka.

Holds: the same KafkaSettings lead to the same connection in every client.
"""

import ssl
from typing import Any

from trainhouse.events.settings import KafkaSettings


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
