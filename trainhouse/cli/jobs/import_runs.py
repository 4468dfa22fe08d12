"""`import tensorboard`: runs that were logged to files become tracked runs."""

import getpass
import time
from pathlib import Path
from typing import Annotated, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir
from trainhouse.events.model.default_project import DEFAULT_PROJECT

LOOK_S = 2.0


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    importing = typer.Typer(no_args_is_help=True, help="Import runs that were logged elsewhere.")
    importing.command("tensorboard")(tensorboard)
    importing.callback()(_group)
    app.add_typer(importing, name="import")


def _group() -> None:
    """Import runs that were logged elsewhere."""


def tensorboard(
    folder: Annotated[Path, typer.Argument(help="Folder with event files; each folder below it is a run of its own.", show_default=False)],
    name: Annotated[Optional[str], typer.Option("--name", help="Name of the run; default: the folder's.")] = None,  # noqa: UP045
    project: Annotated[str, typer.Option("--project", help="Its project, or PROJECT/EXPERIMENT.")] = DEFAULT_PROJECT,
    follow: Annotated[bool, typer.Option("--follow", help="Go on while the files grow, until Ctrl-C.")] = False,
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Import TensorBoard's event files as tracked runs: scalars as metrics, hyperparameters as parameters.

    Reading the same files again adds nothing; files that have grown add what is new. Needs a way to Kafka.

    \b
    trainhouse import tensorboard runs/gpt --project vision
    trainhouse import tensorboard runs --name sweep --project vision/sweep \\
        --follow
    """
    from trainhouse.client.tensorboard import TensorBoardImport, send_to
    from trainhouse.events.model.tracking import DEFAULT_EXPERIMENT
    from trainhouse.events.settings import KafkaSettings

    if not folder.is_dir():
        raise CliError(f"{folder} is no folder", Exit.NOT_FOUND)
    experiment = DEFAULT_EXPERIMENT if project == DEFAULT_PROJECT else project
    whole = folder.resolve()
    reading = TensorBoardImport(whole, experiment, name or whole.name, getpass.getuser(), send_to(KafkaSettings()))
    found = reading.read(ended=not follow)
    if not found.runs and not follow:
        raise CliError(f"{folder} holds no scalars of TensorBoard (files named *tfevents*)", Exit.NOT_FOUND)
    _show(sorted(found.runs), found.points, found.passed_over, json)
    try:
        while follow:
            time.sleep(LOOK_S)
            more = reading.read(ended=False)
            if more.points:
                _show(sorted(more.runs), more.points, more.passed_over, json)
    except KeyboardInterrupt:
        reading.read(ended=True)


def _show(runs: list[str], points: int, passed_over: int, json: bool) -> None:
    if json:
        import orjson

        typer.echo(orjson.dumps({"runs": runs, "points": points, "passed_over": passed_over}).decode())
        return
    more = f"; {passed_over} points have a step or time that cannot be kept" if passed_over else ""
    typer.echo(f"{points} points read{more}; runs: {', '.join(runs)}")
