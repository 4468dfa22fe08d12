"""`trainhouse models report`: the report of a version's evaluation, beside the results of other versions, from their files.

Holds: it reads the files alone that are named, and needs no stack; a result of another version than the one that is named is refused.
"""

from pathlib import Path
from typing import Annotated, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit

GROUP = "models"


def register(app: typer.Typer) -> None:
    """Adds the command to the group of models, which is there already."""
    group = next(each.typer_instance for each in app.registered_groups if each.name == GROUP)
    assert group is not None
    group.command("report")(report)


def report(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model, for the heading.", show_default=False)],
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Its version, for the heading.", show_default=False)],
    result: Annotated[Path, typer.Option(help="result.json of its evaluation, with samples.parquet beside it.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for report.md and report.html.", show_default=False)],
    against: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(help="result.json of the champion or of a baseline, on the same samples; may be repeated."),
    ] = None,
    content: Annotated[Optional[str], typer.Option(help="Content hash that the result has to be of, or its beginning.")] = None,  # noqa: UP045
    margin: Annotated[Optional[list[str]], typer.Option(metavar="METRIC=LOSS", help="Loss that is no loss; may be repeated.")] = None,  # noqa: UP045
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap: equal files and seed give an equal report.")] = 0,
) -> None:
    """Write the report of an evaluation of a version, compared with others on the same samples, as Markdown and HTML.

    \b
    trainhouse artifact get evaluation-digits candidate/
    trainhouse models report digits 1.2.0 --result candidate/result.json \\
        --against champion/result.json --out report/

    It needs `trainhouse[evaluation]`.
    """
    try:
        from trainhouse.workers.evaluation.__main__ import margins_of
        from trainhouse.workers.evaluation.errors import InvalidEvaluationError
        from trainhouse.workers.evaluation.evaluation_report import write_report
        from trainhouse.workers.evaluation.result import load_result
    except ModuleNotFoundError as error:
        raise CliError(f"{error.name} is not installed here: pip install 'trainhouse[evaluation]'", Exit.USAGE) from error
    try:
        found = load_result(result)
        if content is not None and not found.version.startswith(content.removeprefix("sha256:")):
            raise CliError(f"{result} is of version {found.version}, not {content}: name the result of that version", Exit.REJECTED)
        paths = write_report(
            result, against or [], out, f"{name} {version}: {found.suite}", margins_of(margin or []), alpha=0.05, least=100, seed=seed
        )
    except InvalidEvaluationError as error:
        raise CliError(f"{error}\nnothing was written", Exit.REJECTED) from error
    for path in paths:
        typer.echo(path)
