"""Reads over the gateway, as flows: requests in order, and their answers in the client's own types.

Holds: pure; an answer gives the same types as Kafka and the tables do. Times of the gateway are RFC 3339, the client's are milliseconds.
Models are imported where an answer is made of one: rows need none.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson

from trainhouse.client.backend_protocol import Happening, Row
from trainhouse.client.errors import ClientError, UnknownJobError
from trainhouse.client.filters import JobFilter
from trainhouse.client.gateway.exchange import Flow, GatewayAnswer, NotFoundError, Request, ask, everything, query_error
from trainhouse.client.pool_view import of_tables
from trainhouse.client.rows import ACTIVE, WAITING, status_of_row

if TYPE_CHECKING:
    from trainhouse.events import JobSpec, JobStatus
    from trainhouse.events.model.explanation import JobExplained

JOBS = "/v1/training-jobs"
PAGE = 1000
MAX_ACTIVE = 100_000
SUBMITTED = "trainhouse.job.submitted.v1"
GRAVITY = ("CRITICAL", "WARNING", "INFO")
CURVE = ("step", "least", "greatest", "mean")


def job_path(job_id: str, part: str = "") -> str:
    """The path of a job, or of something of it; the id cannot lead anywhere else."""
    return f"{JOBS}/{quote(job_id, safe='')}" + (f"/{part}" if part else "")


def of_job(job_id: str, request: Request) -> Flow[GatewayAnswer]:
    """A request about one job. Raises UnknownJobError."""
    try:
        return (yield from ask(request))
    except NotFoundError as error:
        raise UnknownJobError(job_id) from error


def status(job_id: str, after: str | None = None) -> "Flow[JobStatus]":
    """The newest status."""
    return status_of_row((yield from job(job_id, after)))


def job(job_id: str, after: str | None = None) -> Flow[Row]:
    """The row of one job. Raises UnknownJobError."""
    return job_row((yield from of_job(job_id, Request("GET", job_path(job_id), _after(after)))).json())


def jobs(keep: JobFilter, limit: int) -> Flow[list[Row]]:
    """Rows of jobs, newest first. What the gateway does not filter by is filtered here, page by page."""
    wanted = {name: getattr(keep, name) for name in ("user", "team", "project", "pool") if getattr(keep, name) is not None}
    params = wanted | ({"state": list(keep.states)} if keep.states else {}) | ({"tag": list(keep.tags)} if keep.tags else {})
    found: list[Row] = []
    query: dict[str, Any] = params | {"limit": min(PAGE, limit)}
    while True:
        page = (yield from ask(Request("GET", JOBS, query))).json()
        rows = [job_row(item) for item in page["items"]]
        found += [row for row in rows if keep.keeps(row)]
        older = keep.since_ms is not None and bool(rows) and (rows[-1]["submitted_at_ms"] or 0) < keep.since_ms
        if page["next_cursor"] is None or len(found) >= limit or older:
            return found[:limit]
        query["cursor"] = page["next_cursor"]


def all_statuses() -> "Flow[list[JobStatus]]":
    """The newest status of every job that the caller may see."""
    return [status_of(item) for item in (yield from everything(JOBS, {"limit": PAGE}))]


def spec(job_id: str, after: str | None = None) -> "Flow[JobSpec | None]":
    """Returns the submitted spec of a job: its first submission is the one that counts."""
    try:
        found = yield from of_job_listing(job_id, "events", after, type="job.submitted", limit=PAGE)
    except UnknownJobError:
        return None
    from trainhouse.events import JobSpec

    known = [row["event"]["spec"] for row in found if row["type"] == SUBMITTED and row["event"]]
    return JobSpec.model_validate(known[0]) if known else None


def events(job_id: str, kind: str | None, after: str | None = None) -> Flow[list[Happening]]:
    """A job's story. Raises UnknownJobError."""
    params = {"limit": PAGE} | ({"type": kind} if kind else {})
    return [happening(row) for row in (yield from of_job_listing(job_id, "events", after, **params))]


def happening(row: Mapping[str, Any]) -> Happening:
    """A row of the story as the client tells it."""
    text = orjson.dumps(row["event"]).decode() if row["event"] is not None else ""
    place = (row["source_topic"], row["source_partition"], row["source_offset"])
    return Happening(row["time_ms"] or 0, row["type"], row["summary"], row["event_id"], row["node_id"], row["epoch"], text, *place)


def why(job_id: str, at_ms: int | None, after: str | None = None) -> "Flow[JobExplained | None]":
    """The scheduler's newest answer by then, of a job that waits then. Raises UnknownJobError."""
    from trainhouse.events.model.explanation import JobExplained

    if at_ms is None:
        if (yield from job(job_id, after))["state"] not in WAITING:
            return None
    elif not _waited(at_ms, (yield from of_job_listing(job_id, "timeline", after))):
        return None
    found = yield from explanation(job_id, at_ms, after)
    return None if found is None else JobExplained.model_validate(found)


def explanation(job_id: str, at_ms: int | None, after: str | None = None) -> Flow[Row | None]:
    """The newest answer by then as the scheduler published it, whether the job waits or not. Raises UnknownJobError."""
    for row in (yield from of_job_listing(job_id, "explain", after, limit=PAGE)):
        if row["event"] is not None and (at_ms is None or row["at_ms"] <= at_ms):
            found: Row = row["event"]
            return found
    return None


def _waited(then_ms: int, spans: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        span["kind"] == "state" and span["span"] == "PENDING" and span["began_at_ms"] <= then_ms < (span["ended_at_ms"] or then_ms + 1)
        for span in spans
    )


def curve(job_id: str, metric: str, points: int) -> Flow[list[Row]]:
    """Buckets of one metric. Raises UnknownJobError."""
    request = Request("GET", job_path(job_id, "curves"), {"metric": metric, "points": max(10, points)})
    (found,) = (yield from of_job(job_id, request)).json()["items"]
    return [dict(zip(CURVE, values, strict=True)) for values in zip(*(found[name] for name in CURVE), strict=True)]


def listing(path: str, **params: Any) -> Flow[list[Row]]:
    """All items of a listing, with times in milliseconds."""
    return [flat(item) for item in (yield from everything(path, params))]


def of_job_listing(job_id: str, part: str, after: str | None = None, **params: Any) -> Flow[list[Row]]:
    """All items of a listing of one job. Raises UnknownJobError."""
    try:
        return (yield from listing(job_path(job_id, part), **params, **_after(after)))
    except NotFoundError as error:
        raise UnknownJobError(job_id) from error


def checkpoints(job_id: str, after: str | None = None) -> Flow[list[Row]]:
    """Checkpoints of a job, oldest first. Raises UnknownJobError."""
    found = yield from of_job_listing(job_id, "checkpoints", after, limit=PAGE)
    return sorted(({"job_id": job_id} | row for row in found), key=lambda row: int(row["commit"]))


def nodes() -> Flow[list[Row]]:
    """Machines as they are now."""
    return sorted((yield from listing("/v1/nodes", limit=PAGE)), key=lambda row: (row["pool"], row["node_id"]))


def pools_in_full(pool: str | None) -> Flow[list[Row]]:
    """Pools with their devices and jobs, or one of them, put together from lists."""
    pools = [row for row in (yield from listing("/v1/pools", limit=PAGE)) if pool in (None, row["pool"])]
    devices = yield from listing("/v1/devices", **({"pool": pool} if pool else {}))
    return of_tables(pools, devices, (yield from jobs(JobFilter(pool=pool, states=ACTIVE), MAX_ACTIVE)))


def open_alerts() -> Flow[list[Row]]:
    """Alerts that are open, the gravest first."""
    found = yield from listing("/v1/alerts", state="OPEN", limit=PAGE)
    return sorted(found, key=lambda row: GRAVITY.index(row["severity"]) if row["severity"] in GRAVITY else len(GRAVITY))


def alert_causes() -> Flow[list[Row]]:
    """Open alerts by cause, the gravest first."""
    found = yield from listing("/v1/alerts/causes")
    return [row | {"alerts": [flat(alert) for alert in row["alerts"]]} for row in found]


def login_code() -> Flow[dict[str, Any]]:
    """A code that signs in one browser of this machine, once."""
    found: dict[str, Any] = (yield from ask(Request("POST", "/v1/login-codes"))).json()
    return found


def query(sql: str, format: str, values: Mapping[str, str | int] | None) -> Flow[bytes]:
    """An answer's bytes in a format of ClickHouse."""
    body = {"query": sql, "format": format, "parameters": {n: str(v) for n, v in (values or {}).items()}}
    try:
        return (yield from ask(Request("POST", "/v1/query", body=body))).content
    except ClientError as error:
        raise query_error(error) from error


def points(job_id: str, names: Sequence[str], after: str | None = None) -> Flow[list[bytes]]:
    """Every point of some metrics, as Arrow streams of one table. Raises UnknownJobError."""
    params: dict[str, Any] = {"metric": list(names)} | _after(after)
    found: list[bytes] = []
    while True:
        answer = yield from of_job(job_id, Request("GET", job_path(job_id, "points"), params))
        found.append(answer.content)
        cursor = answer.headers.get("x-next-cursor")
        if not cursor:
            return found
        params["cursor"] = cursor


def flat(item: Mapping[str, Any]) -> Row:
    """A row with its times (`…_at`, RFC 3339) as milliseconds (`…_ms`)."""
    row: Row = {}
    for name, value in item.items():
        if name in ("at", "time", "since", "waiting_since") or name.endswith("_at"):
            row[f"{name}_ms"] = at_ms(value)
        else:
            row[name] = value
    return row


def at_ms(text: str | None) -> int | None:
    """RFC 3339 as milliseconds since 1970."""
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1000)


def job_row(item: Mapping[str, Any]) -> Row:
    """A job of the gateway as the tables' own row."""
    row = flat(item)
    row["running_at_ms"] = row.pop("started_at_ms", None)
    return row


def status_of(item: Mapping[str, Any]) -> "JobStatus":
    """A job of the gateway as its status. Where its ranks are is not in it."""
    return status_of_row(job_row(item))


def _after(token: str | None) -> dict[str, str]:
    return {"after": token} if token else {}
