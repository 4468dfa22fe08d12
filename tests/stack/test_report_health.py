"""The health report of a running stack: a job that fails is blamed, stands in `failures`, and is told in both files."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack


def test_a_job_that_failed_is_in_the_report(stack: LiveStack, tmp_path: Path) -> None:
    user = f"u{secrets.token_hex(4)}"
    code = tmp_path / "code"
    code.mkdir()
    (code / "fails.py").write_text("raise ValueError('no such token')\n")
    done = stack.run("submit", "--wait", "--user", user, "--", "python", "fails.py", cwd=code)
    assert done.code == 1, done.err + done.out
    job = done.lines[0]
    query = f"SELECT category, user, recovered_by FROM failures WHERE job_id = '{job}'"
    blamed = {"category": "USER_CODE", "user": user, "recovered_by": ""}
    until(lambda: blamed in stack.rows(query), lambda: f"{stack.rows(query)}\n{stack.log('scheduler')}\n{stack.log('projector')}")
    folder = tmp_path / "weekly"
    stack.ok("report", "health", "--since", "1h", "--out", str(folder))
    text, html = (folder / "health.md").read_text(), (folder / "health.html").read_text()
    assert "USER\\_CODE" in text and "(health_failures.svg)" in text
    assert html.startswith("<!doctype html>") and "USER_CODE" in html and "<svg" in html
    assert "USER\\_CODE" in stack.ok("report", "health", "--since", "1h")
    wrong = stack.run("report", "health", "--since", "1h", "--until", "2h")
    assert wrong.code == 2 and "--since must be earlier" in wrong.err
