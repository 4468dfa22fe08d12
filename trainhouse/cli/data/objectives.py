"""`slo`: the platform's objectives, how they stand, what is left of their budgets."""

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, Json

COLUMNS = ("objective", "target", "actual", "figure", "budget left", "burn 5m-1h", "burn 6h-3d", "met")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("slo")(slo)


def slo(
    targets: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--targets", help="A file of your own objectives, on top of the shipped ones.", envvar="TRAINHOUSE_SLO_TARGETS"),
    ] = None,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Show the platform's objectives: target, what was reached, what is left of the error budget, how fast it burns.

    \b
    trainhouse slo
    trainhouse slo --json | jq 'select(.met == false)'
    """
    import time

    from trainhouse.cli.shared import output
    from trainhouse.client.errors import QueryError
    from trainhouse.client.quick.quick_reads import sql_of_settings
    from trainhouse.projections.slo.attainment import as_row, standings
    from trainhouse.projections.slo.targets import load

    endpoint, now_ms = sql_of_settings(), time.time_ns() // 1_000_000
    try:
        chosen = load(targets)
    except (OSError, ValueError) as error:
        raise CliError(f"the objectives of {targets} cannot be read: {error}", Exit.USAGE) from error
    try:
        rows = [as_row(one) for one in standings(chosen, lambda sql, values: endpoint.table(sql, values).dicts(), now_ms)]
    except QueryError as error:
        raise CliError(f"a question about an objective is refused: {error}", Exit.FAILED) from error
    if json:
        output.json_lines(rows)
        return
    output.table(COLUMNS, (shown(row) for row in rows), right=COLUMNS[1:-1])
    if rows and rows[0]["too_young"]:
        age_s = rows[0]["age_s"]
        age = "has decided nothing yet" if age_s is None else f"has decided for {output.duration(age_s)}"
        output.remark(f"this stack {age}: a burn rate is known once the stack is as old as the longer of its two spans")


def shown(row: dict[str, Any]) -> tuple[str | None, ...]:
    """A row for a person; what is not known is empty."""
    figure = None
    if row["figure_value"] is not None:
        limit = "" if row["figure_limit"] is None else f" of {row['figure_limit']:g}"
        figure = f"{row['figure']} {row['figure_value']:.3g}{limit} {row['unit']}"
    met = {None: None, True: "yes", False: "NO"}[row["met"]]
    rates = ("too young" if span in row["too_young"] else row["burn_rates"][span] for span in ("5m-1h", "6h-3d"))
    return (
        row["title"],
        f"{100 * row['objective']:.5g} %",
        None if row["actual"] is None else f"{100 * row['actual']:.5g} %",
        figure,
        None if row["budget_left"] is None else f"{100 * row['budget_left']:.0f} %",
        *(rate if rate is None or isinstance(rate, str) else f"{rate:.1f}" for rate in rates),
        met,
    )
