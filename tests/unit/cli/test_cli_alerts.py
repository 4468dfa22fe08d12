"""`trainhouse alerts`: what it asks, what it refuses, and rules that are checked without a stack."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainhouse.cli.data import alerts
from trainhouse.cli.main import build
from trainhouse.cli.shared.exit_codes import CliError, Exit

NOW = 1_800_000_000_000


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stack near."""
    monkeypatch.chdir(tmp_path)
    for name in ("TRAINHOUSE_CONFIG", "TRAINHOUSE_DATA_DIR", "TRAINHOUSE_ALERTS_RULES", "TRAINHOUSE_KAFKA_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)


def test_open_alerts_come_by_severity_and_all_by_time() -> None:
    assert "FROM alerts_open " in alerts.query_of(NOW, False, None) and "'CRITICAL', 'WARNING'" in alerts.query_of(NOW, False, None)
    every = alerts.query_of(NOW, True, "1d")
    assert "FROM alerts WHERE fired_at >= fromUnixTimestamp64Milli(1799913600000)" in every and "ORDER BY fired_at DESC" in every
    with pytest.raises(CliError, match="--all"):
        alerts.query_of(NOW, False, "1d")


def test_rules_are_listed_where_no_stack_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(build(), ["alerts", "rules"])
    assert done.exit_code == 0 and "nodes-lost" in done.output and "gang.hung" in done.output
    (tmp_path / "own.yaml").write_text("rules:\n  - name: broken\n    severity: INFO\n    sql: SELECT now()\n")
    monkeypatch.setenv("TRAINHOUSE_ALERTS_RULES", str(tmp_path / "own.yaml"))
    done = CliRunner().invoke(build(), ["alerts", "rules"])
    assert isinstance(done.exception, CliError) and "own.yaml:2: broken" in str(done.exception) and "nodes-lost" in done.output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["no-such-rule"], Exit.NOT_FOUND, "no rule"),
        (["nodes-lost", "--since", "1d", "--until", "2d"], Exit.USAGE, "before"),
        (["nodes-lost", "--step", "0.1s"], Exit.USAGE, "--step"),
        (["gone.yaml"], Exit.NOT_FOUND, "cannot be read"),
        (["own.yaml"], Exit.USAGE, "own.yaml:1"),
        (["nodes-lost"], Exit.UNAVAILABLE, "does not answer"),
    ],
)
def test_a_try_that_cannot_be_is_refused(
    arguments: list[str], code: Exit, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.yaml").write_text("- none\n")
    monkeypatch.setenv("TRAINHOUSE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("TRAINHOUSE_CLICKHOUSE_URL", "http://127.0.0.1:1")
    done = CliRunner().invoke(build(), ["alerts", "backtest", *arguments])
    assert isinstance(done.exception, CliError) and done.exception.code == code and words in str(done.exception)
