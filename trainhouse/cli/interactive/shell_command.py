"""`trainhouse shell`: a terminal in a job of its own, or in one that runs."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Optional

import typer

from trainhouse.cli.shared import complete
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir

if TYPE_CHECKING:
    from trainhouse.client.gateway.backend import ByGateway

Name = Annotated[Optional[str], typer.Option("--name", help="Name of the job.")]  # noqa: UP045
Project = Annotated[Optional[str], typer.Option(help="Owner of data rights.")]  # noqa: UP045
Team = Annotated[Optional[str], typer.Option(help="Owner of quota.")]  # noqa: UP045
Pool = Annotated[Optional[str], typer.Option(help="Pool of nodes.")]  # noqa: UP045
Priority = Annotated[Optional[int], typer.Option(help="0 is the highest, 100 the lowest.")]  # noqa: UP045
Devices = Annotated[int, typer.Option("--devices", "--gpus", "-n", min=1, help="Devices, all on one node.")]
Device = Annotated[Optional[str], typer.Option(help="Device type: any, cpu, or a GPU's type.")]  # noqa: UP045
IdleLimit = Annotated[Optional[str], typer.Option(help="Time without use and work after which the job ends: 30m, 2h; default: 1h.")]  # noqa: UP045
MaxRunTime = Annotated[Optional[str], typer.Option(help="90s, 15m, 2h: then it ends, used or not.")]  # noqa: UP045
Env = Annotated[Optional[list[str]], typer.Option("--env", "-e", metavar="K=V", help="Environment; repeatable.")]  # noqa: UP045
Secret = Annotated[Optional[list[str]], typer.Option(metavar="NAME", help="A secret of the agent's as environment; repeatable.")]  # noqa: UP045
Interpreter = Annotated[Optional[str], typer.Option(help="Python that `python` means; default: the agent's.")]  # noqa: UP045
Code = Annotated[Optional[Path], typer.Option(help="Folder of which a copy is the working folder; default: an empty one.")]  # noqa: UP045
AttachTo = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--job", "-j", metavar="JOB", help="Attach to this job instead of starting one.", autocompletion=complete.jobs),
]
SIGNALLED: Final = 128


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("shell")(shell)


def shell(
    command: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="[-- COMMAND ...]", help="Program instead of a shell.", show_default=False),
    ] = None,
    job: AttachTo = None,
    devices: Devices = 1,
    device: Device = None,
    idle_limit: IdleLimit = None,
    max_run_time: MaxRunTime = None,
    name: Name = None,
    project: Project = None,
    team: Team = None,
    pool: Pool = None,
    priority: Priority = None,
    env: Env = None,
    secret: Secret = None,
    interpreter: Interpreter = None,
    code: Code = None,
    data_dir: DataDir = None,
) -> None:
    """Open a terminal in a job: one of its own on as many devices as asked, or one that runs. It exits with the program's code.

    \b
    trainhouse shell --gpus 1
    trainhouse shell --idle-limit 30m -- python -i train.py
    trainhouse shell --job shell-1k7x3m9qp2f8d                      attach again
    trainhouse shell --job shell-1k7x3m9qp2f8d -- nvidia-smi        a command beside the shell

    `~.` at the beginning of a line detaches, and the job goes on; `exit` ends shell and job. Without use and work it ends by itself.
    """
    from trainhouse.cli.interactive import sessions

    way = sessions.gateway()
    if job is None:
        wanted = sessions.Wanted(
            kind="shell",
            idle_limit=idle_limit,
            devices=devices,
            device=device,
            name=name,
            project=project,
            team=team,
            pool=pool,
            priority=priority,
            max_run_time=max_run_time,
            interpreter=interpreter,
            env=env or (),
            secrets=secret or (),
        )
        raise typer.Exit(attached(way, sessions.submitted(way, wanted, code), command or [], beside=False))
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
