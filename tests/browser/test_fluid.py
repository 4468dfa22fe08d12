"""Ten thousand jobs and a million points stay fluid: no task of the main thread takes as long as drawing all of them would, and
no spike is lost."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.tracing import LONGEST_MS, traced


def test_ten_thousand_jobs_are_listed_filtered_ordered_and_scrolled(page: Page) -> None:
    with traced(page) as trace:
        page.goto("/jobs")
        expect(page.get_by_text(re.compile(r"^10,05\d of 10,05\d jobs$"))).to_be_visible()
        page.get_by_role("searchbox").press_sequentially("llama speech")
        expect(page.get_by_text(re.compile(r"^\d{3} of 10,05\d jobs$"))).to_be_visible()
        page.get_by_role("searchbox").fill("")
        page.get_by_role("button", name="Order by Loss").click()
        jobs = page.get_by_role("list", name="Jobs")
        for _ in range(20):
            jobs.hover()
            page.mouse.wheel(0, 20_000)
        jobs.press("End")
        expect(jobs.locator("[aria-posinset]").last).to_have_attribute("aria-posinset", re.compile(r"^10,?05\d$"))
        assert jobs.get_by_role("listitem").count() < 60, "only what is in sight is in the document"
    assert 0 < trace.longest_ms < LONGEST_MS, trace.tasks_ms[:10]


def test_a_million_points_are_drawn_zoomed_and_keep_their_spike(page: Page) -> None:
    with traced(page) as trace:
        page.goto("/jobs/bulk-00004")
        expect(page.get_by_role("heading", name="loss 1,000,000 points")).to_be_visible()
        # One value in a million is a spike, at step 7777.
        curve = page.get_by_role("img", name=re.compile(r"^loss: .* greatest 9\d\.\d"))
        expect(curve).to_be_visible()
        curve.scroll_into_view_if_needed()
        box = curve.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 200, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 500, box["y"] + 60, steps=10)
        page.mouse.up()
        expect(page.get_by_role("button", name="Show all steps")).to_be_visible()
        expect(page.get_by_role("heading", name=re.compile(r"^loss [2-9]\d\d,\d{3} points$"))).to_be_visible()
        page.get_by_role("button", name="Show all steps").click()
        expect(page.get_by_role("heading", name="loss 1,000,000 points")).to_be_visible()
    assert 0 < trace.longest_ms < LONGEST_MS, trace.tasks_ms[:10]


def test_ten_thousand_devices_are_drawn_at_once(page: Page) -> None:
    with traced(page) as trace:
        page.goto("/")
        expect(page.get_by_role("application")).to_have_attribute("aria-label", re.compile("^10,000 devices"))
        page.keyboard.press("t")
        page.wait_for_timeout(500)
    assert 0 < trace.longest_ms < LONGEST_MS, trace.tasks_ms[:10]
