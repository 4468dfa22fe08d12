"""Trainhouse from a program: submit jobs, follow them, ask in SQL; over Kafka or over the gateway, whatever the settings name.

from trainhouse.client import connect

job = connect().submit(command=["python", "train.py"], gang=2)
print(job.wait().state, job.metrics("loss").to_pandas())
"""

from typing import TYPE_CHECKING, Any

from trainhouse.client.backend_protocol import Happening, Line, Submitted, WayIn
from trainhouse.client.client import TrainhouseClient, spec_of
from trainhouse.client.connect import connect
from trainhouse.client.errors import (
    BadSettings,
    ClientError,
    Denied,
    InvalidSpec,
    NeedsKafka,
    NoReply,
    NotReachable,
    QueryFailed,
    RefusedChange,
    UnknownJob,
)
from trainhouse.client.filters import JobFilter
from trainhouse.client.job import Job
from trainhouse.client.sql import SqlEndpoint, Table

if TYPE_CHECKING:
    from trainhouse.client.async_client import AsyncClient, AsyncJob

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "BadSettings",
    "ClientError",
    "Denied",
    "Happening",
    "InvalidSpec",
    "Job",
    "JobFilter",
    "Line",
    "NeedsKafka",
    "NoReply",
    "NotReachable",
    "QueryFailed",
    "RefusedChange",
    "SqlEndpoint",
    "Submitted",
    "Table",
    "TrainhouseClient",
    "UnknownJob",
    "WayIn",
    "connect",
    "spec_of",
]


def __getattr__(name: str) -> Any:
    """The asynchronous client, loaded when it is asked for: it brings an HTTP library that a command over Kafka need not load."""
    if name in ("AsyncClient", "AsyncJob"):
        from trainhouse.client import async_client

        return getattr(async_client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
