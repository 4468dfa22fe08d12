"""The rows of one batch, ready to insert, and how a builder makes them.

Holds: a builder is a pure function of (records, marks): a replay of the same records with the same marks gives the same tables. Those of
heartbeats and of what ranks tell depend on the nodes' keys besides: their tables collapse repeats by key or are counted (replay_repair.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

import pyarrow as pa

from trainhouse.projections.record import Record


@dataclass(frozen=True)
class Built:
    """Tables of rows by name, and the marks after them. `unreadable` counts the records that became dead letters.

    `gaps`: what is missing between the records, in words.
    """

    tables: dict[str, pa.Table]
    marks: dict[str, int] = field(default_factory=dict)
    unreadable: int = 0
    gaps: tuple[str, ...] = ()


class Builder(Protocol):
    """Turns a batch of records into rows; never raises for what a record holds."""

    def ready(self, records: Sequence[Record], stop: Event) -> bool:
        """Before a batch is begun: waits until all is known that `build` needs. False where `stop` was set before; the batch waits then."""

    def streams(self, records: Sequence[Record]) -> list[str]:
        """The streams whose marks `build` needs; empty where nothing is trimmed."""

    def build(self, records: Sequence[Record], marks: dict[str, int]) -> Built:
        """The rows of the records in order."""
