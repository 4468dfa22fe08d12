"""`report`: what happened to a cluster in a while, for people to read; from SQL alone.

Holds: every figure comes from ClickHouse; the page that is written asks nothing of the network.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, Pool

if TYPE_CHECKING:
    from trainhouse.projections.report.document import Document
    from trainhouse.projections.report.model import Compared
    from trainhouse.projections.report.period import Period

NAME = "health"


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(
        no_args_is_help=True, help="Write reports on a cluster; list, show and save those of projects; share one run by a link."
    )
    group.command("health")(health)
    app.add_typer(group, name="report")


def health(
    since: Annotated[str, typer.Option("--since", help="From then on: 36h, 7d, or 2026-05-01T12:00 (UTC).")] = "7d",
    until: Annotated[Optional[str], typer.Option("--until", help="Before then; default: now.")] = None,  # noqa: UP045
    pool: Pool = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", help="Folder for health.html (one file, plots inside) and health.md with its plots; default: Markdown here."),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Report failures, MTBF, MTTR, goodput, wasted GPU-hours, worst nodes, checkpoints and alerts, against the period before.

    \b
    trainhouse report health
    trainhouse report health --since 7d --pool h100 --out weekly/
    trainhouse report health --since 2026-05-04 --until 2026-05-11 --out weekly/
    """
    import time

    from trainhouse.client.quick.quick_reads import sql_of_settings
    from trainhouse.projections.report.document import document
    from trainhouse.projections.report.loader import gather
    from trainhouse.projections.report.markdown import markdown

    endpoint = sql_of_settings()
    now_ms = time.time_ns() // 1_000_000

    def ask(sql: str, values: Any) -> list[dict[str, Any]]:
        return endpoint.table(sql, values).dicts()

    found = gather(ask, period_of(since, until, pool, now_ms), now_ms)
    rendered = document(found)
    if out is None:
        sys.stdout.write(markdown(rendered))
        return
    try:
        paths = write(out, found, rendered)
    except OSError as error:
        raise CliError(f"{error.filename or out}: {error.strerror or error}", Exit.NOT_FOUND) from error
    sys.stderr.write(f"wrote {', '.join(map(str, paths))}\n")


def period_of(since: str, until: str | None, pool: str | None, now_ms: int) -> "Period":
    """The period that was asked for; nothing after now. Raises CliError."""
    from trainhouse.cli.shared.filters import parse_time
    from trainhouse.projections.report.period import Period

    try:
        until_ms = min(now_ms, parse_time(until, now_ms)) if until else now_ms
        return Period(parse_time(since, now_ms), until_ms, pool)
    except ValueError as error:
        raise CliError(str(error), Exit.USAGE) from error


def write(folder: Path, found: "Compared", rendered: "Document") -> list[Path]:
    """Writes both files, and a file a plot for the Markdown; without matplotlib, without plots. Raises OSError."""
    from trainhouse.cli.shared.output import remark
    from trainhouse.projections.report import drawing
    from trainhouse.projections.report.markdown import markdown
    from trainhouse.projections.report.page import page
    from trainhouse.projections.report.plots import plots

    folder.mkdir(parents=True, exist_ok=True)
    try:
        drawn = plots(found.now)
    except drawing.PlotsMissingError as error:
        remark(f"written without plots: {error}")
        drawn = {}
    texts = {f"{NAME}.html": page(rendered, drawn)}
    texts[f"{NAME}.md"] = markdown(rendered, {name: f"{NAME}_{name}.svg" for name in drawn})
    texts |= {f"{NAME}_{name}.svg": drawing.alone(svg) for name, svg in drawn.items()}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]
