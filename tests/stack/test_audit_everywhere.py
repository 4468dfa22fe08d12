"""On a whole stack: a command, a secret and a question on the SQL port are each in the audit, and its chain is proved."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack


def test_what_goes_past_the_gateway_is_in_the_audit_too(stack: LiveStack, tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(3600)\n")
    name, value = f"AUDIT_{secrets.token_hex(4).upper()}", f"hush-{secrets.token_hex(8)}"
    stack.ok("secrets", "set", name, stdin=value + "\n")
    job = stack.ok("submit", "--secret", name, "--", "python", "wait.py", cwd=tmp_path).strip()
    until(lambda: "up" in stack.run("logs", job).out, lambda: stack.log("agent"))
    assert stack.run("exec", job, "--rank", "0", "--", "sh", "-c", f"echo {value}; exit 7").code == 7
    word = secrets.token_hex(6)
    stack.rows(f"SELECT '{word}' AS word")

    def told() -> list[dict[str, Any]]:
        return stack.rows(
            "SELECT kind, access, action, user, text, exit_code, vouched, outcome, target, job_id FROM audit "
            f"WHERE job_id = '{job}' OR target = '{name}' OR (action = 'SQL port' AND position(text, '{word}') > 0 "
            "AND position(text, 'audit') = 0) ORDER BY at",
        )

    def whole() -> list[dict[str, Any]] | None:
        found = told()
        kinds = {(row["access"], row["action"], row["kind"]) for row in found}
        wanted = {
            ("secret", "secrets set", "granted"),
            ("secret", "secrets launch", "granted"),
            ("exec", "ExecuteCommand", "granted"),
            ("exec", "ExecuteCommand", "ended"),
            ("sql", "SQL port", "granted"),
        }
        return found if wanted <= kinds else None

    found = until(whole, lambda: json.dumps(told(), default=str) + stack.log("agent")[-3000:] + stack.log("projector")[-3000:])
    assert value not in json.dumps(found, default=str)
    command = [row for row in found if row["access"] == "exec"]
    assert {row["vouched"] for row in command} == {"node"} and command[-1]["exit_code"] == 7 and "***" in command[0]["text"]
    assert all(row["user"] and row["outcome"] == "allowed" for row in command)
    stack.ok("cancel", job, "--wait")
    stack.ok("secrets", "rm", name)
    stack.ok("archive")
    proved = [json.loads(line) for line in stack.ok("audit", "verify", "--json").splitlines()]
    assert {row["topic"] for row in proved} == {"trainhouse.audit", "trainhouse.node-audit"} and sum(row["records"] for row in proved) > 4
    part = [json.loads(line) for line in stack.ok("audit", "verify", "--from", "2h", "--json").splitlines()]
    assert sum(row["records"] for row in part) == sum(row["records"] for row in proved)
    nothing = stack.run("audit", "verify", "--from", "2020-01-01", "--to", "2020-02-01")
    assert nothing.code == 66 and "no record is of 2020-01-01" in nothing.err
