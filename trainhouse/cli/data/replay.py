"""`replay`: the journals, read again: every decision computed and compared, or the cluster as it was.

Holds: what `--at` prints is what the scheduler had folded by then, from the journal alone.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir

if TYPE_CHECKING:
    from trainhouse.scheduler.replay import ReplayReport


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("replay")(replay)


def replay(
    verify: Annotated[bool, typer.Option("--verify", help="Compute every decision again and compare, byte for byte.")] = False,
    at: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--at", metavar="TIME", help="The cluster as it was: 2026-05-01T12:00 (UTC), or -10m for ten minutes ago."),
    ] = None,
    topic: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--topic", help="Verify only this journal: trainhouse.decisions, .directory, .registry or .tuning."),
    ] = None,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Read the journals again: recompute every decision (exit code 1 where one differs), or show the cluster as it was.

    \b
    trainhouse replay --verify
    trainhouse replay --verify --topic trainhouse.decisions --json
    trainhouse replay --at -10m
    trainhouse replay --at 2026-05-01T12:00 --json | jq 'select(.kind == "queue")'
    """
    if verify == (at is not None):
        raise CliError("say what to do with the journals: `trainhouse replay --verify`, or `trainhouse replay --at TIME`", Exit.USAGE)
    if at is not None:
        _show(at, json=json)
    else:
        _verify(topic, json=json)


def _verify(topic: str | None, *, json: bool) -> None:
    from trainhouse.checkpointing.stores.topic_archive import ObjectArchive
    from trainhouse.cli.shared import output
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.stream.history import journal_replay

    output.logs_aside()
    machines = journal_replay.machines(KafkaSettings())
    if topic is not None and topic not in machines:
        raise CliError(f"{topic!r} is no journal; there are {', '.join(machines)}", Exit.USAGE)
    same = True
    for name in [topic] if topic else list(machines):
        report = journal_replay.verify_journal(KafkaSettings(), name, machines[name], ObjectArchive())
        same = same and report.same
        if json:
            output.json_lines([replay_row(name, report)])
            continue
        verdict = "the same, byte for byte" if report.same else f"{len(report.differences)} differences"
        sys.stdout.write(
            f"{name}: {report.records} records, {report.recomputed} recomputed, {report.folded_only} folded only, "
            f"{report.unreadable} with an input that cannot be read, {report.ignored} of owners that lost, {report.emptied} emptied, "
            f"{report.snapshots} snapshots checked, "
            f"{_suggestions(report)}"
            f"{report.decisions} decisions: {verdict}\n"
        )
        for line in (*map(str, report.differences), *report.not_recomputed):
            sys.stdout.write(f"  {line}\n")
    if not same:
        raise typer.Exit(Exit.FAILED)


def _suggestions(report: "ReplayReport") -> str:
    if not report.suggestions and not report.other_versions:
        return ""
    return f"{report.suggestions} suggestions computed again, {report.other_versions} of other versions of the samplers, "


def replay_row(name: str, report: "ReplayReport") -> dict[str, Any]:
    """A report as one object."""
    return {
        "topic": name,
        "same": report.same,
        "records": report.records,
        "recomputed": report.recomputed,
        "folded_only": report.folded_only,
        "ignored": report.ignored,
        "unreadable": report.unreadable,
        "not_recomputed": report.not_recomputed,
        "emptied": report.emptied,
        "decisions": report.decisions,
        "snapshots": report.snapshots,
        "suggestions": report.suggestions,
        "other_versions": report.other_versions,
        "differences": [
            {"partition": d.partition, "seq": d.seq, "field": d.field, "recorded": d.recorded, "recomputed": d.recomputed}
            for d in report.differences
        ],
    }


def _show(at: str, *, json: bool) -> None:
    import time

    from trainhouse.cli.data.snapshot_tables import print_cluster
    from trainhouse.cli.shared import output
    from trainhouse.client.kafka.present import schedule_at
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.state_rows import cluster
    from trainhouse.scheduler.time_travel import NoSuchMomentError

    output.logs_aside()
    at_ms = moment_of(at, time.time_ns() // 1_000_000)
    try:
        found = schedule_at(KafkaSettings(), at_ms)
    except NoSuchMomentError as error:
        raise too_early(at, error.first_ms) from error
    shown_ms = min(at_ms, found.last_ms)
    if found.whole and at_ms > found.last_ms:
        output.remark(f"the journal ends at {stamp(found.last_ms)}, before {stamp(at_ms)}: this is its end")
    kinds = cluster((f.state for f in found.partitions.values()), shown_ms)
    if json:
        seqs = {str(p): f.seq for p, f in sorted(found.partitions.items())}
        about = {"kind": "moment", "at_ms": shown_ms, "asked_ms": at_ms, "seqs": seqs}
        output.json_lines([about, *({"kind": kind} | row for kind, rows in kinds.items() for row in rows)])
        return
    sys.stdout.write(f"the cluster at {stamp(shown_ms)}\n")
    sys.stdout.flush()
    print_cluster(kinds, shown_ms)


def moment_of(text: str, now_ms: int) -> int:
    """`-10m`, `10m` (ago) or a moment in ISO 8601, as milliseconds. Raises CliError."""
    from trainhouse.cli.shared.filters import parse_time

    return parse_time(text.strip().removeprefix("-"), now_ms)


def too_early(at: str, first_ms: int | None) -> CliError:
    """The error for a moment before all records."""
    if first_ms is None:
        return CliError("the journal has no record yet: nothing was ever scheduled here", Exit.NOT_FOUND)
    return CliError(f"{at} is before the first record of the journal, which is of {stamp(first_ms)}; ask for a later time", Exit.NOT_FOUND)


def stamp(at_ms: int) -> str:
    """A moment to the millisecond, as `--at` takes it."""
    from trainhouse.events.wire.envelope import rfc3339

    return rfc3339(at_ms)
