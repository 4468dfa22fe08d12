"""The pages with 10,000 jobs and devices, a million points, 50,000 trials in a real Chromium: first paint, scripts, longest task."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

from tests.bench import report
from tests.browser.chromium import executable
from tests.browser.crowd import Size
from tests.browser.study_story import huge
from tests.browser.test_studies import HUGE_PAGE, whole
from tests.browser.tracing import traced
from tests.browser.world import world_in

TIMES = 3
SIZE = Size(nodes=1250, jobs=10_000, long_curve=1_000_000)
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
# A page, and what is there when all of it is.
PAGES: dict[str, tuple[str, Callable[[Page], None]]] = {
    "overview": ("/", lambda page: expect(page.get_by_role("application")).to_have_attribute("aria-label", re.compile("^10,000"))),
    "jobs": ("/jobs", lambda page: expect(page.get_by_text(re.compile(r"^10,05\d of 10,05\d jobs$"))).to_be_visible()),
    "curve": ("/jobs/bulk-00004", lambda page: expect(page.get_by_role("heading", name="loss 1,000,000 points")).to_be_visible()),
    "study": (HUGE_PAGE, whole),
}


def run() -> None:
    """Prints a line a page."""
    expect.set_options(timeout=60_000)
    with TemporaryDirectory() as folder, world_in(Path(folder), SIZE) as world, sync_playwright() as playwright:
        huge(world.tables)
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        for name in PAGES:
            found = [_visit(_signed_in(browser.new_context(base_url=world.gateway.url), world.gateway.token()), name) for _ in range(TIMES)]
            _print(name, found)
        browser.close()


def _signed_in(context: BrowserContext, token: str) -> BrowserContext:
    context.request.post("/v1/session", data={"token": token}, headers={"X-Trainhouse-Page": "1"})
    return context


def _visit(context: BrowserContext, name: str) -> dict[str, float]:
    """One visit with an empty cache."""
    path, ready = PAGES[name]
    page: Page = context.new_page()
    with traced(page) as trace:
        page.goto(path)
        ready(page)
        complete_ms = page.evaluate("performance.now()")
    painted_ms = page.evaluate(PAINTED)
    context.close()
    return {"painted": painted_ms, "complete": complete_ms, "script": trace.script_ms, "longest": trace.longest_ms}


def _print(name: str, found: list[dict[str, float]]) -> None:
    def middle(of: str) -> float:
        return report.percentile([one[of] for one in found], 50)

    report.line(
        f"page_{name}",
        unit="ms",
        times=len(found),
        first_paint=middle("painted"),
        complete=middle("complete"),
        script=middle("script"),
        longest_task=max(one["longest"] for one in found),
        aim_longest_task=100.0,
    )
