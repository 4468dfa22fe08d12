"""`trainhouse credentials list|rotate|retire`: the passwords and keys of the stack on this machine.

Never: shows one; `trainhouse env` gives a person theirs.
"""

import sys
from dataclasses import asdict
from typing import Annotated, Optional

import typer

from trainhouse.cli.options import Json
from trainhouse.cli.stack import PANEL, Folder, root_of


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="Passwords and keys of the stack on this machine.")
    group.command("list")(list_)
    group.command("rotate")(rotate)
    group.command("retire")(retire)
    app.add_typer(group, name="credentials", rich_help_panel=PANEL)


def list_(data_dir: Folder = None, json: Json = False) -> None:
    """Names of passwords and keys and when each was made, never the secrets themselves."""
    from trainhouse.cli import output
    from trainhouse.deploy.local import rotation

    found = rotation.listing(root_of(data_dir))
    if json:
        output.json_lines(asdict(each) | {"made_at": each.made_at and each.made_at.isoformat()} for each in found)
        return
    shown = ((each.server, each.name, each.made_at and f"{each.made_at:%Y-%m-%d %H:%M:%S}", each.note) for each in found)
    output.table(("server", "name", "made_at", "valid"), shown)


def rotate(
    data_dir: Folder = None,
    only: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--only", help="kafka, store, sql or gateway; default: all but the gateway's signing key."),
    ] = None,
) -> None:
    """Make new passwords and keys, also while jobs run: each part is started again with its own, and no job ends.

    \b
    trainhouse credentials rotate
    trainhouse credentials rotate --only kafka
    eval "$(trainhouse env)"     # shells and processes beside the stack need their new ones

    With `--only gateway` every token that was given out ends; yours is made anew.
    """
    from trainhouse.deploy.local import rotation

    if only is not None and only not in rotation.SERVERS:
        raise typer.BadParameter(f"{only!r} has no credentials; there are {', '.join(rotation.SERVERS)}", param_hint="--only")
    rotation.rotate(root_of(data_dir), rotation.BY_DEFAULT if only is None else (only,), _say)


def retire(data_dir: Folder = None) -> None:
    """End the store's old key, which a rotation leaves valid for ranks that run: what still holds it is refused."""
    from trainhouse.deploy.local import rotation

    rotation.retire(root_of(data_dir), _say)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
