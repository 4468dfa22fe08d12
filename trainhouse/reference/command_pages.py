"""The page of the command line: the help of each command, as the command prints it."""

from collections.abc import Iterator
from typing import Any

import typer.main

from trainhouse.cli.main import build
from trainhouse.cli.shared.exit_codes import MEANINGS
from trainhouse.reference.markdown import table

WIDTH = 110


def commands() -> str:
    """Every command with its help, and the exit codes."""
    root = typer.main.get_command(build())
    sections = [f"## {path}\n\n```text\n{text.strip()}\n```\n" for path, text in _helps(root, "trainhouse", "trainhouse", None)]
    return "\n".join(
        [
            "# Commands\n",
            "Each command as `--help` prints it. What ends with an error says the cause on standard error, and one of these codes.\n",
            "## Exit codes\n",
            table(["code", "meaning"], ([str(int(code)), meaning] for code, meaning in MEANINGS.items())),
            "`trainhouse exec` ends with the code of the command that it ran.\n",
            *sections,
        ]
    )


def _helps(command: Any, name: str, path: str, parent: Any) -> Iterator[tuple[str, str]]:
    context = command.make_context(name, [], parent=parent, resilient_parsing=True, max_content_width=WIDTH, terminal_width=WIDTH)
    if parent is not None:
        yield path, command.get_help(context)
    for nested, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from _helps(child, nested, f"{path} {nested}", context)
