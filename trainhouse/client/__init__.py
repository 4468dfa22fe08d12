"""Trainhouse from a program: submit jobs, follow them, ask in SQL; over Kafka or over the gateway, whatever the settings name.

from trainhouse.client import connect

job = connect().submit(command=["python", "train.py"], gang=2)
print(job.wait().state, job.metrics("loss").to_pandas())
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from trainhouse.client.backend_choice import way_of
from trainhouse.client.backend_protocol import Happening, Line, Submitted, WayIn
from trainhouse.client.client import TrainhouseClient, spec_of
from trainhouse.client.errors import (
    AccessDeniedError,
    ChangeRefusedError,
    ClientError,
    InvalidSettingsError,
    InvalidSpecError,
    NeedsKafkaError,
    NoReplyError,
    NotReachableError,
    QueryError,
    UnknownJobError,
)
from trainhouse.client.filters import JobFilter
from trainhouse.client.job import Job
from trainhouse.client.sql import SqlEndpoint, Table

if TYPE_CHECKING:
    from trainhouse.client.async_client import AsyncClient, AsyncJob

if not structlog.is_configured():  # unconfigured, it prints warnings among what the program itself prints
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "InvalidSettingsError",
    "ClientError",
    "AccessDeniedError",
    "Happening",
    "InvalidSpecError",
    "Job",
    "JobFilter",
    "Line",
    "NeedsKafkaError",
    "NoReplyError",
    "NotReachableError",
    "QueryError",
    "ChangeRefusedError",
    "SqlEndpoint",
    "Submitted",
    "Table",
    "TrainhouseClient",
    "UnknownJobError",
    "WayIn",
    "connect",
    "spec_of",
]


def connect(
    *, gateway: str | None = None, token: str | None = None, kafka: str | None = None, config: str | Path | None = None
) -> TrainhouseClient:
    """A client by the way that is named (`gateway=URL`, `kafka=BOOTSTRAP`, or a settings file), else by environment and settings file.

    The choice without arguments: the gateway of TRAINHOUSE_GATEWAY_URL, if no Kafka address is set; else Kafka. Does not connect.
    A `config` counts for the whole process. Raises InvalidSettingsError.
    """
    import os

    from trainhouse.events.settings import CONFIG_VARIABLE

    if gateway is not None and kafka is not None:
        raise InvalidSettingsError("name one way: gateway=URL, or kafka=BOOTSTRAP")
    if config is not None:
        if not Path(config).is_file():
            raise InvalidSettingsError(f"{config} is no settings file")
        os.environ[CONFIG_VARIABLE] = str(config)
    return TrainhouseClient(way_of(gateway, token, kafka))


def __getattr__(name: str) -> Any:
    """The asynchronous client, loaded when it is asked for: it brings an HTTP library that a command over Kafka need not load."""
    if name in ("AsyncClient", "AsyncJob"):
        from trainhouse.client import async_client

        return getattr(async_client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
