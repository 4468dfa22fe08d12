"""The choice of a backend, Kafka or the gateway, by settings.

Holds: an explicit argument > the gateway, if it is known and no Kafka address is > Kafka. Nothing here connects.
"""

from trainhouse.client.backend_protocol import WayIn
from trainhouse.client.settings import GatewaySettings
from trainhouse.events.settings import KafkaSettings


def way_of(gateway: str | None = None, token: str | None = None, kafka: str | None = None) -> WayIn:
    """The way itself. Raises InvalidSettingsError."""
    address, brokers = GatewaySettings(), KafkaSettings() if kafka is None else KafkaSettings(bootstrap=kafka)
    named = gateway or (address.url if kafka is None else "")
    if by_gateway(gateway, named, "bootstrap" in brokers.model_fields_set):
        from trainhouse.client.gateway.backend import ByGateway

        return ByGateway(named, token if token is not None else address.token)
    from trainhouse.client.kafka.wiring import by_kafka

    return by_kafka(brokers)


def known() -> tuple[str, bool]:
    """The gateway's address ("" for none), and whether an address of Kafka is set, by environment and settings file."""
    return GatewaySettings().url, "bootstrap" in KafkaSettings().model_fields_set


def by_gateway(explicit: str | None, url: str, kafka_known: bool) -> bool:
    """Returns whether the way leads by the gateway. Pure."""
    return explicit is not None or (bool(url) and not kafka_known)
