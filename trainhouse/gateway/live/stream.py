"""Stream of one watcher as bytes: its position, missed events, new events, and the reason of its end.

Holds: nothing between the place that it resumed from and now is left out; a beat tells that the connection lives; a token or a membership
that ends, ends the stream: it is asked for at each part, so that nothing is sent of what waited by then.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from trainhouse.events.wire.envelope import from_rfc3339
from trainhouse.gateway.auth.roles import Principal
from trainhouse.gateway.live import messages
from trainhouse.gateway.live.hub import EVENT, LOG, METRICS, STATUS, News, Watcher
from trainhouse.gateway.live.messages import Place
from trainhouse.gateway.live.poller import COLUMNS, TABLES, news_of
from trainhouse.gateway.queries.redacting import redacted
from trainhouse.gateway.queries.sql_reader import Row, SqlReader

BEAT_S = 10.0
RETRY_MS = 1000
CATCH_UP_ROWS = 20_000
FIELDS = {METRICS: "metrics", LOG: "lines"}
ITEMS = {METRICS: "points", LOG: "lines"}


@dataclass
class JobStream:
    """The stream of one job. `ended(principal)` says why its principal's token counts no more."""

    reader: SqlReader
    principal: Principal
    watcher: Watcher
    job: Row
    ended: Callable[[Principal], str]
    place: Place = field(default_factory=Place)

    async def parts(self, resumed: Place | None) -> AsyncIterator[bytes]:
        """Yields the stream's parts, in order, until its principal's rights end."""
        sent = resumed
        async with aclosing(self._parts(resumed)) as parts:
            async for part in parts:
                if self.ended(self.principal):
                    break
                yield part
                sent = self.place
        if over := self.ended(self.principal):
            # A member again resumes behind what was sent, not behind what was only ready to be.
            yield messages.event("cut", {"reason": over}, sent or "")

    async def _parts(self, resumed: Place | None) -> AsyncGenerator[bytes]:
        # What comes after this question is told live: only who resumes has missed anything.
        self.place = resumed or await self._newest()
        if STATUS in self.watcher.kinds:
            yield self._status(self.job, RETRY_MS)
        else:
            yield f"retry: {RETRY_MS}\n\n".encode()
        if resumed is not None:
            async for part in self._missed():
                yield part
        while True:
            awake = await self.watcher.wait(BEAT_S)
            if self.ended(self.principal):
                return
            statuses, news = self.watcher.take()
            for job in statuses:
                if job["status_seq"] > self.place.status_seq:
                    job = dict(job)
                    await redacted(self.reader, self.principal, [job], ("reason",))
                    yield self._status(job)
            async for part in self._news(news):
                yield part
            if self.watcher.cut:
                yield messages.event("cut", {"reason": self.watcher.cut}, self.place)
                return
            if not awake:
                yield messages.BEAT

    def _status(self, job: Row, retry_ms: int | None = None) -> bytes:
        self.place = replace(self.place, status_seq=max(self.place.status_seq, job["status_seq"]))
        return messages.event("status", job, self.place, retry_ms)

    async def _news(self, news: list[News]) -> AsyncIterator[bytes]:
        """News as events: records of one kind that come together are one event."""
        for kind in (EVENT, *TABLES):
            of_kind = [one for one in news if one.kind == kind]
            if kind == EVENT:
                rows = [dict(row) for one in of_kind for row in one.rows]
                await redacted(self.reader, self.principal, rows, ("summary",))
                for row in rows:
                    yield self._event(row)
                continue
            fresh = [one for one in of_kind if one.offset > getattr(self.place, FIELDS[kind])]
            if fresh:
                self.place = replace(self.place, **{FIELDS[kind]: fresh[-1].offset})
                yield messages.event(kind, {ITEMS[kind]: [row for one in fresh for row in one.rows]}, self.place)

    def _event(self, row: Row) -> bytes:
        self.place = replace(self.place, event_ms=max(self.place.event_ms, from_rfc3339(row["time"])))
        return messages.event("event", row, self.place)

    async def _newest(self) -> Place:
        """Newest position of the job's points and lines."""
        found = await self.reader.one(
            "SELECT (SELECT if(count() = 0, -1, toInt64(max(source_offset))) FROM step_metrics WHERE job_id = {job_id:String}) AS metrics, "
            "(SELECT if(count() = 0, -1, toInt64(max(source_offset))) FROM logs WHERE job_id = {job_id:String}) AS lines",
            {"job_id": self.job["job_id"]},
        )
        assert found is not None, "a question without FROM has one row"
        return Place(-1, found["metrics"], found["lines"], time.time_ns() // 1_000_000)

    async def _missed(self) -> AsyncIterator[bytes]:
        """Yields the events between the position and now; one that is also sent live is recognized by its position."""
        for kind in TABLES:
            while kind in self.watcher.kinds:
                rows = await self._behind(kind)
                async for part in self._news(list(news_of(kind, rows))):
                    yield part
                if len(rows) < CATCH_UP_ROWS:
                    break
        if EVENT in self.watcher.kinds:
            for row in await self._events():
                yield self._event(row)

    async def _behind(self, kind: str) -> list[Row]:
        """The next rows behind the place: whole records."""
        of = {"job_id": self.job["job_id"], "place": getattr(self.place, FIELDS[kind])}
        within = f"FROM {TABLES[kind]} WHERE job_id = {{job_id:String}} AND source_offset > {{place:Int64}}"
        return await self.reader.rows(
            f"SELECT job_id, {COLUMNS[kind]}, source_partition, source_offset {within} "
            f"ORDER BY source_offset LIMIT {CATCH_UP_ROWS} WITH TIES",
            of,
        )

    async def _events(self) -> list[Row]:
        rows = await self.reader.rows(
            f"SELECT {COLUMNS[EVENT]} FROM events_rows FINAL WHERE job_id = {{job_id:String}} "
            "AND time >= fromUnixTimestamp64Milli({since:Int64}, 'UTC') ORDER BY time, event_id LIMIT 1000",
            {"job_id": self.job["job_id"], "since": self.place.event_ms},
        )
        await redacted(self.reader, self.principal, rows, ("summary",))
        return rows


@dataclass
class FleetStream:
    """The newest statuses of all jobs that its principal sees, from now on, or from the id that it resumes from (ms)."""

    reader: SqlReader
    principal: Principal
    watcher: Watcher
    ended: Callable[[Principal], str]
    missed: list[Row]

    async def parts(self) -> AsyncIterator[bytes]:
        """Yields the stream's parts, until its principal's rights end."""
        async with aclosing(self._parts()) as parts:
            async for part in parts:
                if self.ended(self.principal):
                    break
                yield part
        if over := self.ended(self.principal):
            yield messages.event("cut", {"reason": over})

    async def _parts(self) -> AsyncGenerator[bytes]:
        yield f"retry: {RETRY_MS}\n\n".encode()
        for job in self.missed:
            yield self._status(job)
        while True:
            awake = await self.watcher.wait(BEAT_S)
            if self.ended(self.principal):
                return
            statuses, _ = self.watcher.take()
            seen = [dict(job) for job in statuses if self.principal.sees(job["project"])]
            await redacted(self.reader, self.principal, seen, ("reason",))
            for job in seen:
                yield self._status(job)
            if self.watcher.cut:
                yield messages.event("cut", {"reason": self.watcher.cut})
                return
            if not awake:
                yield messages.BEAT

    def _status(self, job: dict[str, Any]) -> bytes:
        return messages.event("status", job, from_rfc3339(job["updated_at"]))
