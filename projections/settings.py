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

    url: str = Field(f"http://127.0.0.1:{DEFAULT_HTTP_PORT}", description="address of the HTTP interface, http://host:port")
    user: str = Field("default", description="account that reads, and that the projector writes by")
    password: str = Field("", repr=False, description="its password")
    guest_user: str = Field("", description="account for raw SQL through the gateway; without one the gateway asks as `user`")
    guest_password: str = Field("", repr=False, description="its password")
    database: str = Field("default", description="database of the tables")
    timeout_s: float = Field(60.0, gt=0, description="seconds to wait for an answer")

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

    server: bool = Field(False, description="true: write to the server of [clickhouse]; false: embed the engine")
    data_dir: Path = Field(Path(".trainhouse/clickhouse"), description="folder of the embedded engine's tables")
    http_host: str = Field("127.0.0.1", description="address that the embedded engine's endpoint listens on")
    http_port: int = Field(DEFAULT_HTTP_PORT, ge=0, le=65535, description="its port; 0: a free one")
    http_names: tuple[str, ...] = Field(
        (), description="host names under which others reach the endpoint, besides http_host and loopback's (a JSON list)"
    )

    signatures: Literal["accepted", "required"] = Field(
        "accepted",
        description="heartbeats of nodes that never signed: they make rows (accepted) or not (required), as [scheduler] signatures says",
    )

    audit: Literal["required", "preferred"] = Field(
        "preferred",
        description="an SQL query that cannot be recorded for the audit is refused (required), or goes on and is counted "
        "as lost (preferred)",
    )
    audit_waiting: int = Field(10_000, ge=1, description="most events of the audit kept while the brokers do not take them")

    memory_bytes: int = Field(2 * 1024**3, ge=256 * 1024**2, description="most memory of the embedded engine, in bytes")
    merge_threads: int = Field(2, ge=1, le=64, description="threads that merge parts of tables")

    batch_linger_ms: int = Field(60, ge=0, le=60_000, description="milliseconds that a batch of rows waits for more")
    batch_max_linger_ms: int = Field(250, ge=0, le=60_000, description="most milliseconds that it waits under load")
    beats_linger_ms: int = Field(3000, ge=0, le=60_000, description="milliseconds that a batch of heartbeats waits for more")
    batch_max_bytes: int = Field(16 * 1024**2, ge=1024, description="most bytes of records in one batch")
    batch_max_records: int = Field(50_000, ge=1, description="most records in one batch")

    query_connections: int = Field(4, ge=1, le=64, description="queries at once")
    query_waiting: int = Field(64, ge=0, description="queries that may wait for their turn; more are refused")
    query_time_s: float = Field(30.0, gt=0, description="seconds that one query may take")
    query_result_rows: int = Field(5_000_000, ge=1, description="most rows of one answer")
    query_result_bytes: int = Field(512 * 1024**2, ge=1024, description="most bytes of one answer")
    query_memory_bytes: int = Field(1024**3, ge=16 * 1024**2, description="most memory of one query, in bytes")

    guest_connections: int = Field(2, ge=1, le=64, description="queries at once of guests, who ask in raw SQL through the gateway")
    guest_waiting: int = Field(8, ge=0, description="their queries that may wait for their turn")
    guest_time_s: float = Field(20.0, gt=0, description="seconds that one of them may take")
    guest_result_rows: int = Field(1_000_000, ge=1, description="most rows of one answer to them")
    guest_result_bytes: int = Field(64 * 1024**2, ge=1024, description="most bytes of one answer to them")
    guest_memory_bytes: int = Field(512 * 1024**2, ge=16 * 1024**2, description="most memory of one of their queries, in bytes")
