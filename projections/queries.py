"""The questions that the command line and the gateway ask, as typed functions over clickhouse-connect's HTTP client.

Holds: every value is bound, never pasted; every listing is bounded and in a stated order; units are in the columns' names.
Never: writes. Every call blocks on ClickHouse and raises ClickHouseFailed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from trainhouse.projections.clickhouse import http_client
from trainhouse.projections.errors import ClickHouseFailed
from trainhouse.projections.settings import ClickHouseSettings

Answer = list[dict[str, Any]]
MAX_ROWS = 10_000


@dataclass(frozen=True)
class JobFilter:
    """Which jobs. Empty fields do not filter; times are of submission, in milliseconds since 1970; `limit` newest jobs."""

    user: str | None = None
    team: str | None = None
    project: str | None = None
    pool: str | None = None
    states: tuple[str, ...] = ()
    name: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    limit: int = 100

    def where(self) -> tuple[str, dict[str, Any]]:
        """The condition and its bound values."""
        conditions, values = ["1"], dict[str, Any]()
        for column in ("user", "team", "project", "pool", "name"):
            wanted = getattr(self, column)
            if wanted is not None:
                conditions.append(f"{column} = {{{column}:String}}")
                values[column] = wanted
        if self.states:
            conditions.append("state IN {states:Array(String)}")
            values["states"] = [s.upper() for s in self.states]
        for name, sign, wanted in (("since_ms", ">=", self.since_ms), ("until_ms", "<", self.until_ms)):
            if wanted is not None:
                conditions.append(f"coalesce(submitted_at, updated_at) {sign} fromUnixTimestamp64Milli({{{name}:Int64}}, 'UTC')")
                values[name] = wanted
        return " AND ".join(conditions), values


class Queries:
    """Answers as lists of dicts by column name; times are aware datetimes in UTC."""

    def __init__(self, settings: ClickHouseSettings | None = None, *, client: Client | None = None) -> None:
        self._client = client or http_client(settings or ClickHouseSettings())

    def close(self) -> None:
        """Lets the connection go."""
        self._client.close()

    def jobs(self, wanted: JobFilter | None = None) -> Answer:
        """Jobs, newest submission first."""
        chosen = wanted or JobFilter()
        where, values = chosen.where()
        values["limit"] = min(chosen.limit, MAX_ROWS)
        order = "ORDER BY coalesce(submitted_at, updated_at) DESC, job_id"
        return self._ask(f"SELECT * FROM jobs WHERE {where} {order} LIMIT {{limit:UInt32}}", values)

    def job(self, job_id: str) -> dict[str, Any] | None:
        """One job, None where it is not known."""
        found = self._ask("SELECT * FROM jobs WHERE job_id = {job_id:String} LIMIT 1", {"job_id": job_id})
        return found[0] if found else None

    def attempts(self, job_id: str) -> Answer:
        """The attempts of a job, oldest first."""
        return self._ask("SELECT * FROM attempts WHERE job_id = {job_id:String} ORDER BY epoch", {"job_id": job_id})

    def allocations(self, job_id: str) -> Answer:
        """What a job held on which node, oldest first."""
        return self._ask("SELECT * FROM allocations WHERE job_id = {job_id:String} ORDER BY epoch, first_rank", {"job_id": job_id})

    def ranks(self, job_id: str, epoch: int | None = None) -> Answer:
        """The ranks of one attempt of a job, of the newest one without `epoch`."""
        newest = "(SELECT max(epoch) FROM rank_facts WHERE job_id = {job_id:String})"
        values: dict[str, Any] = {"job_id": job_id}
        if epoch is not None:
            values["epoch"] = epoch
        wanted = newest if epoch is None else "{epoch:UInt32}"
        return self._ask(f"SELECT * FROM ranks WHERE job_id = {{job_id:String}} AND epoch = {wanted} ORDER BY rank", values)

    def checkpoints(self, job_id: str) -> Answer:
        """The checkpoints of a job, oldest first."""
        return self._ask("SELECT * FROM checkpoints WHERE job_id = {job_id:String} ORDER BY commit", {"job_id": job_id})

    def nodes(self, pool: str | None = None) -> Answer:
        """Nodes by name."""
        where = "1" if pool is None else "pool = {pool:String}"
        values = {} if pool is None else {"pool": pool}
        return self._ask(f"SELECT * FROM nodes WHERE {where} ORDER BY node_id LIMIT {MAX_ROWS}", values)

    def events(self, job_id: str, after: datetime | None = None, limit: int = MAX_ROWS) -> Answer:
        """The story of a job, oldest first: time, type, topic, one line and the event as JSON."""
        values: dict[str, Any] = {"job_id": job_id, "limit": min(limit, MAX_ROWS)}
        where = "job_id = {job_id:String}"
        if after is not None:
            where += " AND time > fromUnixTimestamp64Milli({after:Int64}, 'UTC')"
            values["after"] = round(after.astimezone(UTC).timestamp() * 1000)
        return self._ask(
            f"SELECT time, type, source_topic, summary, node_id, epoch, event_id, json FROM events WHERE {where} "
            "ORDER BY time, source_topic, source_partition, source_offset LIMIT {limit:UInt32}",
            values,
        )

    def logs(
        self, job_id: str, rank: int | None = None, epoch: int | None = None, after: Mapping[str, Any] | None = None, limit: int = 1000
    ) -> Answer:
        """Lines of a job's output in the order in which they were read, the newest `limit` of them.

        `after` is a row that was given before: only lines that were read later follow (to follow a running job).
        """
        values: dict[str, Any] = {"job_id": job_id, "limit": min(limit, MAX_ROWS)}
        where = ["job_id = {job_id:String}"]
        for name, wanted in (("rank", rank), ("epoch", epoch)):
            if wanted is not None:
                where.append(f"{name} = {{{name}:UInt32}}")
                values[name] = wanted
        columns = "time, epoch, attempt, rank, stream, offset, line, node_id, source_partition, source_offset"
        newest = "ORDER BY source_offset DESC, offset DESC LIMIT {limit:UInt32}"
        if after is not None:
            # A job's lines are on one partition (the key is the job), so (source_offset, offset) orders them for ever.
            where.append("(source_offset, offset) > ({after_source:UInt64}, {after_offset:UInt64})")
            values |= {"after_source": int(after["source_offset"]), "after_offset": int(after["offset"])}
            newest = "ORDER BY source_offset, offset LIMIT {limit:UInt32}"
        inner = f"SELECT {columns} FROM logs WHERE {' AND '.join(where)} {newest}"
        return self._ask(f"SELECT * FROM ({inner}) ORDER BY source_offset, offset", values)

    def metrics(self, job_id: str, metric: str, rank: int = 0, points: int = 1000) -> Answer:
        """A curve: at most `points` (step, value) pairs, each the mean over its range of steps; restarts overwrite steps."""
        values = {"job_id": job_id, "metric": metric, "rank": rank, "points": min(points, MAX_ROWS)}
        return self._ask(_CURVE, values)

    def rejections(self, limit: int = 100) -> Answer:
        """Refused submissions, newest first."""
        return self._ask("SELECT * FROM rejections ORDER BY rejected_at DESC LIMIT {limit:UInt32}", {"limit": min(limit, MAX_ROWS)})

    def sql(self, query: str, parameters: Mapping[str, Any] | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Any query: its column names and rows."""
        try:
            result = self._client.query(query, parameters=dict(parameters or {}))
        except ClickHouseError as error:
            raise ClickHouseFailed(str(error), getattr(error, "code", 0) or 0) from error
        return list(result.column_names), [tuple(row) for row in result.result_rows]

    def _ask(self, query: str, parameters: Mapping[str, Any]) -> Answer:
        names, rows = self.sql(query, parameters)
        return [{n: _aware(v) for n, v in zip(names, row, strict=True)} for row in rows]


_CURVE = """
WITH newest AS (
    SELECT step, argMax(value, epoch) AS value FROM step_metrics
    WHERE job_id = {job_id:String} AND metric = {metric:String} AND rank = {rank:UInt32} GROUP BY step
), (SELECT greatest(1, ceil((max(step) - min(step) + 1) / {points:UInt32})) FROM newest) AS width
SELECT min(n.step) AS step, avg(n.value) AS value FROM newest AS n GROUP BY intDiv(n.step, toUInt64(width)) ORDER BY min(n.step)
"""


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
