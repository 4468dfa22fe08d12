"""`events JOB`: the whole story of a job, one line an event."""

import sys
from typing import Annotated, Any, Optional

import typer

from trainhouse.cli.options import DataDir, Json, Since, Until


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("events")(events)


def events(
    job: Annotated[str, typer.Argument(help="Job id.", show_default=False)],
    kind: Annotated[Optional[str], typer.Option("--type", help="Only types that contain this, such as `checkpoint`.")] = None,  # noqa: UP045
    log: Annotated[bool, typer.Option("--log", help="Read Kafka itself, not the tables: also each progress report, no delay.")] = False,
    since: Since = None,
    until: Until = None,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """The whole story of a job, one line an event, oldest first.

    \b
    trainhouse events gpt-1k7x3m9qp2f8d
    trainhouse events gpt-1k7x3m9qp2f8d --type checkpoint --since 1h
    trainhouse events gpt-1k7x3m9qp2f8d --log --json       the CloudEvents themselves
    """
    import time

    from trainhouse.cli.filters import parse_time
    from trainhouse.client import NotReachable, TrainhouseClient

    now_ms = time.time_ns() // 1_000_000
    begin = parse_time(since, now_ms) if since else None
    end = parse_time(until, now_ms) if until else None
    client = TrainhouseClient.from_settings()
    if not log:
        try:
            if _from_tables(client, job, kind, begin, end, json=json):
                return
        except NotReachable as error:
            from trainhouse.cli.output import remark

            remark(f"{error}; reading Kafka instead")
    _from_log(client, job, kind, begin, end, json=json)


def _from_tables(client: Any, job: str, kind: str | None, begin: int | None, end: int | None, *, json: bool) -> bool:
    """Prints the story as the tables have it; False when they have none."""
    from trainhouse.cli.output import json_lines

    rows = client.sql.table(tables_query(job, kind, begin, end)).dicts()
    for row in rows:
        if json:
            json_lines([row])
        else:
            sys.stdout.write(one_line(row["at_ms"], row["type"], row["summary"]) + "\n")
    return bool(rows)


def tables_query(job: str, kind: str | None, begin: int | None, end: int | None) -> str:
    """The query; pure."""
    from trainhouse.client.sql import literal

    where = [f"job_id = {literal(job)}"]
    if kind:
        where.append(f"position(type, {literal(kind)}) > 0")
    if begin is not None:
        where.append(f"time >= fromUnixTimestamp64Milli({begin})")
    if end is not None:
        where.append(f"time < fromUnixTimestamp64Milli({end})")
    return (
        "SELECT toUnixTimestamp64Milli(time) AS at_ms, type, summary, event_id, node_id, epoch, json, "
        "source_topic, source_partition, source_offset "
        f"FROM events WHERE {' AND '.join(where)} ORDER BY time, source_topic, source_partition, source_offset"
    )


def _from_log(client: Any, job: str, kind: str | None, begin: int | None, end: int | None, *, json: bool) -> None:
    from trainhouse.cli.jobs import unknown
    from trainhouse.client.story import story

    told = story(client.kafka, job, begin)
    if not told and begin is None:
        raise unknown(job, client.statuses())
    for each in told:
        if (kind is None or kind in type_of(each)) and (end is None or each.at_ms < end):
            sys.stdout.write((as_json(each) if json else line_of(each)) + "\n")


def type_of(told: Any) -> str:
    """The event's type without its prefix; `dead-letter` for what could not be read."""
    kind = getattr(told.what, "type", "trainhouse.dead-letter.v1")
    return str(kind).removeprefix("trainhouse.")


def as_json(told: Any) -> str:
    """The event as it lies on Kafka; a dead letter as its reason and place."""
    import dataclasses

    import orjson

    if hasattr(told.what, "event"):
        return str(told.raw.decode("utf-8", "replace"))
    return orjson.dumps({"type": "trainhouse.dead-letter.v1", **dataclasses.asdict(told.what)}).decode()


def line_of(told: Any) -> str:
    """One event as a line."""
    event = getattr(told.what, "event", None)
    text = f"{told.what.topic}-{told.what.partition}-{told.what.offset}: {told.what.reason}" if event is None else summary(event)
    return one_line(told.at_ms, type_of(told), text)


def one_line(at_ms: int, kind: str, text: str) -> str:
    """`10:03:07.123  job.admitted.v1        pool default …`: time in UTC, type, what it says."""
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    return f"{moment}  {kind.removeprefix('trainhouse.'):<28}{' '.join(text.split())}".rstrip()


def summary(event: Any) -> str:
    """What one event says, in one line."""
    from trainhouse.events import JobStatus
    from trainhouse.projections.rows.summary import summarize

    if isinstance(event, JobStatus):
        return f"{event.state}" + (f": {event.reason}" if event.reason else "")
    return summarize(event)
