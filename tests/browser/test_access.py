"""Every page, in light and dark, wide and on a phone: no violation that axe finds, and nothing wider than the screen."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.axe import ALL, COLOURS, complaints, dark_phone, violations
from tests.browser.dataset_story import LONELY, NAME
from tests.browser.report_story import REPORT
from tests.browser.story import JOB
from tests.browser.world import World

# What a page shows when its own content is there.
PAGES = {
    "/": "region:Jobs that hold devices",
    "/jobs": "list:Jobs",
    f"/jobs/{JOB}": "img:States in order",
    f"/jobs/{JOB}?tab=ranks": "img:Step times of 16 rows of ranks",
    f"/jobs/{JOB}?tab=performance": "region:Traces, the newest first",
    f"/jobs/{JOB}?tab=checkpoints": "region:Checkpoints, the newest first",
    f"/jobs/{JOB}?tab=logs": "list:Lines of the logs",
    f"/jobs/{JOB}?tab=events": "region:Events, the oldest first",
    f"/jobs/{JOB}?tab=why": "heading:What would help",
    f"/jobs/{JOB}?tab=config": "region:Config",
    f"/jobs/{JOB}?tab=artifacts": "region:Artifacts that the job stored and used",
    f"/jobs/{JOB}?tab=lineage": "region:Lineage graph",
    "/compare?job=sweep-01&job=sweep-02&job=sweep-03": "region:Parallel coordinates",
    "/nodes": "list:Nodes",
    "/nodes/node-0001": "region:Devices of the node",
    "/datasets": "region:Datasets, the newest version of each",
    f"/datasets/{NAME}": "region:Fields against the version before",
    f"/datasets/{LONELY}": "region:Splits of the version",
    "/reports": "region:Reports, those saved last first",
    f"/reports/default/{quote(REPORT)}": "list:jobs by state",
    f"/reports/default/{quote(REPORT)}?edit=1": "list:jobs by state",
    "/utilization": "region:Device time and cost by team",
    "/sql?q=SELECT%20state,%20count()%20AS%20jobs%20FROM%20job_status%20GROUP%20BY%20state": "list:Rows of the answer",
}
# Of these the colours are looked at in the dark too: together they have every part that there is.
IN_THE_DARK = (
    "/",
    "/jobs",
    f"/jobs/{JOB}",
    f"/jobs/{JOB}?tab=ranks",
    f"/jobs/{JOB}?tab=logs",
    f"/datasets/{NAME}",
    f"/reports/default/{quote(REPORT)}",
    "/utilization",
)


@pytest.mark.parametrize("path", PAGES)
def test_noviolations_and_nothing_sticks_out(looked_at: Page, path: str) -> None:
    assert not complaints(looked_at, path, PAGES[path], in_the_dark=path in IN_THE_DARK)


def test_the_sign_in_page(browser: Browser, world: World) -> None:
    made = browser.new_context(base_url=world.gateway.url, bypass_csp=True)
    page = made.new_page()
    page.goto("/")
    expect(page.get_by_label("Token")).to_be_focused()
    assert not violations(page, ALL)
    dark_phone(page)
    assert not violations(page, COLOURS)
    made.close()
