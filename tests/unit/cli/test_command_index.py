"""The index of commands says what the commands themselves say, and one command imports no other."""

import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from trainhouse.cli.command_index import COMMANDS, SECTIONS
from trainhouse.cli.main import build, build_listing

WHOLE = get_command(build()).commands  # type: ignore[attr-defined]


def test_every_command_is_in_one_section_and_its_help_is_its_own() -> None:
    assert set(COMMANDS) == set(WHOLE)
    assert sum(map(len, SECTIONS.values())) == len(COMMANDS)
    for name, command in WHOLE.items():
        assert command.get_short_help_str(1000).startswith(COMMANDS[name].help.rstrip(".")), name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_alone_is_what_it_is_among_all(name: str) -> None:
    alone, among_all = (CliRunner().invoke(app, [name, "--help"]) for app in (build(name), build()))
    assert (alone.exit_code, alone.exception) == (0, None), alone.output
    # Of their standard output alone: what the interpreter itself says of an earlier test's leavings goes to the other.
    assert alone.stdout == among_all.stdout


def test_help_lists_all_by_section_and_imports_none_of_them() -> None:
    text = CliRunner().invoke(build_listing(), ["--help"]).output
    assert text == CliRunner().invoke(build(), ["--help"]).output
    for section, listed in SECTIONS.items():
        assert f"\n{section}:\n" in text
        assert all(f"\n  {name} " in text for name in listed)
    script = "import sys; sys.argv[1:] = ['--help']\nfrom trainhouse.cli.main import main\ntry: main()\nexcept SystemExit: pass\n"
    script += "rooms = tuple(f'trainhouse.cli.{r}.' for r in 'jobs fleet data stack top'.split())\n"
    script += "print([m for m in sys.modules if m.startswith(rooms)])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
