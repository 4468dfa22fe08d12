"""Questions in SQL over the gateway, within the limits that it sets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from trainhouse.client.gateway import reads
from trainhouse.client.gateway.exchange import Flow
from trainhouse.client.sql import Table, table_of

T = TypeVar("T")


class FlowRunner(Protocol):
    """Asks a gateway."""

    def run(self, flow: Flow[T]) -> T:
        """Runs a flow to its end. Blocks."""
        ...


@dataclass
class GatewaySql:
    """Questions in SQL over the gateway."""

    way: FlowRunner

    def table(self, query: str, values: Mapping[str, str | int] | None = None) -> Table:
        """The whole answer. Blocks. Raises QueryError, NotReachableError, AccessDeniedError."""
        return table_of(self.raw(query, "JSONCompact", values))

    def raw(self, query: str, format: str = "TabSeparated", values: Mapping[str, str | int] | None = None) -> bytes:
        """The answer's bytes. Blocks."""
        return self.way.run(reads.query(query, format, values))
