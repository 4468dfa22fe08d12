"""`events JOB`: the whole story of a job, one line an event."""

import sys
from typing import Annotated, Any, Optional

import typer

from trainhouse.cli.options import DataDir, Json, Since


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("events")(events)


def events(
    job: Annotated[str, typer.Argument(help="Job id.", show_default=False)],
    kind: Annotated[Optional[str], typer.Option("--type", help="Only types that contain this, such as `checkpoint`.")] = None,  # noqa: UP045
    everything: Annotated[bool, typer.Option("--all", help="Also each progress report and each status.")] = False,
    since: Since = None,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """The whole story of a job, one line an event, oldest first.

    trainhouse events gpt-1k7x3m9qp2f8d

    trainhouse events gpt-1k7x3m9qp2f8d --type checkpoint

    trainhouse events gpt-1k7x3m9qp2f8d --all --json       the CloudEvents themselves
    """
    import time

    from trainhouse.cli.filters import parse_time
    from trainhouse.cli.jobs import unknown
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.story import story

    client = TrainhouseClient.from_settings()
    told = story(client.kafka, job, parse_time(since, time.time_ns() // 1_000_000) if since else None)
    if not told and not since:
        raise unknown(job, client.statuses())
    for each in told if everything else brief(told):
        if kind is None or kind in type_of(each):
            sys.stdout.write((as_json(each) if json else line_of(each)) + "\n")


def brief(told: list[Any]) -> list[Any]:
    """Without repeated states, and of progress only the first and last report of each attempt."""
    from trainhouse.client.story import state_changes
    from trainhouse.events import ProgressReported

    ends: dict[int, tuple[int, int]] = {}
    for number, each in enumerate(told):
        event = getattr(each.what, "event", None)
        if isinstance(event, ProgressReported):
            ends[event.attempt] = (ends.get(event.attempt, (number, number))[0], number)
    kept = {number for pair in ends.values() for number in pair}
    shown = [t for n, t in enumerate(told) if n in kept or not isinstance(getattr(t.what, "event", None), ProgressReported)]
    return list(state_changes(shown))


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
    """`10:03:07.123  job.admitted.v1        pool default …`: time in UTC, type, what it says."""
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(told.at_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    event = getattr(told.what, "event", None)
    text = f"{told.what.topic}-{told.what.partition}-{told.what.offset}: {told.what.reason}" if event is None else summary(event)
    return f"{moment}  {type_of(told):<28}{text}".rstrip()


def summary(event: Any) -> str:
    """What one event says, in one line: its fields, most telling first, without the job's id and without whole specs."""
    from trainhouse.events import GangAllocated, JobAdmitted, JobStatus, JobSubmitted

    if isinstance(event, JobSubmitted | JobAdmitted):
        spec = event.spec
        return f"{spec.name} by {spec.user}, pool {spec.pool}, {spec.gang.ranks} ranks: {' '.join(spec.runtime.command)}"
    if isinstance(event, GangAllocated):
        nodes = ", ".join(f"{p.node_id}: ranks {p.ranks.start}–{p.ranks.stop - 1}" for p in event.placements)
        return f"attempt {event.attempt} (epoch {event.epoch}) on {nodes}"
    if isinstance(event, JobStatus):
        return f"{event.state}" + (f": {event.reason}" if event.reason else "")
    skipped = {"job_id", "pool", "boot_id", "node_ids", "request_id", "expires_at_ms", "deadline_ms"}
    parts = []
    for name, value in event.model_dump(mode="json", exclude_defaults=True).items():
        if name in skipped or name.endswith("at_ms") or value in (None, "", [], {}):
            continue
        text = f"{value:.5g}" if isinstance(value, float) else str(value)
        parts.append(f"{name} {' '.join(text.split())[:400]}")
    return ", ".join(parts)
