"""`trainhouse credentials list|rotate|retire`: the passwords and keys of the stack on this machine.

Never: shows one; `trainhouse env` gives a person theirs.
"""

import sys
import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Optional

import typer

from trainhouse.cli.shared.options import Json, StackDir
from trainhouse.cli.stack.local_stack import PANEL, root_of

Only = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--only", help="kafka, store, sql, gateway (the key of its tokens) or signing; default: all."),
]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="List, rotate and retire passwords and keys of the stack on this machine.")
    group.command("list")(list_)
    group.command("rotate")(rotate)
    group.command("retire")(retire)
    app.add_typer(group, name="credentials", rich_help_panel=PANEL)


def list_(data_dir: StackDir = None, json: Json = False) -> None:
    """List names of passwords and keys, their files and ages, never the secrets themselves."""
    from trainhouse.cli.shared import output
    from trainhouse.deploy.local.credentials import credential_list

    found = credential_list.listing(root_of(data_dir))
    if json:
        output.json_lines(asdict(each) | {"made_at": each.made_at and each.made_at.isoformat(), "age_s": each.age_s} for each in found)
        return
    shown = ((each.server, each.name, each.kind, each.file, _date(each.made_at), _age(each.age_s), each.note) for each in found)
    output.table(("server", "name", "kind", "file", "made_at", "age", "valid"), shown, drop=("made_at", "file", "kind", "valid"))


def rotate(data_dir: StackDir = None, only: Only = None) -> None:
    """Make new passwords and keys, also while jobs run: each part is started again with its own, and no job ends.

    \b
    trainhouse credentials rotate
    trainhouse credentials rotate --only kafka
    eval "$(trainhouse env)"
        # shells and processes beside the stack need their new ones

    Tokens, signatures and the store's key of before count until `trainhouse credentials retire`. With `--only gateway` or
    `--only signing` no stream of the gateway is cut. What was cut short is done anew by the next one.
    """
    from trainhouse.deploy.local.credentials import rotation, rotation_plan

    rotation.rotate(root_of(data_dir), _servers(only, rotation_plan.SERVERS), _say)
    _renew_own_token(root_of(data_dir))


def retire(data_dir: StackDir = None, only: Only = None) -> None:
    """End what a rotation leaves valid: the store's key, tokens and signatures by keys of before. What still holds them is refused.

    \b
    trainhouse credentials retire
    trainhouse credentials retire --only store  # tokens that were given out go on
    """
    from trainhouse.deploy.local.credentials import rotation, rotation_plan

    servers = _servers(only, rotation_plan.RETIRED)
    _renew_own_token(root_of(data_dir))
    rotation.retire(root_of(data_dir), servers, _say)


def _servers(only: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    if only is None:
        return known
    if only not in known:
        raise typer.BadParameter(f"{only!r} has none of that; there are {', '.join(known)}", param_hint="--only")
    return (only,)


def _renew_own_token(root: Path) -> None:
    """The token of the user whose stack this is, by the newest key; the gateway makes it too, when it starts."""
    from trainhouse.deploy.local import client_config
    from trainhouse.deploy.local.change_folder import started
    from trainhouse.deploy.local.credentials import token_keys
    from trainhouse.gateway.auth import local_token

    folder = started(root)
    local_token.ensure(client_config.local_token(folder), token_keys.token_key(folder).read_bytes().strip(), int(time.time()))


def _date(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def _age(age_s: float | None) -> str:
    if age_s is None:
        return ""
    unit, length = next((u, n) for u, n in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)) if age_s >= n or n == 1)
    return f"{age_s // length:.0f} {unit}"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
