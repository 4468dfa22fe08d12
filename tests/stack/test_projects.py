"""Projects on a whole stack: declared by a file, held against jobs by intake and against tokens by the gateway, until they are changed."""

from __future__ import annotations

import json
import secrets
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.cli.shared.exit_codes import Exit

pytestmark = pytest.mark.stack
JOBS = "/v1/training-jobs"
HAS_DEVICES = ("SCHEDULED", "INITIALIZING", "RUNNING")
NAME = f"vision-{secrets.token_hex(3)}"
FILE = f"""name: {NAME}
members: {{ana: submitter, vera: viewer}}
purposes:
  defects: faults on the line
limits: {{highest_priority: 20, submissions_per_minute: 30}}
"""
COMMAND = ["python", "-c", "print('done')"]


@pytest.fixture(scope="module")
def url(stack: LiveStack) -> str:
    lines = [line.removeprefix("export ").split("=", 1) for line in stack.ok("env").splitlines()]
    return str({name: shlex.split(value)[0] for name, value in lines}["TRAINHOUSE_GATEWAY_URL"])


@pytest.fixture(scope="module")
def declared(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("projects") / "vision.yaml"
    path.write_text(FILE)
    assert f"project {NAME}: version 1, 2 members, 1 purposes" in stack.ok("project", "set", str(path), "--reason", "the new line")
    yield path


def seen(stack: LiveStack, job_id: str) -> dict[str, Any] | None:
    """A job's status; None until its submission has got as far as the status topic."""
    done = stack.run("status", job_id, "--json")
    if done.code == Exit.NOT_FOUND:
        return None
    assert done.code == Exit.OK, done
    found: dict[str, Any] = json.loads(done.out)
    return found


def ended(stack: LiveStack, *options: str) -> tuple[str, str]:
    """The state and reason of a job of the project that was submitted over Kafka, as its owner sees it."""
    job_id = stack.ok("submit", "--no-wait", "--no-code", "--project", NAME, *options, "--", *COMMAND).strip()

    def look() -> dict[str, Any] | None:
        found = seen(stack, job_id)
        return found if found is not None and found["state"] in ("SUCCEEDED", "REJECTED", "FAILED") else None

    found = until(look, f"the end of {job_id}")
    assert found is not None
    return found["state"], found["reason"]


def test_intake_holds_a_project_against_jobs_that_come_over_kafka(stack: LiveStack, declared: Path) -> None:
    state, reason = ended(stack)
    assert state == "REJECTED" and "needs to know what a job is for" in reason and "defects" in reason
    state, reason = ended(stack, "--purpose", "weapons")
    assert state == "REJECTED" and "weapons is not approved" in reason
    state, reason = ended(stack, "--purpose", "defects", "--priority", "0")
    assert state == "REJECTED" and "its highest is 20" in reason
    assert ended(stack, "--purpose", "defects")[0] == "SUCCEEDED"


def test_purposes_members_and_limits_are_told_in_sql_and_by_the_command(stack: LiveStack, declared: Path) -> None:
    assert stack.ok("project", "show", NAME) == FILE
    assert NAME in stack.ok("project", "list")
    stack.ok("project", "purpose", "approve", NAME, "safety", "--description", "people near machines")
    assert ended(stack, "--purpose", "safety")[0] == "SUCCEEDED"
    query = f"SELECT count() FROM project_purposes WHERE project = '{NAME}' AND approved_by != ''"
    assert until(lambda: stack.ok("sql", query).strip().endswith("2"), "both purposes in SQL")
    query = f"SELECT count() FROM job_status WHERE project = '{NAME}' AND purpose = 'safety'"
    assert until(lambda: stack.ok("sql", query).strip().endswith("1"), "the job's purpose in SQL")
    stack.ok("project", "purpose", "revoke", NAME, "safety")
    state, reason = ended(stack, "--purpose", "safety")
    assert state == "REJECTED" and "not approved" in reason


def test_a_removed_members_token_is_refused(stack: LiveStack, declared: Path, url: str) -> None:
    token = stack.ok("token", "create", "ana", "--project", NAME).strip()
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=480) as ana:
        until(lambda: ana.get("/v1/whoami").json().get("projects") == [NAME], "ana is a member")
        stack.ok("project", "members", "remove", NAME, "ana", "--reason", "left")
        began = time.monotonic()
        until(lambda: ana.get("/v1/whoami").status_code == 403, "the refusal")
        print(f"refused {time.monotonic() - began:.2f} s after the removal")
        submitted = ana.post(JOBS, json={"spec": {"project": NAME, "purpose": "defects", "runtime": {"command": COMMAND}}})
        assert submitted.status_code == 403
    assert "no member of project" in stack.run("token", "create", "ana", "--project", NAME).err
    assert stack.ok("token", "create", "vera", "--project", NAME).strip()
    assert "cannot be more" in stack.run("token", "create", "vera", "--project", NAME, "--role", "submitter").err
    stack.ok("project", "members", "add", NAME, "ana")


def test_changes_over_http_are_answered_by_their_requests(stack: LiveStack, declared: Path, url: str) -> None:
    token = stack.ok("token", "create", "ops", "--role", "operator", "--project", NAME).strip()
    with httpx.Client(base_url=f"{url}/v1/projects/{NAME}", headers={"Authorization": f"Bearer {token}"}, timeout=480) as ops:

        def outcome(asked: dict[str, Any]) -> tuple[str | None, int | None]:
            def look() -> tuple[str | None, int | None] | None:
                answer = ops.get(f"/changes/{asked['event_id']}", params={"after": asked["after"]})
                if answer.status_code == 503:
                    return None  # the tables are behind
                found = answer.raise_for_status().json()
                return (found["refused"], found["version"]) if found["refused"] or found["version"] else None

            found = until(look, "the outcome of a change")
            assert found is not None
            return found

        asked = [ops.put(f"/members/{user}", json={"role": "viewer"}).raise_for_status().json() for user in ("bo", "cy")]
        (refused, version), second = (outcome(one) for one in asked)
        assert (refused, version) == (None, asked[0]["replaces"] + 1)
        if asked[1]["replaces"] == asked[0]["replaces"]:
            assert "was made from version" in (second[0] or "") and second[1] is None
        else:  # the gateway knew the first already
            assert second == (None, asked[1]["replaces"] + 1)
    stack.ok("project", "set", str(declared))


def test_a_fault_of_the_file_is_told_with_its_line_and_nothing_is_sent(stack: LiveStack, declared: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(FILE.replace("highest_priority: 20", "highest_priority: 200"))
    told = stack.run("project", "set", str(wrong))
    assert told.code == 2 and "wrong.yaml:5: limits.highest_priority" in told.err and "nothing was sent" in told.err
    assert "was never declared" in stack.run("project", "show", "nothing-like-it").err


def test_jobs_beyond_the_projects_limits_wait_or_are_refused(stack: LiveStack, tmp_path: Path) -> None:
    name, path = f"few-{secrets.token_hex(3)}", tmp_path / "few.yaml"
    path.write_text(f"name: {name}\nlimits: {{running: 1, queued: 1}}\n")
    stack.ok("project", "set", str(path))

    def submit() -> str:
        return stack.ok(
            "submit", "--no-wait", "--no-code", "--project", name, "--", "python", "-c", "import time; time.sleep(3600)"
        ).strip()

    def comes_to(job_id: str, *states: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = seen(stack, job_id)
            return found if found is not None and found["state"] in states else None

        found = until(look, lambda: str(seen(stack, job_id)))
        assert found is not None
        return found

    first = submit()
    comes_to(first, *HAS_DEVICES)
    second = submit()
    until(lambda: "limits.running is 1" in stack.run("why", second).out, lambda: stack.run("why", second))
    third = submit()
    assert "limits.queued" in comes_to(third, "REJECTED")["reason"]
    path.write_text(f"name: {name}\nlimits: {{running: 2, queued: 1}}\n")
    stack.ok("project", "set", str(path))
    comes_to(second, *HAS_DEVICES)
    for job_id in (first, second):
        stack.ok("cancel", job_id)
