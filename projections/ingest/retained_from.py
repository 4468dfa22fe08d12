"""Offsets up to which the tables hold compacted topics: later records must stay, however old they are.

Holds: read only; as long as a table catches up on history, nothing counts as held.
"""

from __future__ import annotations

from collections.abc import Callable

from trainhouse.events.wire.topics import DECISIONS, STATUS
from trainhouse.projections.ingest.catchup import whole_tables
from trainhouse.projections.ingest.lanes import LANES
from trainhouse.projections.store.clickhouse import ClickHouse
from trainhouse.projections.store.positions import Positions

# A job's last status is in the topic and in the journal: both lanes must have their tables whole before the topic lets go of it.
_LANES = tuple(spec for spec in LANES if STATUS in spec.topics or DECISIONS in spec.topics)


def held_to(clickhouse: ClickHouse) -> Callable[[str, int], int]:
    """Gives the first offset of a topic's partition that the tables do not hold. Blocks until it is known."""
    found: dict[tuple[str, int], int] = {}
    if all(spec.tables <= whole_tables(clickhouse, spec.name) for spec in _LANES):
        for spec in _LANES:
            found |= Positions(clickhouse, spec.name).load().needed_from
    return lambda topic, partition: found.get((topic, partition), 0)
