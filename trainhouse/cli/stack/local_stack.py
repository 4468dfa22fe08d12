"""`trainhouse up`, `down`, `ps`, `env`: the embedded stack from the command line.

Holds: what a program reads goes to standard output; what `up` tells goes there too, a line for each part.
Never: decides anything; `trainhouse.deploy.local.stack` does.
"""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.shared.options import StackDir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainhouse.deploy.local.layout import StackPorts
    from trainhouse.deploy.local.stack_state import PartRow

PANEL = "The stack on this machine"


def register(app: typer.Typer) -> None:
    """Adds the commands of the stack."""
    for command in (up, down, ps, env):
        app.command(rich_help_panel=PANEL)(command)


def up(
    data_dir: StackDir = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when everything answers; else run until Ctrl-C.")] = False,
    slots: Annotated[int | None, typer.Option("--slots", min=1, max=1024, help="Ranks that this machine runs at once; default 2.")] = None,
    ports: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--ports", help="`auto`: free ones; or a number: consecutive ones from there. Default: as before, at first 19090."),
    ] = None,
    tls: Annotated[
        Optional[bool],  # noqa: UP045
        typer.Option(
            "--tls/--no-tls", help="Serve pages and API by https, by an authority of this stack. Default: as before, at first not."
        ),
    ] = None,
) -> None:
    """Start Kafka, the object store, ClickHouse, the control plane and a node agent, and wait until everything answers.

    What was there before goes on where it was. All of it listens on this machine's loopback only.
    """
    from trainhouse.deploy.local import stack, stack_state
    from trainhouse.deploy.local.errors import StackError

    root = root_of(data_dir)
    supervisor = stack.up(root, slots=slots, ports=_ports(ports), tls=tls, attached=not detach, say=_say)
    for warning in stack_state.isolation_warnings(root):
        _say(f"warning: {warning}")
    _say(f"the stack is up on {root}: `trainhouse ps` shows it, `trainhouse down` stops it")
    if detach:
        return
    _say("Ctrl-C stops it")
    try:
        if supervisor.wait() != 0:
            raise StackError(
                f"the supervisor ended with status {supervisor.returncode}; see {root}/log/supervisor.log, then `trainhouse up` again"
            )
    except KeyboardInterrupt:
        _say("stopping; the data stays")
        stack.down(root)


def down(data_dir: StackDir = None) -> None:
    """Stop everything; the data stays, and `up` goes on where it was."""
    from trainhouse.deploy.local import stack

    root = root_of(data_dir)
    stack.down(root)
    _say(f"stopped; the data stays in {root}")


def ps(
    data_dir: StackDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON for programs: one object a line.")] = False,
) -> None:
    """Show every part: process, state, how often it died and was started again, addresses, log file.

    `expire` and `sweep` run once a day: between two runs they are EXITED, or STOPPED before the first; a warning says where the
    last run failed.
    """
    from trainhouse.cli.shared import output
    from trainhouse.deploy.local import stack_state
    from trainhouse.deploy.local.supervision.stack_parts import NAMES, PASSES

    root = root_of(data_dir)
    rows = stack_state.ps(root, (*NAMES, *PASSES))
    found = (stack_state.warnings, stack_state.halted_partitions, stack_state.failed_passes, stack_state.isolation_warnings)
    for warning in (each for ask in found for each in ask(root)):
        output.remark(f"warning: {warning}")
    if as_json:
        output.json_lines(asdict(row) for row in rows)
        return
    show_parts(rows)


def show_parts(rows: "Sequence[PartRow]") -> None:
    """Prints the parts of a stack as a table for a person; the log file of each is there at any width."""
    from trainhouse.cli.shared import output

    columns = ("name", "pid", "state", "restarts", "addresses", "log")
    shown = ((row.name, row.pid or None, row.state, row.restarts, " ".join(row.addresses), _nearest(row.log)) for row in rows)
    output.table(columns, shown, right=("pid", "restarts"), drop=("pid", "addresses", "restarts"))


def _nearest(path: str) -> str:
    """A path as it is written from the working folder, where that is shorter."""
    return min(path, os.path.relpath(path), key=len)


def env(
    data_dir: StackDir = None,
    part: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--for", metavar="PART", help="With the account of a part (agent, scheduler, exporter …) instead of yours."),
    ] = None,
) -> None:
    """Print the endpoints and keys as shell exports: `eval "$(trainhouse env)"`."""
    from trainhouse.deploy.local import stack_state
    from trainhouse.events.security.grants import PRINCIPALS

    if part is not None and part not in PRINCIPALS:
        raise typer.BadParameter(f"{part!r} is no part; there are {', '.join(PRINCIPALS)}", param_hint="--for")
    sys.stdout.write(stack_state.env(root_of(data_dir), part))


def root_of(given: Path | None) -> Path:
    """The folder of the stack that a command is about."""
    from trainhouse.cli.shared import settings_lookup

    return settings_lookup.find_data_dir(given, os.environ, Path.cwd())


def _ports(given: str | None) -> "StackPorts | None":
    from trainhouse.deploy.local.layout import COUNT, StackPorts

    if given is None:
        return None
    if given == "auto":
        return StackPorts.free()
    if not given.isdecimal() or not 1024 <= int(given) <= 65_535 - COUNT:
        raise typer.BadParameter(f"{given!r} is neither `auto` nor a number from 1024 to {65_535 - COUNT}", param_hint="--ports")
    return StackPorts.from_base(int(given))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
