"""`trainhouse shell`: a terminal in a job of its own, or in one that runs."""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Final, Optional

import typer

from trainhouse.cli.interactive.session_options import AttachTo, SessionOptions, with_session_options
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir

if TYPE_CHECKING:
    from trainhouse.client.gateway.backend import ByGateway

SIGNALLED: Final = 128


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("shell")(shell)


@with_session_options("shell")
def shell(
    session: SessionOptions,
    command: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="[-- COMMAND ...]", help="Program instead of a shell.", show_default=False),
    ] = None,
    job: AttachTo = None,
    data_dir: DataDir = None,
) -> None:
    """Open a terminal in a job: one of its own on as many devices as asked, or one that runs. It exits with the program's code.

    \b
    trainhouse shell --gpus 1
    trainhouse shell --idle-limit 30m -- python -i train.py
    trainhouse shell --job shell-1k7x3m9qp2f8d                      attach again
    trainhouse shell --job shell-1k7x3m9qp2f8d -- nvidia-smi
        a command beside the shell

    `~.` at the beginning of a line detaches, and the job goes on; `exit` ends shell and job. Without use and work it ends by itself.
    """
    from trainhouse.cli.interactive import sessions

    way = sessions.gateway()
    if job is None:
        raise typer.Exit(attached(way, sessions.submitted(way, session.wanted, session.code), command or [], beside=False))
    raise typer.Exit(attached(way, job, command or [], beside=bool(command)))


def attached(way: "ByGateway", job: str, command: list[str], *, beside: bool) -> int:
    """Joins this terminal with one of a job; returns the code to exit with. Blocks. Raises CliError, ClientError."""
    from trainhouse.cli.interactive import local_terminal
    from trainhouse.cli.shared.output import remark
    from trainhouse.client.gateway.tunnels import TunnelLostError, opened

    rows, columns = local_terminal.size()
    first = {"kind": "terminal", "rows": rows, "columns": columns, "term": os.environ.get("TERM", ""), "command": command, "beside": beside}
    stream = opened(way, job, first)
    if sys.stdin.isatty():
        remark(f"in {job}; ~. at the beginning of a line detaches")
    try:
        ended = local_terminal.run(stream)
    except TunnelLostError as error:
        raise CliError(f"{error}: trainhouse shell --job {job}", Exit.UNAVAILABLE) from error
    finally:
        stream.close()
    if ended.code is not None:
        return ended.code if ended.code >= 0 else SIGNALLED - ended.code
    if ended.is_detached:
        sys.stderr.write("\r\n")
        remark(f"detached; {job} goes on: attach again with `trainhouse shell --job {job}`, end it with `trainhouse cancel {job}`")
        return Exit.OK
    raise CliError(f"{job} closed the connection; see `trainhouse status {job}`", Exit.UNAVAILABLE)
