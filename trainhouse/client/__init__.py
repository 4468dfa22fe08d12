"""Trainhouse from a program: submit jobs, follow them, ask in SQL; over Kafka or over the gateway, whatever the settings name.

from trainhouse.client import connect

job = connect().submit(command=["python", "train.py"], gang=2)
print(job.wait().state, job.metrics("loss").to_pandas())
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from trainhouse.client.async_client import AsyncClient, AsyncJob
    from trainhouse.client.backend_choice import optuna_storage
    from trainhouse.client.backend_protocol import Happening, Line, Submitted, WayIn
    from trainhouse.client.client import TrainhouseClient, connect, spec_of
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
    "optuna_storage",
    "spec_of",
]


_HOLDERS: Final = {
    "backend_choice": ("optuna_storage",),
    "backend_protocol": (
        "Happening",
        "Line",
        "Submitted",
        "WayIn",
    ),
    "client": (
        "connect",
        "TrainhouseClient",
        "spec_of",
    ),
    "errors": (
        "AccessDeniedError",
        "ChangeRefusedError",
        "ClientError",
        "InvalidSettingsError",
        "InvalidSpecError",
        "NeedsKafkaError",
        "NoReplyError",
        "NotReachableError",
        "QueryError",
        "UnknownJobError",
    ),
    "filters": ("JobFilter",),
    "job": ("Job",),
    "sql": (
        "SqlEndpoint",
        "Table",
    ),
    "async_client": (
        "AsyncClient",
        "AsyncJob",
    ),
}


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first asked for: a command that needs one module loads no models and no HTTP library."""
    module = next((module for module, names in _HOLDERS.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
