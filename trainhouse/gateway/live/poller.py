"""Poller of the projections for all watched jobs: new metrics, lines and events.

Holds: it asks only while somebody watches; it goes on behind the last record of each partition, so that a row is told once; a question
that fails is asked again, and nothing is passed over. What was inserted in a second is asked for again in the next ones (events have no
order of their own), and told once.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import groupby

import structlog

from trainhouse.gateway.errors import GatewayError
from trainhouse.gateway.live.hub import EVENT, LOG, METRICS, Hub, News
from trainhouse.gateway.queries.sql_reader import Row, SqlReader

log = structlog.get_logger(__name__)

MOST_ROWS = 50_000
REMEMBERED = 50_000
OVERLAP_S = 3
RETRY_S = 1.0

COLUMNS = {
    METRICS: "metric, rank, epoch, step, toUnixTimestamp64Milli(time) AS time_ms, value",
    LOG: "rank, epoch, attempt, stream, offset, time, line",
    EVENT: "time, type, event_id, node_id, epoch, summary",
}
TABLES = {METRICS: "step_metrics", LOG: "logs"}


class Poller:
    """Runs until cancelled."""

    def __init__(self, hub: Hub, reader: SqlReader, every_s: float) -> None:
        self._hub = hub
        self._reader = reader
        self._every_s = every_s
        self._ends: dict[str, dict[int, int]] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._since_s = 0

    async def run(self) -> None:
        """Polls for ever."""
        while True:
            if not any(self._hub.watched(kind) for kind in (METRICS, LOG, EVENT)):
                self._forget(*TABLES)
                self._since_s = 0
                self._hub.changed.clear()
                await self._hub.changed.wait()
            began = time.monotonic()
            try:
                for kind in TABLES:
                    await self._tail(kind)
                await self._events()
            except GatewayError as error:
                log.warning("live news could not be asked for; asked again", error=str(error))
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(max(0.01, self._every_s - (time.monotonic() - began)))

    async def _tail(self, kind: str) -> None:
        jobs = self._hub.watched(kind)
        if not jobs:
            self._forget(kind)
            return
        if kind not in self._ends:
            self._ends[kind] = await self._newest(kind)
            self._hub.armed[kind].set()
        ends = self._ends[kind]
        rows = await self._reader.rows(
            f"SELECT job_id, {COLUMNS[kind]}, source_partition, source_offset FROM {TABLES[kind]} "
            "WHERE job_id IN {jobs:Array(String)} "
            "AND source_offset > transform(source_partition, {partitions:Array(UInt32)}, {ends:Array(Int64)}, toInt64(-1)) "
            f"ORDER BY source_partition, source_offset LIMIT {MOST_ROWS}",
            {"jobs": jobs, "partitions": list(ends) or [0], "ends": list(ends.values()) or [-1]},
        )
        records = whole_records(rows, MOST_ROWS)
        for row in records:
            ends[row["source_partition"]] = max(ends.get(row["source_partition"], -1), row["source_offset"])
        for news in news_of(kind, records):
            self._hub.news(news)

    def _forget(self, *kinds: str) -> None:
        for kind in kinds:
            self._ends.pop(kind, None)
            self._hub.armed[kind].clear()

    async def _newest(self, kind: str) -> dict[int, int]:
        rows = await self._reader.rows(
            f"SELECT source_partition, max(source_offset) AS newest FROM {TABLES[kind]} GROUP BY source_partition"
        )
        return {row["source_partition"]: row["newest"] for row in rows}

    async def _events(self) -> None:
        jobs = self._hub.watched(EVENT)
        if not jobs:
            return
        rows = await self._reader.rows(
            f"SELECT job_id, {COLUMNS[EVENT]}, toUnixTimestamp(inserted_at) AS inserted_s "
            "FROM events_rows WHERE job_id IN {jobs:Array(String)} AND inserted_at >= toDateTime({since:UInt32}, 'UTC') "
            f"ORDER BY time, event_id LIMIT {MOST_ROWS}",
            {"jobs": jobs, "since": self._since_s or int(time.time()) - OVERLAP_S},
        )
        fresh = [row for row in rows if row["event_id"] not in self._seen]
        for row in rows:
            self._seen[row["event_id"]] = None
            self._since_s = max(self._since_s, row.pop("inserted_s") - OVERLAP_S)
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        self._since_s = self._since_s or int(time.time()) - OVERLAP_S
        for job_id, of_job in groupby(sorted(fresh, key=lambda r: str(r["job_id"])), key=lambda r: str(r.pop("job_id"))):
            self._hub.news(News(EVENT, job_id, list(of_job), 0))


def whole_records(rows: list[Row], limit: int) -> list[Row]:
    """Without the rows of the last record, where the limit may have cut it; all of them where it alone fills the limit."""
    if len(rows) < limit:
        return rows
    last = (rows[-1]["source_partition"], rows[-1]["source_offset"])
    kept = [row for row in rows if (row["source_partition"], row["source_offset"]) != last]
    return kept or rows


def news_of(kind: str, rows: Iterable[Row]) -> Iterator[News]:
    """Rows, in the order of their records, as news: one a record."""
    for (job_id, _, offset), found in groupby(rows, key=lambda r: (r["job_id"], r["source_partition"], r["source_offset"])):
        yield News(kind, job_id, [{k: v for k, v in row.items() if k not in _PLACES} for row in found], offset)


_PLACES = frozenset({"job_id", "source_partition", "source_offset"})
