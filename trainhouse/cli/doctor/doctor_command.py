"""`trainhouse doctor`: what keeps jobs from running, on this machine, in this deployment, in this spec.

Holds: each finding is a sentence, and for a fault has what to do; nothing is changed.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.shared.options import Json, StackDir

if TYPE_CHECKING:
    from trainhouse.cli.doctor.findings import Finding


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("doctor")(doctor)


def doctor(
    spec: Annotated[Optional[Path], typer.Argument(metavar="[SPEC.yaml]", help="Also check this spec.", show_default=False)] = None,  # noqa: UP045
    json: Json = False,
    data_dir: StackDir = None,
) -> None:
    """Check this machine, the deployment that settings name, and a spec; exit code 1 where something keeps jobs from running.

    \b
    trainhouse doctor
    trainhouse doctor trainhouse.yaml
    trainhouse doctor --json | jq 'select(.verdict != "OK")'
    """
    from trainhouse.cli.doctor.findings import exit_of
    from trainhouse.cli.shared.output import json_lines

    found = []
    for each in _findings(spec, data_dir):
        found.append(each)
        if json:
            json_lines([asdict(each)])
        else:
            sys.stdout.write(f"{each.verdict:<8} {each.part} {each.subject}: {each.text}\n")
        sys.stdout.flush()
    raise typer.Exit(exit_of(found))


def _findings(spec: Path | None, data_dir: Path | None) -> "Iterator[Finding]":
    from trainhouse.cli.doctor import deployment_checks
    from trainhouse.cli.doctor.findings import fault, warning
    from trainhouse.cli.doctor.machine_checks import machine
    from trainhouse.cli.shared import settings_lookup
    from trainhouse.cli.shared.exit_codes import CliError

    problem, missing = "", data_dir is None
    try:
        settings_lookup.use(data_dir)
    except CliError as error:
        problem = str(error)
    root = settings_lookup.find_data_dir(data_dir, os.environ, Path.cwd())
    yield from machine(root, stack_is_up=not problem)
    if problem:
        yield (warning if missing else fault)("deployment", "settings", problem)
    else:
        yield from deployment_checks.deployment()
    if spec is not None:
        import getpass

        yield from deployment_checks.spec(spec, getpass.getuser())
