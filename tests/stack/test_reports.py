"""Reports, views and links to one run on a whole stack: saved by commands and pages at once, read by a browser without an account."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.chromium import executable
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack
WAIT_MS = 300_000
PROGRAM = """\
from trainhouse.workers import Session
with Session.start() as session:
    for step in session.steps(20):
        session.log(loss=1 / (1 + step))
"""


@pytest.fixture
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        yield started
        started.close()


def signed_in(stack: LiveStack, browser: Browser) -> Page:
    """A page that `trainhouse open` would open."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(stack.ok("open", "--print").strip())
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    return page


def origin(page: Page) -> str:
    return "/".join(page.url.split("/")[:3])


def gateway(stack: LiveStack) -> httpx.Client:
    found = dict(re.findall(r"export (\w+)='?([^'\n]*)'?", stack.ok("env")))
    headers = {"Authorization": f"Bearer {found['TRAINHOUSE_GATEWAY_TOKEN']}"}
    return httpx.Client(base_url=found["TRAINHOUSE_GATEWAY_URL"], headers=headers, timeout=480)


def test_people_who_save_at_once_lose_nothing_and_read_who_was_first(stack: LiveStack, tmp_path: Path) -> None:
    name = f"Rates {secrets.token_hex(3)}"
    (tmp_path / "rates.md").write_text("# One\n")
    assert "saved version 1" in stack.ok("report", "save", name, "rates.md", cwd=tmp_path)
    assert stack.ok("report", "show", name) == "# One\n"
    again = stack.run("report", "save", name, "rates.md", cwd=tmp_path)
    assert again.code == 3 and "saved version 1" in again.err
    at = f"/v1/reports/default/{quote(name)}"
    with gateway(stack) as http, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: http.put(at, json={"content": f"# Of {n}", "replaces": 1}), range(8)))
        won = [n for n, answer in enumerate(answers) if answer.status_code == 200]
        assert len(won) == 1 and {a.status_code for a in answers} == {200, 409}, [a.text for a in answers]
        assert http.get(at).json()["content"] == f"# Of {won[0]}"
        versions = http.get(f"{at}/history").json()["items"]
        assert [v["version"] for v in versions] == [2, 1]
    rows = [json.loads(line) for line in stack.ok("report", "history", name, "--json").splitlines()]
    assert [row["version"] for row in rows] == [2, 1]
    stack.ok("report", "delete", name)
    assert stack.run("report", "show", name).code == 66
    assert name not in stack.ok("report", "list")
    assert [json.loads(line)["deleted"] for line in stack.ok("report", "history", name, "--json").splitlines()] == [1, 0, 0]


def test_a_report_is_written_on_its_page_and_a_conflict_is_told(stack: LiveStack, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    job = stack.ok("submit", "--", "python", "train.py", cwd=tmp_path).split()[-1]
    name = f"Page {secrets.token_hex(3)}"
    page = signed_in(stack, browser)
    page.goto(f"{origin(page)}/reports")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Project").fill("default")
    page.get_by_role("button", name="Write it").click()
    text = f"Words **of mine**.\n\n```panel\ntype: curves\nmetric: loss\njobs: [{job}]\n```\n"
    page.get_by_label("Markdown of the report").fill(text)
    expect(page.get_by_role("img", name=re.compile("^loss of 1 run: "))).to_be_visible()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("project default · version 1 · saved by")).to_be_visible()
    expect(page.get_by_role("strong")).to_have_text("of mine")
    page.get_by_role("button", name="Edit").click()
    (tmp_path / "theirs.md").write_text("# Theirs\n")
    stack.ok("report", "save", name, "theirs.md", "--replaces", "1", cwd=tmp_path)
    page.get_by_label("Markdown of the report").fill("# Mine again\n")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text(f"saved version 2 of report {name}")
    page.get_by_role("button", name="Show what was saved").click()
    expect(page.get_by_label("Version 2")).to_have_text("# Theirs\n")
    page.get_by_role("button", name="Go on from version 2 with my text").click()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("project default · version 3 · saved by")).to_be_visible()
    page.get_by_text("History", exact=True).click()
    page.get_by_role("button", name="Version 2").click()
    expect(page.get_by_role("heading", name="Theirs")).to_be_visible()


def test_a_view_is_shared_by_its_project_and_one_of_the_browser_is_offered(stack: LiveStack, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    job = stack.ok("submit", "--", "python", "train.py", cwd=tmp_path).split()[-1]
    view, old = f"shared-{secrets.token_hex(3)}", f"old-{secrets.token_hex(3)}"
    page = signed_in(stack, browser)
    page.goto(f"{origin(page)}/jobs/{job}")
    page.evaluate("(name) => localStorage.setItem('trainhouse:views:job', JSON.stringify([{name, fields: [['log', '1']]}]))", old)
    page.reload()
    expect(page.get_by_role("heading", name=re.compile("^loss"))).to_be_visible()
    page.get_by_label("Smoothing").fill("0.6")
    page.get_by_text("Views", exact=True).click()
    page.get_by_label("Name of the view").fill(view)
    page.get_by_label("Where the view is saved").select_option("default")
    page.get_by_role("button", name="Save this view").click()
    expect(page.get_by_text("Saved in project default.")).to_be_visible()
    page.get_by_role("button", name=f"Share the view {old} with project default").click()
    other = signed_in(stack, browser)
    other.goto(f"{origin(page)}/jobs/{job}")
    other.get_by_text("Views", exact=True).click()
    expect(other.get_by_role("button", name=old, exact=True)).to_be_visible()
    other.get_by_role("button", name=view, exact=True).click()
    expect(other).to_have_url(re.compile("smooth=0.6"))


def test_a_link_to_one_run_opens_it_without_an_account_until_it_is_revoked(stack: LiveStack, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    job, beside = (stack.ok("submit", "--", "python", "train.py", cwd=tmp_path).split()[-1] for _ in range(2))
    owner = signed_in(stack, browser)
    owner.goto(f"{origin(owner)}/jobs/{job}")
    owner.get_by_text("Share", exact=True).click()
    owner.get_by_role("button", name="Make a link").click()
    link = owner.get_by_label("The link").input_value()
    assert "/shared#" in link
    guest = browser.new_context().new_page()
    guest.set_default_timeout(WAIT_MS)
    guest.goto(origin(owner) + link[link.index("/shared#") :])
    expect(guest).to_have_url(re.compile(f"/jobs/{job}$"))
    expect(guest.get_by_role("heading", name=re.compile("^loss"))).to_be_visible()
    assert guest.get_by_role("navigation", name="Pages").count() == 0 and guest.get_by_role("button", name="Cancel job").count() == 0
    guest.goto(f"{origin(owner)}/jobs/{beside}")
    expect(guest.get_by_text("This link opens one run, and nothing else.")).to_be_visible()
    asked = guest.context.request
    for path in (f"/v1/training-jobs/{beside}", f"/v1/training-jobs/{beside}/logs", "/v1/training-jobs", "/v1/reports", "/v1/stream"):
        assert asked.get(origin(owner) + path).status == 403, path
    sql = asked.post(f"{origin(owner)}/v1/query", data={"query": "SELECT 1"}, headers={"X-Trainhouse-Page": "1"})
    assert sql.status == 403
    revoke = owner.get_by_role("button", name=re.compile("^Revoke the link of"))
    expect(revoke).to_have_count(1)
    revoke.click()
    expect(revoke).to_have_count(0)
    until(lambda: asked.get(f"{origin(owner)}/v1/training-jobs/{job}").status == 401)
    made = stack.ok("report", "link", job, "--days", "1").strip()
    assert "/shared#" in made and os.linesep not in made
    listed = stack.ok("sql", f"SELECT kind, sub FROM audit WHERE job_id = '{job}' AND kind = 'issued'", "--format", "JSONEachRow")
    assert listed.count("issued") >= 1
