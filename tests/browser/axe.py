"""A page looked at by axe: wide and light, then on a phone and dark."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, WIDE

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
ALL = {"runOnly": {"type": "tag", "values": TAGS}}
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}


def complaints(page: Page, path: str, shows: str, *, in_the_dark: bool) -> list[str]:
    """Violations of a page, and how much wider than a phone it is. `shows`: role and name of what is there with its content."""
    page.set_viewport_size(WIDE)
    page.emulate_media(color_scheme="light")
    page.goto(path)
    role, _, name = shows.partition(":")
    expect(page.get_by_role(role, name=name).first).to_be_visible()  # type: ignore[arg-type]
    expect(page.get_by_text("Loading ")).to_have_count(0)
    found = violations(page, ALL)
    dark_phone(page)
    wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    dark = violations(page, COLOURS) if in_the_dark else []
    return found + dark + ([f"{wider} px wider than a phone"] if wider > 0 else [])


def dark_phone(page: Page) -> None:
    """Makes it narrow and dark."""
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html[data-theme=dark]")).to_have_count(1)


def violations(page: Page, options: dict[str, object]) -> list[str]:
    """Violations that axe finds, in words."""
    found = Axe().run(page, options=options).response["violations"]
    return [f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}" for one in found]
