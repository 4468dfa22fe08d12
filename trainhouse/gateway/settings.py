"""Settings of the gateway: address, accepted keys, limits of a caller.

Holds: explicit argument > environment (TRAINHOUSE_GATEWAY_…) > the file's section `gateway` > default; each bound is a setting.
Never: a default that listens beyond loopback.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from trainhouse.events.settings import TomlSection
from trainhouse.gateway.errors import KeyUnusable

DEFAULT_PORT = 8080
MIN_KEY_BYTES = 32


class GatewaySettings(TomlSection):
    """The gateway. Tokens are signed by the key in `key`, or by that in the file `key_file` (its owner's alone).

    `accepted_keys_file`: keys that are taken beside it, one a line: of before a rotation, or the next one. Both files are read again when
    they were changed.
    """

    section = "gateway"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_GATEWAY_", extra="ignore")

    host: str = "127.0.0.1"
    port: int = Field(DEFAULT_PORT, ge=0, le=65535)
    key: SecretStr | None = None
    key_file: Path | None = None
    accepted_keys_file: Path | None = None
    # Where the gateway keeps a token for the user that it runs as: an admin of all projects. None: it makes none.
    token_file: Path | None = None
    # Names by which it is asked for, beside localhost, addresses, and the one in `url`; `*` is any, and no protection.
    hosts: Annotated[tuple[str, ...], NoDecode] = ()
    # Where its users find it.
    url: str = ""
    # With both it serves https itself.
    tls_cert: Path | None = None
    tls_key: Path | None = None
    # Cookies are marked Secure, and browsers keep to https, where something in front of this process serves it.
    https: bool = False
    # Addresses of the proxies whose X-Forwarded-For and X-Forwarded-Proto are believed.
    proxies: Annotated[tuple[str, ...], NoDecode] = ()
    # Who may read these: everybody, holders of a token, or no one.
    metrics: Literal["open", "token", "off"] = "open"
    openapi: Literal["open", "token", "off"] = "open"

    # A session of the pages ends after so long, or with its token.
    session_s: float = Field(12 * 3600.0, ge=60)
    login_code_s: float = Field(60.0, ge=5, le=600)

    body_bytes: int = Field(2 * 1024**2, ge=1024)
    artifact_bytes: int = Field(4 * 1024**3, ge=1024)
    header_bytes: int = Field(32 * 1024, ge=4096)
    header_fields: int = Field(100, ge=16)
    body_time_s: float = Field(30.0, gt=0)
    idle_s: float = Field(30.0, gt=0)
    requests_at_once: int = Field(2000, ge=1)
    after_wait_s: float = Field(10.0, gt=0)

    query_time_s: float = Field(20.0, gt=0)
    query_rows: int = Field(1_000_000, ge=1)
    query_bytes: int = Field(64 * 1024**2, ge=1024)
    query_memory_bytes: int = Field(512 * 1024**2, ge=16 * 1024**2)

    stream_poll_s: float = Field(0.5, gt=0)
    stream_watchers: int = Field(2000, ge=1)
    stream_waiting: int = Field(1000, ge=16)
    stream_send_s: float = Field(20.0, gt=0)

    # Whether an access that the audit cannot be told of is refused (required), or goes on and is counted as lost (preferred).
    audit: Literal["required", "preferred"] = "preferred"
    # So many events of the audit are kept while the brokers do not take them.
    audit_waiting: int = Field(10_000, ge=1)
    accesses_per_minute: int = Field(6000, ge=1)
    refusals_per_minute: int = Field(600, ge=1)
    # Requests of one person or service, whatever their tokens; more are answered 429. Projects have limits of their own.
    requests_per_minute: int = Field(60_000, ge=1)

    @field_validator("hosts", "proxies", mode="before")
    @classmethod
    def _split(cls, given: object) -> object:
        """A variable of the environment has them with commas between."""
        return tuple(name.strip() for name in given.split(",") if name.strip()) if isinstance(given, str) else given

    @model_validator(mode="after")
    def _whole(self) -> "GatewaySettings":
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: set both, or neither")
        return self

    @property
    def secure(self) -> bool:
        """True if browsers reach it by https."""
        return self.https or self.tls_cert is not None

    def signing_key(self) -> bytes:
        """The key of tokens. Raises KeyUnusable, which says how to make one."""
        if self.key is not None:
            found = self.key.get_secret_value().encode()
        elif self.key_file is not None:
            try:
                found = self.key_file.read_bytes().strip()
            except OSError as error:
                raise KeyUnusable(f"the key of tokens, {self.key_file}, cannot be read: {error.strerror}") from error
        else:
            raise KeyUnusable(
                "tokens have no key: set TRAINHOUSE_GATEWAY_KEY_FILE to a file with a secret of at least "
                f"{MIN_KEY_BYTES} characters (`openssl rand -hex 32` makes one), readable by its owner alone"
            )
        return _sound(found)

    def signing_keys(self) -> tuple[bytes, ...]:
        """All keys whose tokens count, the one that signs first. Raises KeyUnusable."""
        path, newest = self.accepted_keys_file, self.signing_key()
        try:
            others = path.read_bytes().split() if path is not None and path.exists() else []
        except OSError as error:
            raise KeyUnusable(f"the keys that are taken too, {path}, cannot be read: {error.strerror}") from error
        return tuple(dict.fromkeys((newest, *map(_sound, others))))


def _sound(key: bytes) -> bytes:
    if len(key) < MIN_KEY_BYTES:
        raise KeyUnusable(f"the key of tokens has {len(key)} bytes; it needs {MIN_KEY_BYTES} at least")
    return key
