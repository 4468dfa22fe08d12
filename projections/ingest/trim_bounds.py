"""First offsets of archived topics that the projector needs: earlier records may be trimmed once they are archived.

Holds: read only. Tables that catch up, and a rebuild, need more than this: they read the archive.
"""

from __future__ import annotations

from trainhouse.events.archive.reading import ARCHIVED
from trainhouse.projections.ingest.lanes import LANES
from trainhouse.projections.store.clickhouse import ClickHouse
from trainhouse.projections.store.positions import Positions


def needed_by_lanes(clickhouse: ClickHouse) -> dict[str, dict[int, int]]:
    """The first needed offset by topic and partition; of these topics, what is not in it is needed from its beginning. Blocks."""
    found: dict[str, dict[int, int]] = {}
    for spec in LANES:
        read = set(spec.topics) & set(ARCHIVED)
        if not read:
            continue
        needed = Positions(clickhouse, spec.name).load().needed_from
        for topic in read:
            of_lane = {partition: offset for (of, partition), offset in needed.items() if of == topic}
            others = found.get(topic)
            # What one of its lanes has not begun with is needed from its beginning, whatever the others say.
            found[topic] = of_lane if others is None else {p: min(others[p], of_lane[p]) for p in others.keys() & of_lane.keys()}
    return found
