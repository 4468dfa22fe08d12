"""`events JOB`: all events of a job, one line an event."""

import sys
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.shared.options import DataDir, JobArgument, Json, Since, Until

if TYPE_CHECKING:
    from trainhouse.client import Happening


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("events")(events)


def events(
    job: JobArgument,
    kind: Annotated[Optional[str], typer.Option("--type", help="Only types that contain this, such as `checkpoint`.")] = None,  # noqa: UP045
    log: Annotated[
        bool, typer.Option("--log", help="Read Kafka itself, not the tables: also an hour's progress reports, no delay.")
    ] = False,
    since: Since = None,
    until: Until = None,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """List all events of a job, one line an event, oldest first.

    \b
    trainhouse events gpt-1k7x3m9qp2f8d
    trainhouse events gpt-1k7x3m9qp2f8d --type checkpoint --since 1h
    trainhouse events gpt-1k7x3m9qp2f8d --log --json       the CloudEvents themselves
    """
    import time

    from trainhouse.cli.shared.filters import parse_time
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.kafka.job_events import happenings

    now_ms = time.time_ns() // 1_000_000
    begin = parse_time(since, now_ms) if since else None
    end = parse_time(until, now_ms) if until else None
    client = TrainhouseClient.from_settings()
    listed = happenings(client.kafka, job, kind, begin, end) if log else client.events(job, kind=kind, since_ms=begin, until_ms=end)
    if not listed and kind is None and begin is None and end is None:
        from trainhouse.cli.jobs.job_status import find

        find(client, job)
    for each in listed:
        sys.stdout.write((as_json(each, whole=log) if json else one_line(each.at_ms, each.type, each.summary)) + "\n")


def as_json(event: "Happening", *, whole: bool) -> str:
    """An event as one object a line; `whole`: as it lies on Kafka."""
    import dataclasses

    import orjson

    return event.json if whole else orjson.dumps(dataclasses.asdict(event)).decode()


def one_line(at_ms: int, kind: str, text: str) -> str:
    """`10:03:07.123  job.admitted.v1             pool default …`: time in UTC, type, what it says."""
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    return f"{moment}  {kind.removeprefix('trainhouse.'):<28}  {' '.join(text.split())}".rstrip()
