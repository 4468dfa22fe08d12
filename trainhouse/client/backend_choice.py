"""The choice of a backend, Kafka or the gateway, by settings.

Holds: an explicit argument > the gateway, if it is known and no Kafka address is > Kafka. Nothing here connects.
"""

from typing import TYPE_CHECKING

from trainhouse.client.backend_protocol import WayIn
from trainhouse.client.errors import InvalidSettingsError
from trainhouse.client.settings import GatewaySettings
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.settings import KafkaSettings

if TYPE_CHECKING:
    from optuna.storages import JournalStorage


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


def optuna_storage(
    name: str = "optuna", *, project: str = DEFAULT_PROJECT, gateway: str | None = None, token: str | None = None, patience_s: float = 120.0
) -> "JournalStorage":
    """A storage of Optuna's that all processes of a project share by its name; trials that end become tracked runs.

    Goes by the gateway that is given, or that environment and settings file name. Reads the storage. Every call of Optuna's goes on
    trying for `patience_s` while the gateway is away, and counts once. Raises InvalidSettingsError, AccessDeniedError, NotReachableError.
    """
    try:
        from optuna.storages import JournalStorage
    except ImportError as error:
        raise InvalidSettingsError("storages of Optuna need its library: pip install 'trainhouse[studies]'") from error
    from trainhouse.client.gateway.optuna_journal import GatewayJournal

    address = GatewaySettings()
    if not (url := gateway or address.url):
        raise InvalidSettingsError(
            "storages of Optuna go by the gateway: set TRAINHOUSE_GATEWAY_URL and TRAINHOUSE_GATEWAY_TOKEN (`trainhouse env` prints both)"
        )
    return JournalStorage(GatewayJournal(url, address.token if token is None else token, project, name, patience_s))
