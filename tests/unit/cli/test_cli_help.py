"""Help: quick, because nothing heavy is imported for it, and each command shows an example of itself."""

import subprocess
import sys

import pytest
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
