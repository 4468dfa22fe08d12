"""Curves of 100 runs of a million points each, beside each other in a real Chromium: until they are answered, zoomed and refined, and the
longest task of the page's main thread."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.bench import report
from tests.browser.chromium import executable
from tests.browser.crowd import Size
from tests.browser.tracing import traced
from tests.browser.world import World, world_in

RUNS, POINTS = 100, 1_000_000
TIMES = 3
WAIT_MS = 300_000
SETTLED_MS = 3000
AIM_MS = 100.0
DRAWN = re.compile(rf"^loss of {RUNS} runs: .*; step 0 to [1-9][\d,]*$")
CHART = f".chart[aria-label^='loss of {RUNS} runs']"
BY_TIME = re.compile(r"; time \(UTC\) 20")
ZOOMED = re.compile(rf"^loss of {RUNS} runs: .*; step [1-9][\d,]* to [1-9][\d,]*$")


def run() -> None:
    """Prints a line for all curves, and one for a part of them."""
    expect.set_options(timeout=WAIT_MS)
    size = Size(nodes=40, jobs=400, long_curve=1000, long_runs=RUNS, long_points=POINTS)
    with TemporaryDirectory() as folder, world_in(Path(folder), size) as world, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        found = [_visit(browser, world) for _ in range(TIMES)]
        browser.close()
    for name in ("drawn", "zoomed", "by_time"):
        report.line(
            f"page_curves_{name}",
            unit="ms",
            times=TIMES,
            runs=RUNS,
            points_each=POINTS,
            until_answered=report.percentile([one[name][0] for one in found], 50),
            script=report.percentile([one[name][1] for one in found], 50),
            longest_task=max(one[name][2] for one in found),
            aim_longest_task=AIM_MS,
        )


def _visit(browser: Browser, world: World) -> dict[str, tuple[float, float, float]]:
    """All curves, a part of them by a drag, and that part over time: until each is answered, in scripts, and the longest task, ms."""
    context = browser.new_context(base_url=world.gateway.url, viewport={"width": 1400, "height": 900})
    context.request.post("/v1/session", data={"token": world.gateway.token()}, headers={"X-Trainhouse-Page": "1"})
    page = context.new_page()
    jobs = "&".join(f"job=long-{number:03}" for number in range(RUNS))
    found = {
        "drawn": _measured(page, lambda: page.goto(f"/compare?{jobs}&m=loss", wait_until="commit"), DRAWN),
        "zoomed": _measured(page, lambda: _drag(page), ZOOMED),
        "by_time": _measured(page, lambda: page.locator("select[aria-label='x axis']").select_option("time"), BY_TIME, asks=False),
    }
    context.close()
    return found


def _measured(page: Page, act: Callable[[], object], name: re.Pattern[str], asks: bool = True) -> tuple[float, float, float]:
    """Looks at the page after the trace alone: what looks is a task of the page itself, of 80 ms when it comes first."""
    with traced(page) as trace:
        began = time.perf_counter()
        if asks:
            with page.expect_response(re.compile("/v1/compare/curves"), timeout=WAIT_MS) as answer:
                act()
            answer.value.finished()
        else:
            act()
        until_ms = (time.perf_counter() - began) * 1000
        page.wait_for_timeout(SETTLED_MS)
    expect(page.locator(CHART)).to_have_attribute("aria-label", name)
    return until_ms, trace.script_ms, trace.longest_ms


def _drag(page: Page) -> None:
    curve = page.locator(CHART)
    curve.scroll_into_view_if_needed()
    box = curve.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 250, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 550, box["y"] + 60, steps=10)
    page.mouse.up()
