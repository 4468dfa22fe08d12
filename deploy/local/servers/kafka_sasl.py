"""The broker's settings that ask every client who it is: SASL on all listeners, and grants that refuse what they do not name.

Holds: clients prove their password by SCRAM, so it is never sent. The broker's own account alone may also use PLAIN, since it has to speak
to itself, and `up` to it, before any other account is there.
Never: a listener without a question; the passwords stand in a file for its owner alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainhouse.events.security.grants import OPERATOR

if TYPE_CHECKING:
    from trainhouse.events.settings import KafkaSettings

BROKER = "broker"
CLIENTS, CONTROLLER = "CLIENTS", "CONTROLLER"
PROTOCOL, MECHANISM, OWN_MECHANISM = "SASL_PLAINTEXT", "SCRAM-SHA-512", "PLAIN"
SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@dataclass(frozen=True)
class Account:
    """Kafka account and its password."""

    name: str
    password: str = field(repr=False)


def settings(account: Account) -> dict[str, str]:
    """SASL settings of a broker that owns this account, besides its addresses."""
    jaas = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{account.name}" password="{account.password}" '
        f'user_{account.name}="{account.password}";'
    )
    clients, controller = f"listener.name.{CLIENTS.lower()}.", f"listener.name.{CONTROLLER.lower()}."
    return {
        "listener.security.protocol.map": f"{CLIENTS}:{PROTOCOL},{CONTROLLER}:{PROTOCOL}",
        "inter.broker.listener.name": CLIENTS,
        "sasl.mechanism.inter.broker.protocol": OWN_MECHANISM,
        "sasl.mechanism.controller.protocol": OWN_MECHANISM,
        **listener(CLIENTS),
        f"{clients}sasl.enabled.mechanisms": f"{MECHANISM},{OWN_MECHANISM}",
        f"{clients}plain.sasl.jaas.config": jaas,
        f"{controller}sasl.enabled.mechanisms": OWN_MECHANISM,
        f"{controller}plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": f"User:{account.name};User:{OPERATOR}",
    }


def listener(name: str) -> dict[str, str]:
    """Accounts by SCRAM on a listener of this name."""
    prefix = f"listener.name.{name.lower()}."
    return {f"{prefix}sasl.enabled.mechanisms": MECHANISM, f"{prefix}scram-sha-512.sasl.jaas.config": SCRAM_JAAS}


def own_settings(bootstrap: str, account: Account) -> KafkaSettings:
    """Client settings of the broker's own account."""
    from trainhouse.events.settings import KafkaSettings

    return KafkaSettings(
        bootstrap=bootstrap,
        security_protocol=PROTOCOL,
        sasl_mechanism=OWN_MECHANISM,
        sasl_username=account.name,
        sasl_password=account.password,
    )


def client_section(account: Account) -> dict[str, str]:
    """Client's `[kafka]` section, without the address."""
    return {
        "security_protocol": PROTOCOL,
        "sasl_mechanism": MECHANISM,
        "sasl_username": account.name,
        "sasl_password": account.password,
    }
