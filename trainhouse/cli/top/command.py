"""`top`: a live view of jobs, nodes and queue."""

import sys

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("top")(top)


def top(data_dir: DataDir = None) -> None:
    """Show jobs, nodes and queue, live. Keys: / filters, s sorts, j and k move, Enter opens a job, Tab goes to the next table, q quits.

    \b
    trainhouse top
    """
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise CliError("top needs a terminal; `trainhouse status --watch` prints lines for anything else", Exit.USAGE)
    from trainhouse.cli.top.app import Top
    from trainhouse.client import TrainhouseClient

    Top(TrainhouseClient.from_settings()).run()
