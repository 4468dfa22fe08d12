"""Options of interactive jobs: the same for each command, and whole where the job is made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from trainhouse.cli.interactive.session_options import SessionOptions, with_session_options
from trainhouse.cli.interactive.sessions import Wanted
from trainhouse.cli.main import build


@pytest.mark.parametrize("command", ["shell", "notebook"])
def test_a_command_lists_them_all(command: str) -> None:
    shown = CliRunner().invoke(build(command), [command, "--help"], env={"COLUMNS": "200"}).stdout
    for option in (
        "--gpus",
        "--device ",
        "--idle-limit",
        "--max-run-time",
        "--name",
        "--project",
        "--env",
        "--secret",
        "--code",
        "--data-dir",
    ):
        assert option in shown, option


def test_what_is_typed_arrives_whole() -> None:
    got: list[tuple[str, SessionOptions]] = []

    @with_session_options("shell")
    def command(session: SessionOptions, own: Annotated[str, typer.Option()] = "") -> None:
        got.append((own, session))

    app = typer.Typer()
    app.command()(command)
    typed = ["--own", "o", "-n", "3", "--device", "h100", "--name", "a", "--project", "p", "--priority", "4"]
    typed += ["--env", "A=1", "--env", "B=2", "--secret", "S", "--code", "/x"]
    done = CliRunner().invoke(app, typed)
    assert done.exit_code == 0, done.output
    wanted = Wanted("shell", devices=3, device="h100", name="a", project="p", env=["A=1", "B=2"], secrets=["S"], priority=4)
    assert got == [("o", SessionOptions(wanted, Path("/x")))]
    assert CliRunner().invoke(app, []).exit_code == 0
    assert got[-1] == ("", SessionOptions(Wanted("shell"), None))
