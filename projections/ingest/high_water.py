"""High-water marks: how far each file of each rank has been ingested, so that a range that was cut differently is trimmed.

Holds: marks travel with their batch; a replay of a batch sees the marks as they were before it. Memory is bounded: what is not
cached is asked of ClickHouse.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import pyarrow as pa

from trainhouse.projections.store.clickhouse import ClickHouse
from trainhouse.projections.store.positions import Batch

MAX_CACHED = 100_000


class Marks:
    """The marks of one lane, in bytes of a file. `for_batch` blocks on ClickHouse for streams that are not cached."""

    def __init__(self, clickhouse: ClickHouse, lane: str, max_cached: int = MAX_CACHED) -> None:
        self._clickhouse = clickhouse
        self._lane = lane
        self._cache: OrderedDict[str, int] = OrderedDict()
        self._max_cached = max_cached

    def __len__(self) -> int:
        return len(self._cache)

    def for_batch(self, streams: Iterable[str], batch_number: int) -> dict[str, int]:
        """Each stream's mark as of before the batch; 0 where there is none."""
        wanted = dict.fromkeys(streams, 0)
        missing = [s for s in wanted if s not in self._cache]
        for stream in wanted.keys() & self._cache.keys():
            wanted[stream] = self._cache[stream]
        if missing:
            rows = self._clickhouse.rows(_LOAD, {"lane": self._lane, "streams": missing, "batch": batch_number})
            wanted |= {str(stream): int(mark) for stream, mark in rows}
        return wanted

    def store(self, batch: Batch, before: dict[str, int], after: dict[str, int]) -> None:
        """Writes the marks that moved. Call it when the batch's rows are in, before its done."""
        moved = sorted(s for s, mark in after.items() if mark != before[s])
        if moved:
            columns = [
                pa.array([self._lane] * len(moved)),
                pa.array(moved),
                pa.array([batch.number] * len(moved), type=pa.uint64()),
                pa.array([after[s] for s in moved], type=pa.uint64()),
                pa.array([before[s] for s in moved], type=pa.uint64()),
            ]
            table = pa.Table.from_arrays(columns, names=["lane", "stream", "batch", "mark", "before"])
            self._clickhouse.insert("high_water", table, batch.token("high_water"))
        for stream, mark in after.items():
            self._cache[stream] = mark
            self._cache.move_to_end(stream)
        while len(self._cache) > self._max_cached:
            self._cache.popitem(last=False)


_LOAD = """
SELECT stream, if(batch >= {batch:UInt64}, before, mark) FROM high_water FINAL
WHERE lane = {lane:String} AND stream IN {streams:Array(String)}
"""
