"""Sink of points, progress and events: the rank's spool, or a no-op when the script runs on its own.

Holds: both take the same calls.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from trainhouse.workers.session.context import Context
from trainhouse.workers.spool import SpoolWriter


class Sink(Protocol):
    """The port; see `workers/spool.py` for what the calls mean."""

    def metrics(self, step: int, time_ms: int, values: Mapping[str, Any]) -> Mapping[str, Any]: ...

    def progress(self, fields: Mapping[str, Any]) -> None: ...

    def life(self, fields: Mapping[str, Any]) -> None: ...

    def event(self, name: str, fields: Mapping[str, Any], event_id: str | None = None) -> None: ...

    def close(self) -> None: ...


class Nowhere:
    """Takes everything, keeps nothing."""

    def metrics(self, step: int, time_ms: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Drop a point."""
        return values

    def progress(self, fields: Mapping[str, Any]) -> None:
        """Drop a report."""

    def life(self, fields: Mapping[str, Any]) -> None:
        """Drop a sign of life."""

    def event(self, name: str, fields: Mapping[str, Any], event_id: str | None = None) -> None:
        """Drop an event."""

    def close(self) -> None:
        """Nothing to close."""


def open_sink(context: Context) -> Sink:
    """The spool of this rank, if it has one."""
    return Nowhere() if context.spool is None else SpoolWriter(context.spool, context.spool_limit_bytes)
