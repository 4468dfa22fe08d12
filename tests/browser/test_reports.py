"""Reports in a real browser: what attacks a reader does nothing, panels are drawn, paper has all of them, a link shows one run."""

from __future__ import annotations

import re
import time
from urllib.parse import quote

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import sign_in
from tests.browser.report_story import ATTACK, REPORT
from tests.browser.story import JOB
from tests.browser.world import KEY, World
from trainhouse.gateway.auth import run_links
from trainhouse.gateway.auth.keyring import id_of
from trainhouse.gateway.auth.roles import Principal, Role

AT = f"/reports/default/{quote(REPORT)}"


def test_a_report_shows_its_text_and_its_panels(page: Page) -> None:
    page.goto("/reports")
    page.get_by_role("link", name=REPORT).click()
    expect(page.get_by_text("project default · version 3 · saved by ada")).to_be_visible()
    expect(page.get_by_role("heading", name="What was tried")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^loss of 3 runs: sweep-01 last "))).to_be_visible()
    rows = page.get_by_role("region", name="Runs", exact=True).get_by_role("row")
    expect(rows).to_have_count(6)
    expect(page.get_by_role("list", name="jobs by state").get_by_text("SUCCEEDED")).to_be_visible()
    expect(page.get_by_text('type is one of curves, runs, sql, not "nothing"')).to_be_visible()
    paper = page.get_by_role("link", name="paper")
    assert (paper.get_attribute("rel"), paper.get_attribute("target")) == ("noopener noreferrer nofollow", "_blank")
    assert page.get_by_role("cell", name="0.8").evaluate("cell => getComputedStyle(cell).textAlign") == "right"
    expect(page.get_by_role("img", name="pixel")).to_be_visible()


def test_an_earlier_version_is_shown_by_its_address(page: Page) -> None:
    page.goto(f"{AT}?version=1")
    expect(page.get_by_role("heading", name="First")).to_be_visible()
    page.get_by_role("button", name="Show the newest").click()
    expect(page.get_by_role("heading", name="What was tried")).to_be_visible()


def test_a_report_that_attacks_its_reader_is_text(page: Page) -> None:
    page.goto(f"/reports/default/{ATTACK}")
    expect(page.get_by_text("The end of it.")).to_be_visible()
    body = page.locator(".report-body")
    assert page.evaluate("window.hacked") is None
    assert body.locator("script, iframe, form, input, style, svg, math, base, object, embed").count() == 0
    assert body.locator("[onclick], [onerror], [onload], [id], [name], [style]").count() == 0
    addresses = body.locator("a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    assert addresses and all(re.match(r"https?://|/[^/]", address) for address in addresses), addresses
    assert body.locator("img").count() == 0, "neither an image of another host nor one that asks this gateway is loaded"


def test_all_panels_are_drawn_for_paper(page: Page) -> None:
    page.goto(AT)
    expect(page.get_by_role("heading", name="What was tried")).to_be_visible()
    page.evaluate("window.print = () => { window.printed = document.querySelectorAll('[data-waits]').length; }")
    page.get_by_role("button", name="Print").click()
    page.wait_for_function("window.printed !== undefined")
    assert page.evaluate("window.printed") == 0
    page.emulate_media(media="print")
    expect(page.get_by_role("navigation", name="Pages")).to_be_hidden()
    expect(page.get_by_role("button", name="Edit")).to_be_hidden()


def test_a_preview_follows_what_is_typed(page: Page) -> None:
    page.goto(f"{AT}?edit=1")
    page.get_by_label("Markdown of the report").fill("## Typed\n\n```panel\ntype: runs\ncolumns: [nothing]\n```\n")
    expect(page.get_by_role("heading", name="Typed")).to_be_visible()
    expect(page.get_by_text("there is no column nothing; there are run, state")).to_be_visible()


def test_a_reader_of_another_project_sees_no_report(context: BrowserContext, world: World) -> None:
    sign_in(context, world.gateway.token("viewer", projects=("speech",)))
    page = context.new_page()
    page.goto(AT)
    expect(page.get_by_text("that you may see")).to_be_visible()
    page.goto("/reports")
    expect(page.get_by_text("No report was saved yet.")).to_be_visible()


@pytest.mark.parametrize("signed", [False, True])
def test_a_link_opens_one_run_and_leaves_nothing_in_the_address(context: BrowserContext, world: World, signed: bool) -> None:
    if signed:
        sign_in(context, world.gateway.token("viewer"))
    maker = Principal("eva", (Role.ADMIN,), ("*",), "t1", key_id=id_of(KEY.encode()))
    link = run_links.link_to(maker, JOB, "research", int(time.time()) + 3600)
    page = context.new_page()
    page.goto(f"/shared#{quote(run_links.text_of(KEY.encode(), link))}")
    if signed:
        expect(page.get_by_text("You are signed in as eva.")).to_be_visible()
        assert "#" not in page.url
        page.get_by_role("button", name="Open the run").click()
    expect(page).to_have_url(re.compile(f"/jobs/{JOB}$"))
    expect(page.get_by_role("heading", name=re.compile(r"^loss \d+ points"))).to_be_visible()
    expect(page.get_by_text("shared by eva")).to_be_visible()
    assert page.get_by_role("navigation", name="Parts of the job").get_by_role("link").all_inner_texts() == [
        *("Summary", "Media", "Ranks", "Checkpoints", "Logs", "Config", "Artifacts")
    ]
    page.goto("/sql")
    page.get_by_role("link", name="Open the run").click()
    expect(page).to_have_url(re.compile(f"/jobs/{JOB}$"))


def test_a_link_that_is_no_link_says_so(context: BrowserContext) -> None:
    page = context.new_page()
    page.goto("/shared#nonsense")
    expect(page.get_by_text("ask for a new link")).to_be_visible()
    page.goto("/shared")
    expect(page.get_by_text("the address has none")).to_be_visible()
