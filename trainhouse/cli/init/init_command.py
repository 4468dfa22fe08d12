"""`trainhouse init`: a spec for a script, and the lines that give it curves and checkpoints.

Holds: nothing is asked, no file that exists is changed, and both files are written or none.
"""

import difflib
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json

SPEC = """\
# `trainhouse submit {file} --wait` runs it; options go on top: --gang 2, -p lr=0.1. `trainhouse doctor {file}` checks it.
name: {name}
gang: {gang}                  # ranks, on one device each; they start together
runtime:
  command: [python, {script}]
checkpoint:
  every_steps: 500
  keep_last: 3
limits:
  restarts: 3              # after a failure, from the newest checkpoint
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("init")(init)


def init(
    script: Annotated[Path, typer.Argument(help="Training script of this folder.", show_default=True)] = Path("train.py"),
    spec: Annotated[Path, typer.Option("--spec", help="File of the spec; it must not exist.")] = Path("trainhouse.yaml"),
    gang: Annotated[int, typer.Option("--gang", "-n", min=1, help="Ranks, one device each.")] = 1,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", help="Write the script with the lines in it there, too; it must not exist.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Write a spec for a script, and show the lines for its curves and checkpoints; change no file.

    \b
    trainhouse init train.py
    trainhouse init train.py --gang 2 --out train_tracked.py
    trainhouse submit trainhouse.yaml --wait
    """
    from trainhouse.cli.init.script_lines import GENERAL, NoPlaceError, lines_of, with_lines
    from trainhouse.cli.shared.output import json_lines, remark

    source = _read(script)
    _check([spec] if out is None else [spec, out])
    problem = ""
    try:
        changed = with_lines(source, str(script))
    except NoPlaceError as error:
        problem, changed = str(error), source
        if out is not None:
            raise CliError(f"{error}: the lines are yours to place:\n{GENERAL}", Exit.USAGE) from error
    if out is not None:
        _write(out, changed)
    try:
        _write(spec, spec_of(script, spec, gang))
    except CliError:
        if out is not None:
            out.unlink(missing_ok=True)
        raise
    difference = "".join(difflib.unified_diff(lines_of(source), lines_of(changed), str(script), str(out or script)))
    if json:
        json_lines(
            [{"spec": str(spec), "script": str(script), "out": None if out is None else str(out), "diff": difference, "problem": problem}]
        )
        return
    sys.stdout.write(f"{problem}; the lines are yours to place:\n{GENERAL}" if problem else difference)
    remark(f"wrote {spec}" + (f" and {out}" if out is not None else "") + f"; run it by `trainhouse submit {spec} --wait`")


def spec_of(script: Path, file: Path, gang: int) -> str:
    """The spec as a file's text. Pure."""
    import orjson

    name, quoted = (orjson.dumps(text).decode() for text in (script.stem[:128], script.as_posix()))
    return SPEC.format(file=file, name=name, script=quoted, gang=gang)


def _read(script: Path) -> str:
    try:
        with script.open(encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(
            f"{script} cannot be read ({error}): name the training script, as `trainhouse init train.py`", Exit.NOT_FOUND
        ) from error


def _check(targets: list[Path]) -> None:
    """Raises CliError where a file exists, has no folder, or is named twice."""
    if len({path.resolve() for path in targets}) < len(targets):
        raise CliError(f"{targets[0]} is named for the spec and for the script: name another file by --out", Exit.USAGE)
    for path in targets:
        try:
            path.lstat()
        except FileNotFoundError:
            if not path.parent.is_dir():
                raise CliError(f"{path} cannot be written: there is no folder {path.parent}; make it first", Exit.USAGE) from None
        except OSError as error:
            raise CliError(f"{path} cannot be written: {error}", Exit.USAGE) from error
        else:
            raise CliError(f"{path} exists, and is left as it is: name another file, or remove it", Exit.USAGE)


def _write(path: Path, text: str) -> None:
    """Writes a new file, or leaves none. Raises CliError."""
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                path.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error}", Exit.USAGE) from error
