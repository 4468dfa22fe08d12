"""Settings of ClickHouse, of ingestion and of the SQL endpoint.

Holds: a client needs nothing but the URL; the projector's own group says whether the engine is embedded or a server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from trainhouse.events.settings import TomlSection

DEFAULT_HTTP_PORT = 8123


def sql_headers(user: str, password: str) -> dict[str, str]:
    """The headers of an account; none where a server takes its default one."""
    return {"X-ClickHouse-User": user, "X-ClickHouse-Key": password} if password or user != "default" else {}


class ClickHouseSettings(TomlSection):
    """Access to ClickHouse's HTTP interface: the projector's own, or a server's."""

    section = "clickhouse"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_CLICKHOUSE_", extra="ignore")

    url: str = f"http://127.0.0.1:{DEFAULT_HTTP_PORT}"
    user: str = "default"
    password: str = Field("", repr=False)
    # Who asks in raw SQL through the gateway; without a name of its own, the gateway asks as `user`.
    guest_user: str = ""
    guest_password: str = Field("", repr=False)
    database: str = "default"
    timeout_s: float = Field(60.0, gt=0)

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{value!r} is no address of ClickHouse; write http://host:port")
        return value

    @model_validator(mode="after")
    def _of_url(self) -> ClickHouseSettings:
        """A user and a password in the URL count, and leave it: addresses are in messages."""
        parts = urlsplit(self.url)
        if parts.username is not None:
            self.user, self.password = unquote(parts.username), unquote(parts.password or "")
            self.url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        return self

    @property
    def headers(self) -> dict[str, str]:
        """Headers of an HTTP request of `user`."""
        return sql_headers(self.user, self.password)

    @property
    def guest_headers(self) -> dict[str, str]:
        """Headers of an HTTP request of a guest."""
        return sql_headers(self.guest_user, self.guest_password) if self.guest_user else self.headers


class ProjectorSettings(TomlSection):
    """The projector. With `server` False the engine is embedded in this process and lives in `data_dir`.

    With `server` True it writes to the ClickHouse of ClickHouseSettings and serves nothing: that server answers queries itself.
    """

    section = "projector"
    model_config = SettingsConfigDict(env_prefix="TRAINHOUSE_PROJECTOR_", extra="ignore")

    server: bool = False
    data_dir: Path = Path(".trainhouse/clickhouse")
    http_host: str = "127.0.0.1"
    http_port: int = Field(DEFAULT_HTTP_PORT, ge=0, le=65535)
    # Names under which others reach the endpoint, besides http_host and loopback's: what a request's Host may say.
    http_names: tuple[str, ...] = ()

    # Of heartbeats of nodes that never signed: whether they make rows (accepted) or not (required), as [scheduler] signatures says.
    signatures: Literal["accepted", "required"] = "accepted"

    # Whether a question in SQL that the audit cannot be told of is refused (required), or goes on and is counted as lost (preferred).
    audit: Literal["required", "preferred"] = "preferred"
    audit_waiting: int = Field(10_000, ge=1)

    memory_bytes: int = Field(2 * 1024**3, ge=256 * 1024**2)
    merge_threads: int = Field(2, ge=1, le=64)

    batch_linger_ms: int = Field(60, ge=0, le=60_000)
    batch_max_linger_ms: int = Field(250, ge=0, le=60_000)
    beats_linger_ms: int = Field(1000, ge=0, le=60_000)
    batch_max_bytes: int = Field(16 * 1024**2, ge=1024)
    batch_max_records: int = Field(50_000, ge=1)

    query_connections: int = Field(4, ge=1, le=64)
    query_waiting: int = Field(64, ge=0)
    query_time_s: float = Field(30.0, gt=0)
    query_result_rows: int = Field(5_000_000, ge=1)
    query_result_bytes: int = Field(512 * 1024**2, ge=1024)
    query_memory_bytes: int = Field(1024**3, ge=16 * 1024**2)

    # Of guests: whoever asks in raw SQL through the gateway. Connections of their own, and tighter limits.
    guest_connections: int = Field(2, ge=1, le=64)
    guest_waiting: int = Field(8, ge=0)
    guest_time_s: float = Field(20.0, gt=0)
    guest_result_rows: int = Field(1_000_000, ge=1)
    guest_result_bytes: int = Field(64 * 1024**2, ge=1024)
    guest_memory_bytes: int = Field(512 * 1024**2, ge=16 * 1024**2)
