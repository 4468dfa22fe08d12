"""Help: quick, because nothing heavy is imported for it, and each command shows an example of itself."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from trainhouse.cli.main import build

COMMANDS = [c.name or c.callback.__name__ for c in build().registered_commands if c.callback is not None]
HEAVY = "torch confluent_kafka pydantic boto3 clickhouse_connect faust rich.console yaml structlog"


def test_help_loads_nothing_heavy() -> None:
    script = f"import sys; from trainhouse.cli.main import build; build(); print([m for m in {HEAVY!r}.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_reads_journals_for_a_command_loads_no_stream_processor() -> None:
    script = "import sys, trainhouse.scheduler.stream.history.journal_replay; print('faust' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_command_of_the_contract_is_there() -> None:
    wanted = "submit status logs events cancel rerun stack exec nodes sql replay schemas run up down ps env demo"
    assert set(wanted.split()) <= set(COMMANDS)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"up", "down", "ps", "env", "run"}))
def test_help_of_a_command_has_an_example(name: str) -> None:
    found = CliRunner().invoke(build(), [name, "--help"])
    assert found.exit_code == 0
    assert f"trainhouse {name}" in found.output


def test_listings_have_json_and_filters() -> None:
    for name in ("status", "nodes"):
        text = CliRunner().invoke(build(), [name, "--help"]).output
        assert all(option in text for option in ("--json", "--user", "--team", "--project", "--state", "--since"))


def test_a_wrong_option_is_a_usage_error() -> None:
    assert CliRunner().invoke(build(), ["status", "--nothing"]).exit_code == 2


def all_commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The command and all that are below it, by their words."""
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from all_commands(below, (*words, name))


def test_no_help_is_wider_than_80_columns() -> None:
    app = build()
    every = list(all_commands(typer.main.get_command(app)))
    assert len(every) > 150 and ("models", "gate", "apply") in every, "groups within groups too"
    wide = []
    for words in every:
        text = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"}).output
        wide += [f"{' '.join(words)}: {line}" for line in text.splitlines() if len(line) > 80]
    assert not wide, "break an example by \\, and prose into a paragraph without \\b:\n" + "\n".join(wide)


def test_the_help_of_evaluate_is_true_of_both_ways() -> None:
    text = CliRunner().invoke(build(), ["models", "evaluate", "--help"], env={"COLUMNS": "80"}).output
    assert "Evaluate a version here, or by jobs" in text
