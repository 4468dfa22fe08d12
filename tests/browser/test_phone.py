"""On a narrow screen: menus stay on it, long names wrap, chosen columns are shown."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.story import JOB
from tests.browser.world import World

NARROW = {"width": 400, "height": 800}


def _wider_by(page: Page) -> int:
    wider: int = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return wider


def _on_screen(card: Locator) -> None:
    box = card.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= NARROW["width"], box


def test_menus_stay_on_the_screen_and_escape_closes_them(page: Page) -> None:
    page.set_viewport_size(NARROW)
    for path, names in (("/jobs", ("Columns", "Views")), (f"/jobs/{JOB}", ("Views",))):
        page.goto(path)
        for name in names:
            summary = page.locator("summary").filter(has_text=name)
            summary.click()
            card = page.locator("details.menu[open] > .card")
            expect(card).to_be_visible()
            _on_screen(card)
            page.keyboard.press("Escape")
            expect(page.locator("details.menu[open]")).to_have_count(0)
            expect(summary).to_be_focused()


def test_long_names_wrap(page: Page, world: World) -> None:
    long = "a" * 128
    world.tables.clickhouse.command(
        f"INSERT INTO jobs_rows SELECT * REPLACE ('long-1' AS job_key, 'long-1' AS job_id, '{long}' AS name) "
        "FROM (SELECT * FROM jobs_rows WHERE job_id = 'sweep-01')"
    )
    page.set_viewport_size(NARROW)
    page.goto("/compare?job=long-1&job=sweep-02")
    expect(page.get_by_role("group", name="Runs; choose one to see it alone").get_by_text(long)).to_be_visible()
    assert _wider_by(page) <= 0
    page.goto(f"/jobs?q={long}{long}")
    expect(page.get_by_text("No job fits")).to_be_visible()
    assert _wider_by(page) <= 0


def test_chosen_columns_are_shown_below_the_name(page: Page) -> None:
    page.set_viewport_size(NARROW)
    page.goto("/jobs?q=sweep-0&order=name&col=state&col=team&col=loss&col=restarts&col=user")
    row = page.get_by_role("list", name="Jobs").get_by_role("listitem").first
    expect(row).to_contain_text(re.compile(r"sweep-00.*succeeded.*Team language.*User ada.*Loss .*Restarts ", re.S))
    box, last = row.bounding_box(), row.get_by_text("Restarts").bounding_box()
    assert box is not None and last is not None and last["y"] + last["height"] <= box["y"] + box["height"]
    assert _wider_by(page) <= 0


def test_the_last_column_stays(page: Page) -> None:
    page.goto("/jobs?q=sweep-0&col=loss&col=user")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("User", exact=True).uncheck()
    expect(page.get_by_label("Loss", exact=True)).to_be_disabled()
    expect(page.get_by_text("One column at least is shown")).to_be_visible()
    expect(page.get_by_role("button", name="Order by Team")).to_have_count(0)
