"""The pages before a whole stack: a job is submitted and watched live to its end; another one is cancelled on its page."""

from __future__ import annotations

import re
import secrets
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.chromium import executable
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack
WAIT_MS = 300_000
PROGRAM = """\
import os, time
from trainhouse.workers import Session
with Session.start() as session:
    for step in session.steps(40):
        session.log(loss=1 / (1 + step))
        time.sleep(0.1)
    while os.environ.get("ENDLESS"):
        time.sleep(0.1)
"""


@pytest.fixture
def page(stack: LiveStack) -> Iterator[Page]:
    """A page that `trainhouse open` would open."""
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        made = browser.new_context().new_page()
        made.set_default_timeout(WAIT_MS)
        made.goto(stack.ok("open", "--print").strip())
        expect(made.get_by_role("heading", name="Overview")).to_be_visible()
        yield made
        browser.close()


def test_a_job_is_watched_to_its_end_and_another_is_cancelled(stack: LiveStack, page: Page, tmp_path: Path) -> None:
    (tmp_path / "watched.py").write_text(PROGRAM)
    name = f"watched-{secrets.token_hex(3)}"
    job = stack.ok("submit", "--name", name, "--", "python", "watched.py", cwd=tmp_path).split()[-1]
    page.goto(f"{_origin(page)}/jobs?q={name}")
    page.get_by_role("link", name=name).click()
    expect(page).to_have_url(re.compile(f"/jobs/{job}$"))
    expect(page.get_by_role("heading", name=re.compile("^loss 40 points"))).to_be_visible()
    expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^States in order: waiting .* running .* succeeded"))).to_be_visible()
    endless = stack.ok("submit", "--name", f"{name}-2", "--env", "ENDLESS=1", "--", "python", "watched.py", cwd=tmp_path).split()[-1]
    page.goto(f"{_origin(page)}/jobs/{endless}")
    expect(page.get_by_text("running", exact=True).first).to_be_visible()
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("button", name="Yes, cancel it").click()
    expect(page.get_by_text("cancelled", exact=True).first).to_be_visible()


def _origin(page: Page) -> str:
    return "/".join(page.url.split("/")[:3])


def test_a_tag_is_the_same_on_the_page_for_mlflow_and_on_the_command_line(stack: LiveStack, page: Page, tmp_path: Path) -> None:
    (tmp_path / "watched.py").write_text(PROGRAM)
    name = f"tagged-{secrets.token_hex(3)}"
    job = stack.ok("submit", "--name", name, "--env", "ENDLESS=1", "--", "python", "watched.py", cwd=tmp_path).split()[-1]
    gateway = tomllib.loads((stack.data_dir / "trainhouse.toml").read_text())["gateway"]
    headers = {"Authorization": f"Bearer {Path(gateway['token_file']).read_text().strip()}"}
    mlflow = httpx.Client(base_url=_origin(page), headers=headers, timeout=480)
    answer = mlflow.post("/api/2.0/mlflow/runs/set-tag", json={"run_id": job, "key": "by", "value": f"mlflow-{name}"})
    assert answer.status_code == 200, answer.text
    stack.ok("tag", job, f"cli={name}", "--note", "the run of table 2")
    until(lambda: job in stack.ok("status", "--tag", f"cli={name}"), "the command line finds it")
    page.goto(f"{_origin(page)}/jobs/{job}")
    tags = page.get_by_role("group", name="Tags")
    expect(tags).to_contain_text(f"by=mlflow-{name}")
    expect(tags).to_contain_text(f"cli={name}")
    expect(page.get_by_text("the run of table 2")).to_be_visible()
    page.get_by_role("button", name="Add a tag").click()
    page.get_by_label("Tag", exact=True).fill(f"page={name}")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(tags).to_contain_text(f"page={name}")
    whole = mlflow.get("/api/2.0/mlflow/runs/get", params={"run_id": job}).json()["run"]["data"]["tags"]
    found = {tag["key"]: tag["value"] for tag in whole}
    assert (found["page"], found["cli"], found["mlflow.note.content"]) == (name, name, "the run of table 2")
    assert f"page={name}" in stack.ok("status", job)
    stack.ok("tag", job, "--remove", "cli", "--note", "")
    until(lambda: job not in stack.ok("status", "--tag", f"cli={name}"), "the tag is gone")
    page.locator("summary").filter(has_text="Priority").click()
    page.get_by_label("Priority", exact=True).fill("7")
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page.get_by_text("Its priority is 7.")).to_be_visible()
    page.get_by_text("Resubmit", exact=True).click()
    page.get_by_role("button", name="From the start").click()
    again = page.get_by_role("status").filter(has_text="Submitted as ").get_by_role("link").inner_text()
    stack.ok("cancel", job, again, "--wait")
    assert stack.run("tag", "no-such-job", "a=b").code != 0
