"""`events JOB`: all events of a job, one line an event."""

import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Final, Optional

import typer

from trainhouse.cli.shared.options import DataDir, JobArgument, Json, Since, Until

PREFIX: Final = "trainhouse."
INDENT: Final = " " * 14
LEAST_TEXT_CHARS: Final = 24

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    trainhouse events gpt-1k7x3m9qp2f8d --log --json  the CloudEvents themselves
    """
    import time

    from trainhouse.cli.shared.filters import parse_time

    now_ms = time.time_ns() // 1_000_000
    begin = parse_time(since, now_ms) if since else None
    end = parse_time(until, now_ms) if until else None
    listed = _listed(job, kind, begin, end, log=log)
    if json:
        sys.stdout.write("".join(as_json(each, whole=log) + "\n" for each in listed))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.write("".join(f"{line}\n" for line in lines([(each.at_ms, each.type, each.summary) for each in listed], width)))


def _listed(job: str, kind: str | None, begin: int | None, end: int | None, *, log: bool) -> "list[Happening]":
    """The events: by quick reads, else by the client. Blocks. Raises CliError for an unknown job."""
    from trainhouse.client.errors import UnknownJobError
    from trainhouse.client.quick.quick_reads import quickly

    try:
        quick = None if log else quickly(lambda reads: reads.events(job, kind, begin, end))
    except UnknownJobError:
        quick = None
    if quick:
        return quick
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.kafka.job_events import happenings

    client = TrainhouseClient.from_settings()
    found = happenings(client.kafka, job, kind, begin, end) if log else client.events(job, kind=kind, since_ms=begin, until_ms=end)
    if not found and kind is None and begin is None and end is None:
        from trainhouse.cli.jobs.job_status import find

        find(client, job)
    return list(found)


def as_json(event: "Happening", *, whole: bool) -> str:
    """An event as one object a line; `whole`: as it lies on Kafka."""
    import dataclasses

    import orjson

    return event.json if whole else orjson.dumps(dataclasses.asdict(event)).decode()


def lines(listed: "Sequence[tuple[int, str, str]]", width: int | None) -> list[str]:
    """`10:03:07.123  job.admitted.v1  pool default …`: time in UTC, type, text. Pure.

    `listed`: (milliseconds, type, text). In `width` characters a text goes on below itself, between words; None: as long as it is.
    """
    import textwrap
    from datetime import UTC, datetime

    from trainhouse.cli.shared.output import printable

    kinds = max((len(kind.removeprefix(PREFIX)) for _, kind, _ in listed), default=0)
    found = []
    for at_ms, kind, text in listed:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
        start, words = f"{moment}  {kind.removeprefix(PREFIX):<{kinds}}  ", printable(" ".join(text.split()))
        room = None if width is None else width - len(start)
        if room is None or len(words) <= room:
            found.append((start + words).rstrip())
        elif room >= LEAST_TEXT_CHARS:
            parts = textwrap.wrap(words, room, break_long_words=False, break_on_hyphens=False)
            found += [(start if n == 0 else " " * len(start)) + part for n, part in enumerate(parts)]
        else:
            found.append(start.rstrip())
            found += textwrap.wrap(
                words, width or 80, initial_indent=INDENT, subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False
            )
    return found
