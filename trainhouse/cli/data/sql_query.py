"""`sql` and `schemas`: the platform's data and its contract."""

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, Json


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("sql")(sql)
    app.command("schemas")(schemas)


def sql(
    query: Annotated[str, typer.Argument(help="ClickHouse SQL; `-` reads it from standard input.", show_default=False)],
    format: Annotated[Optional[str], typer.Option("--format", help="A ClickHouse format: CSVWithNames, Pretty, Parquet …")] = None,  # noqa: UP045
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Run a read-only query in ClickHouse's SQL.

    \b
    trainhouse sql "SHOW TABLES"
    trainhouse sql "SELECT job_id, state, loss FROM jobs
        ORDER BY submitted_at DESC LIMIT 5"
    trainhouse sql --format CSVWithNames "SELECT step, value FROM step_metrics
        WHERE metric = 'loss'" > loss.csv
    """
    from trainhouse.client.quick.quick_reads import sql_of_settings

    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise CliError("the query is empty", Exit.USAGE)
    endpoint = sql_of_settings()
    if format or json:
        sys.stdout.buffer.write(endpoint.raw(text, format or "JSONEachRow"))
        sys.stdout.buffer.flush()
        return
    from trainhouse.cli.shared import output

    found = endpoint.table(text)
    numbers = [c for n, c in enumerate(found.columns) if found.rows and isinstance(found.rows[0][n], int | float)]
    output.table(found.columns, found.rows, right=numbers, drop=())
    output.remark(f"{len(found.rows)} row{'' if len(found.rows) == 1 else 's'}")


def schemas(
    out: Annotated[Optional[Path], typer.Option("--out", help="Folder for one file a type and asyncapi.json.")] = None,  # noqa: UP045
    name: Annotated[Optional[str], typer.Argument(help="Only this event type.", show_default=False)] = None,  # noqa: UP045
) -> None:
    """Print or write the JSON Schemas of all events, and an AsyncAPI 3 document of all topics.

    \b
    trainhouse schemas trainhouse.job.submitted.v1
    trainhouse schemas --out contract/
    """
    from trainhouse.events import event_class
    from trainhouse.events.wire import schemas as contract

    if name is not None:
        document = contract.json_schema(event_class(name))
        sys.stdout.write(contract.dump(document).decode())
        return
    if out is not None:
        paths = contract.write(out)
        sys.stderr.write(f"wrote {len(paths)} files into {out}\n")
        return
    sys.stdout.write(contract.dump({"asyncapi": contract.asyncapi(), "schemas": contract.json_schemas()}).decode())
