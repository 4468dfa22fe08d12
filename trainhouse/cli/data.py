"""`sql`, `replay` and `schemas`: the platform's data, its journal and its contract."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.exits import CliError, Exit
from trainhouse.cli.options import DataDir, Json

if TYPE_CHECKING:
    from trainhouse.scheduler.replay import ReplayReport


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("sql")(sql)
    app.command("replay")(replay)
    app.command("schemas")(schemas)


def sql(
    query: Annotated[str, typer.Argument(help="ClickHouse SQL; `-` reads it from standard input.", show_default=False)],
    format: Annotated[Optional[str], typer.Option("--format", help="A ClickHouse format: CSVWithNames, Pretty, Parquet …")] = None,  # noqa: UP045
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Any question, read-only, in ClickHouse's SQL.

    \b
    trainhouse sql "SHOW TABLES"
    trainhouse sql "SELECT job_id, state, loss FROM jobs ORDER BY submitted_at DESC LIMIT 5"
    trainhouse sql --format CSVWithNames "SELECT step, value FROM step_metrics WHERE metric = 'loss'" > loss.csv
    """
    from trainhouse.client.wiring import sql_of_settings

    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise CliError("the query is empty", Exit.USAGE)
    endpoint = sql_of_settings()
    if format or json:
        sys.stdout.buffer.write(endpoint.raw(text, format or "JSONEachRow"))
        sys.stdout.buffer.flush()
        return
    from trainhouse.cli import output

    found = endpoint.table(text)
    numbers = [c for n, c in enumerate(found.columns) if found.rows and isinstance(found.rows[0][n], int | float)]
    output.table(found.columns, found.rows, right=numbers)
    output.remark(f"{len(found.rows)} row{'' if len(found.rows) == 1 else 's'}")


def schemas(
    out: Annotated[Optional[Path], typer.Option("--out", help="Folder for one file a type and asyncapi.json.")] = None,  # noqa: UP045
    name: Annotated[Optional[str], typer.Argument(help="Only this event type.", show_default=False)] = None,  # noqa: UP045
) -> None:
    """The contract: JSON Schemas of all events, and an AsyncAPI 3 document of all topics.

    \b
    trainhouse schemas trainhouse.job.submitted.v1
    trainhouse schemas --out contract/
    """
    from trainhouse.events import event_class
    from trainhouse.events import schemas as contract

    if name is not None:
        document = contract.json_schema(event_class(name))
        sys.stdout.write(contract.dump(document).decode())
        return
    if out is not None:
        paths = contract.write(out)
        sys.stderr.write(f"wrote {len(paths)} files into {out}\n")
        return
    sys.stdout.write(contract.dump({"asyncapi": contract.asyncapi(), "schemas": contract.json_schemas()}).decode())


def replay(
    verify: Annotated[bool, typer.Option("--verify", help="Compute every decision again and compare, byte for byte.")] = False,
    topic: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--topic", help="Only this journal: trainhouse.decisions or trainhouse.directory."),
    ] = None,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Reads the journals from their beginnings and recomputes every decision. Exits with 1 where one differs.

    \b
    trainhouse replay --verify
    trainhouse replay --verify --topic trainhouse.decisions --json
    """
    from trainhouse.cli import output
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.stream import replay_journal

    if not verify:
        raise CliError("say what to do with the journals: `trainhouse replay --verify`", Exit.USAGE)
    machines = replay_journal.machines(KafkaSettings())
    if topic is not None and topic not in machines:
        raise CliError(f"{topic!r} is no journal; there are {', '.join(machines)}", Exit.USAGE)
    same = True
    for name in [topic] if topic else list(machines):
        report = replay_journal.verify_journal(KafkaSettings(), name, machines[name])
        same = same and report.same
        if json:
            output.json_lines([replay_row(name, report)])
            continue
        verdict = "the same, byte for byte" if report.same else f"{len(report.differences)} differences"
        sys.stdout.write(
            f"{name}: {report.records} records, {report.recomputed} recomputed, {report.folded_only} folded only, "
            f"{report.ignored} of owners that lost, {report.snapshots} snapshots checked, {report.decisions} decisions: {verdict}\n"
        )
        for difference in report.differences:
            sys.stdout.write(f"  {difference}\n")
    if not same:
        raise typer.Exit(Exit.FAILED)


def replay_row(name: str, report: "ReplayReport") -> dict[str, Any]:
    """A report as one object."""
    return {
        "topic": name,
        "same": report.same,
        "records": report.records,
        "recomputed": report.recomputed,
        "folded_only": report.folded_only,
        "ignored": report.ignored,
        "decisions": report.decisions,
        "snapshots": report.snapshots,
        "differences": [
            {"partition": d.partition, "seq": d.seq, "field": d.field, "recorded": d.recorded, "recomputed": d.recomputed}
            for d in report.differences
        ],
    }
