"""Settings of the gateway: address, accepted keys, limits of a caller.

Holds: explicit argument > environment (TRAINHOUSE_GATEWAY_…) > the file's section `gateway` > default; each bound is a setting.
Never: a default that listens beyond loopback.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from trainhouse.events.settings import TomlSection
from trainhouse.gateway.errors import KeyUnusableError

DEFAULT_PORT = 8080
MIN_KEY_BYTES = 32


class GatewaySettings(TomlSection):
    """The gateway. Files of keys are read again when they change."""

    section = "gateway"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_GATEWAY_", extra="ignore")

    host: str = Field("127.0.0.1", description="address that it listens on")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="its port; 0: a free one")
    key: SecretStr | None = Field(None, description="secret that signs tokens, of at least 32 characters")
    key_file: Path | None = Field(None, description="file of that secret, readable by its owner alone")
    accepted_keys_file: Path | None = Field(
        None, description="file of keys that are accepted beside it, one a line: those of before a rotation, or the next one"
    )
    operations_key: Path | None = Field(
        None,
        description="file of the private key that signs its users' requests to agents (profiles, tunnels); agents know it by a line "
        "`gateway NAME KEY` in their list of operations keys",
    )
    token_file: Path | None = Field(
        None, description="file in which the gateway keeps a token for the user that it runs as, an admin of all projects; default: none"
    )
    hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="host names that it answers to, beside localhost, addresses and the one in `url`, with commas "
        "between; `*` is any, and no protection",
    )
    url: str = Field("", description="address at which its users find it")
    tls_cert: Path | None = Field(None, description="file of a certificate (PEM); with `tls_key` it serves https itself")
    tls_key: Path | None = Field(None, description="file of its private key (PEM)")
    https: bool = Field(False, description="whether something in front of this process serves https: cookies are then marked Secure")
    proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="addresses of the proxies whose X-Forwarded-For and X-Forwarded-Proto are believed, with commas between"
    )
    metrics: Literal["open", "token", "off"] = Field("open", description="who may read /metrics: everybody, holders of a token, or no one")
    openapi: Literal["open", "token", "off"] = Field("open", description="who may read /openapi.json, likewise")

    session_s: float = Field(12 * 3600.0, ge=60, description="seconds after which a session of the pages ends, or earlier with its token")
    run_link_days: int = Field(30, ge=0, le=365, description="most days of a link to one run's page; 0: none is made, and none opens")
    login_code_s: float = Field(60.0, ge=5, le=600, description="seconds for which a code of `trainhouse open` counts")

    body_bytes: int = Field(2 * 1024**2, ge=1024, description="most bytes of a request's body")
    artifact_bytes: int = Field(4 * 1024**3, ge=1024, description="most bytes of an uploaded file")
    header_bytes: int = Field(32 * 1024, ge=4096, description="most bytes of a request's headers")
    header_fields: int = Field(100, ge=16, description="most headers of a request")
    body_time_s: float = Field(30.0, gt=0, description="seconds in which a request's body must arrive")
    idle_s: float = Field(30.0, gt=0, description="seconds after which an idle connection is closed")
    requests_at_once: int = Field(2000, ge=1, description="most requests at once; more are answered 503")
    after_wait_s: float = Field(10.0, gt=0, description="seconds that a read with `after` waits for its write")

    query_time_s: float = Field(20.0, gt=0, description="seconds that a query in raw SQL may take")
    query_rows: int = Field(1_000_000, ge=1, description="most rows of its answer")
    query_bytes: int = Field(64 * 1024**2, ge=1024, description="most bytes of its answer")
    query_memory_bytes: int = Field(512 * 1024**2, ge=16 * 1024**2, description="most memory of it, in bytes")

    stream_poll_s: float = Field(0.5, gt=0, description="seconds from one look for new events of streams to the next")
    stream_watchers: int = Field(2000, ge=1, description="most open streams")
    stream_waiting: int = Field(1000, ge=16, description="most events that wait for one slow reader before its stream is closed")
    stream_send_s: float = Field(20.0, gt=0, description="seconds in which a reader must take what is sent")

    tunnel_url: str = Field(
        "",
        description="address at which agents and users reach this very process for tunnels to interactive jobs, where `url` leads to one "
        "of several; default: `url`",
    )
    tunnels_to_unsigned_nodes: bool = Field(
        False,
        description="whether users are connected with nodes that have no known key, so sign nothing; then whoever may read the topic of "
        "operations can pose as such a node",
    )
    tunnels_at_once: int = Field(250, ge=1, description="most tunnels to interactive jobs at once")
    tunnels_per_user: int = Field(32, ge=1, description="most tunnels of one user at once")

    audit: Literal["required", "preferred"] = Field(
        "preferred",
        description="an access that cannot be recorded for the audit is refused (required), or goes on and is counted as lost (preferred)",
    )
    audit_waiting: int = Field(10_000, ge=1, description="most events of the audit kept while the brokers do not take them")
    accesses_per_minute: int = Field(
        6000, ge=1, description="granted accesses of one user recorded one by one in a minute; more are recorded together, with their count"
    )
    refusals_per_minute: int = Field(
        600, ge=1, description="refusals recorded one by one in a minute; more are recorded together, with their count"
    )
    requests_per_minute: int = Field(
        60_000,
        ge=1,
        description="most requests of one person or service in a minute, whatever their tokens; more are answered 429. "
        "Projects have limits of their own",
    )

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
        """The key of tokens. Raises KeyUnusableError, which says how to make one."""
        if self.key is not None:
            found = self.key.get_secret_value().encode()
        elif self.key_file is not None:
            try:
                found = self.key_file.read_bytes().strip()
            except OSError as error:
                raise KeyUnusableError(f"the key of tokens, {self.key_file}, cannot be read: {error.strerror}") from error
        else:
            raise KeyUnusableError(
                "tokens have no key: set TRAINHOUSE_GATEWAY_KEY_FILE to a file with a secret of at least "
                f"{MIN_KEY_BYTES} characters (`openssl rand -hex 32` makes one), readable by its owner alone"
            )
        return _sound(found)

    def signing_keys(self) -> tuple[bytes, ...]:
        """All keys whose tokens count, the one that signs first. Raises KeyUnusableError."""
        path, newest = self.accepted_keys_file, self.signing_key()
        try:
            others = path.read_bytes().split() if path is not None and path.exists() else []
        except OSError as error:
            raise KeyUnusableError(f"the keys that are taken too, {path}, cannot be read: {error.strerror}") from error
        return tuple(dict.fromkeys((newest, *map(_sound, others))))


def _sound(key: bytes) -> bytes:
    if len(key) < MIN_KEY_BYTES:
        raise KeyUnusableError(f"the key of tokens has {len(key)} bytes; it needs {MIN_KEY_BYTES} at least")
    return key
