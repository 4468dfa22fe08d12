"""Addresses and protocols of the brokers; the base of every settings group.

Holds: explicit argument > environment > file > default. The file is the TOML one that TRAINHOUSE_CONFIG names; each group is a section.
"""

import os
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

CONFIG_VARIABLE = "TRAINHOUSE_CONFIG"


class TomlSection(BaseSettings):
    """A settings group: set `section` to its table in the file, and `env_prefix` in `model_config`."""

    section: ClassVar[str] = ""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        path = os.environ.get(CONFIG_VARIABLE)
        if not path:
            return init_settings, env_settings
        return init_settings, env_settings, _Section(settings_cls, path, cls.section)


class _Section(TomlConfigSettingsSource):
    """One table of the file."""

    def __init__(self, settings_cls: type[BaseSettings], path: str, section: str) -> None:
        self._section = section
        super().__init__(settings_cls, toml_file=path)

    def _read_file(self, file_path: Any) -> dict[str, Any]:
        found = super()._read_file(file_path).get(self._section, {})
        return dict(found) if isinstance(found, dict) else {}


class KafkaSettings(TomlSection):
    """Connection to the brokers. Everything beyond `bootstrap` is for clusters with TLS or SASL."""

    section = "kafka"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_KAFKA_", extra="ignore")

    bootstrap: str = Field("127.0.0.1:9092", description="addresses of some brokers, HOST:PORT with commas between")
    security_protocol: str = Field("PLAINTEXT", description="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")
    sasl_mechanism: str | None = Field(None, description="SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN, with a SASL protocol")
    sasl_username: str | None = Field(None, description="account on the brokers")
    sasl_password: str | None = Field(None, description="its password")
    ssl_ca_location: str | None = Field(
        None, description="file of the authorities that brokers' certificates are checked by (PEM); default: the system's"
    )
    ssl_certificate_location: str | None = Field(None, description="file of this client's certificate (PEM), for mutual TLS")
    ssl_key_location: str | None = Field(None, description="file of its private key (PEM)")
    ssl_key_password: str | None = Field(None, description="password of that file")
    replication: int = Field(1, description="copies of each partition of topics that are made; 3 on brokers of your own")
    partitions: int = Field(4, description="partitions of topics that are made, where nothing is recorded yet")
    min_timeout_s: float = Field(
        0.0,
        ge=0,
        description="seconds that commands and clients wait at the least for an answer of the brokers, of intake or of the scheduler "
        "before they report that there is none; more than their own 10 to 30 s where brokers are far away or overloaded",
    )

    def client_config(self, **more: Any) -> dict[str, Any]:
        """As librdkafka configuration, with `more` on top (dots written as `_`are not translated: pass a dict's items)."""
        config: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "security.protocol": self.security_protocol}
        optional = {
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.sasl_username,
            "sasl.password": self.sasl_password,
            "ssl.ca.location": self.ssl_ca_location,
            "ssl.certificate.location": self.ssl_certificate_location,
            "ssl.key.location": self.ssl_key_location,
            "ssl.key.password": self.ssl_key_password,
        }
        return config | {k: v for k, v in optional.items() if v is not None} | more


class OperationsSettings(TomlSection):
    """Signing key of requests to agents (stacks, profiles, commands): `[operations] key` is a file with a private key."""

    section = "operations"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_OPERATIONS_", extra="ignore")

    key: Path | None = Field(None, description="file of the private key; `trainhouse operations-key` makes one")
