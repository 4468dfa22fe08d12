"""Nodes over time, SQL's editor, the lineage as a graph, groups of the overview, cost in steps."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.story import JOB
from tests.browser.tracing import LONGEST_MS, traced


def test_nodes_have_headers_and_what_is_not_reported_says_so(page: Page) -> None:
    with traced(page) as trace:
        page.goto("/nodes")
        expect(page.get_by_text("Heartbeat", exact=True)).to_be_visible()
        expect(page.get_by_role("list", name="Nodes").get_by_text("not reported").first).to_be_visible()
    assert 0 < trace.longest_ms < LONGEST_MS, trace.tasks_ms[:10]


def test_the_lineage_fits_and_names_steps_losses_and_edges(page: Page) -> None:
    page.goto(f"/jobs/{JOB}?tab=lineage")
    graph = page.get_by_role("region", name="Lineage graph")
    expect(graph).to_contain_text("step 60")
    expect(graph).to_contain_text("restored")
    assert page.evaluate("(() => { const g = document.querySelector('.graph'); return g.scrollWidth - g.clientWidth; })()") <= 1


def test_sql_completes_tables_and_keeps_a_history(page: Page) -> None:
    page.goto("/sql")
    field = page.get_by_label("SQL", exact=True)
    field.fill("")
    expect(page.get_by_text(re.compile(r"^\d+ tables"))).to_be_visible()
    field.press_sequentially("SELECT * FROM queue_wai")
    expect(page.get_by_role("option", name="queue_waits")).to_be_visible()
    page.keyboard.press("Escape")
    field.fill("SELECT nope FROM job_status")
    field.press("Control+Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    field.fill("SELECT 1 AS one")
    field.press("Control+Enter")
    expect(page.get_by_text(re.compile("^1 row in"))).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert download.value.path().read_text() == '"one"\n1\n'
    page.locator("summary.button").filter(has_text="History").click()
    expect(page.get_by_role("button", name="SELECT 1 AS one")).to_be_visible()


def test_an_overview_has_what_runs_before_what_waits_before_alerts(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_role("region", name=re.compile("^Jobs that hold devices")).first).to_be_visible()
    assert page.locator("main h2").all_inner_texts()[:3] == ["Running", "Waiting", "Alerts"]


def test_cost_by_team_is_drawn_over_time(page: Page) -> None:
    page.goto("/utilization")
    expect(page.get_by_role("img", name=re.compile("^Cost by team"))).to_be_visible()
