"""`secrets set|list|rm`: values that ranks get as environment and nobody else sees.

Holds: a value is read from standard input alone, and kept in a file that only its owner reads; no command prints one.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from trainhouse.cli.exits import CliError, Exit
from trainhouse.cli.options import Json, KafkaDir

NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
MAX_SECRET_BYTES = 64 * 1024


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(no_args_is_help=True, help="Secrets of this machine's agent: named by specs, seen by ranks alone.")
    group.command("set")(set_)
    group.command("list")(list_)
    group.command("rm")(remove)
    app.add_typer(group, name="secrets")


def set_(name: Annotated[str, typer.Argument(help="As the environment variable.")], data_dir: KafkaDir = None) -> None:
    """Reads a value from standard input (one final newline is dropped) and keeps it.

    \b
    echo "$TOKEN" | trainhouse secrets set HUB_TOKEN
    """
    path = path_of(folder(), name)
    if sys.stdin.isatty():
        import getpass

        value = getpass.getpass(f"value of {name}: ").encode()
    else:
        value = sys.stdin.buffer.read(MAX_SECRET_BYTES + 1)
        value = value[:-1] if value.endswith(b"\n") else value
    if not value:
        raise CliError(f"the value of {name} is empty: send it on standard input", Exit.USAGE)
    if len(value) > MAX_SECRET_BYTES or b"\0" in value:
        raise CliError(
            f"the value of {name} has more than {MAX_SECRET_BYTES} bytes or a zero byte; an environment cannot hold it", Exit.USAGE
        )
    write(path, value)
    sys.stderr.write(f"kept {name}; a spec names it by `secrets: [{name}]`, `submit` by --secret {name}\n")


def list_(json: Json = False, data_dir: KafkaDir = None) -> None:
    """Names of the secrets, never their values."""
    from trainhouse.cli.output import json_lines

    found = folder()
    names = sorted(p.name for p in found.iterdir() if p.is_file() and not p.name.startswith(".")) if found.is_dir() else []
    if json:
        json_lines({"name": name} for name in names)
        return
    for name in names:
        sys.stdout.write(name + "\n")


def remove(name: Annotated[str, typer.Argument(help="Which one.")], data_dir: KafkaDir = None) -> None:
    """Forgets a secret. Ranks that run keep what they got."""
    path = path_of(folder(), name)
    if not path.is_file():
        raise CliError(f"there is no secret {name}; `trainhouse secrets list` names them", Exit.NOT_FOUND)
    path.unlink()


def path_of(where: Path, name: str) -> Path:
    """The file of a secret; raises CliError for a name that no environment variable can have."""
    import re

    if not re.fullmatch(NAME, name):
        raise CliError(f"{name!r} is no name of an environment variable: use letters, digits and _, starting with no digit", Exit.USAGE)
    return where / name


def write(path: Path, value: bytes) -> None:
    """Replaces the file in one step; mode 0600, its folder 0700."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, value)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.replace(path)


def folder() -> Path:
    """The agent's secrets folder."""
    from trainhouse.workers.agent.settings import AgentSettings

    found = AgentSettings().resolved().secrets_dir
    assert found is not None, "resolved() fills it in"
    return found
