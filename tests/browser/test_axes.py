"""What the axes of curves say: samples, relative time and time as they are, and a way out of every zoom."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.story import JOB
from tests.browser.test_faults import of
from tests.browser.world import World
from trainhouse.projections.store.rollups import roll_up


def test_relative_time_begins_at_the_first_point_before_the_start(page: Page) -> None:
    page.goto("/jobs")
    curve = {"step": [0, 1, 2], "time_ms": [5000, 6000, 9000]}
    x = of("series.js", "m.xOf(given.curve, 'relative', { began_ms: given.began_ms })")
    assert page.evaluate(x, {"curve": curve, "began_ms": 7000}) == [0, 1, 4]
    assert page.evaluate(x, {"curve": curve, "began_ms": 4000}) == [1, 2, 5]
    assert page.evaluate(x, {"curve": curve, "began_ms": None}) == [0, 1, 4]
    began = of("series.js", "m.beganOf(given, 7000, 3000)")
    assert page.evaluate(began, curve) == 3000, "a range of steps begins where the whole did"


def test_an_axis_of_time_is_as_fine_as_its_ticks(page: Page) -> None:
    page.goto("/jobs")
    hours = of("parts/curve.js", "m.hoursOf(given)")
    assert page.evaluate(hours, [26532, 26533]) == ["07:22:12\n01-01", "07:22:13"]
    assert page.evaluate(hours, [26532.5, 26533]) == ["07:22:12.500\n01-01", "07:22:13.000"]
    assert page.evaluate(hours, [86340, 86400]) == ["23:59\n01-01", "00:00\n01-02"]
    ends = of(
        "parts/curve.js",
        "[m.endsOf([100], true, false), m.endsOf([10], false, true), m.endsOf([1], false, false), m.endsOf([1, 2], true, false)]",
    )
    assert page.evaluate(ends) == [{"min": 70, "max": 130}, {"min": 0, "max": 40}, None, None]


def test_one_point_has_an_axis_of_time_of_its_own(page: Page) -> None:
    for x in ("time", "relative"):
        page.goto(f"/jobs/{JOB}?m=mfu&x={x}")
        expect(page.get_by_role("img", name=re.compile("^mfu: mfu last 0.412"))).to_be_visible()


def test_the_key_minus_shows_more_and_at_last_all(page: Page) -> None:
    page.goto(f"/jobs/{JOB}?m=loss&from=40&to=60")
    curve = page.get_by_role("img", name=re.compile("^loss: "))
    expect(curve).to_have_attribute("aria-label", re.compile("step 40 to 60"))
    curve.press("-")
    expect(page).to_have_url(re.compile("from=35&to=65"))
    expect(curve).to_have_attribute("aria-label", re.compile("step 35 to 65"))
    curve.press("+")
    expect(curve).to_have_attribute("aria-label", re.compile("step 42 to 58"))
    curve.press("0")
    expect(curve).to_have_attribute("aria-label", re.compile("step 0 to 1[123]"))
    curve.press("-")
    expect(page).not_to_have_url(re.compile("from="))
    page.goto("/compare?job=sweep-01&job=sweep-02&m=loss&from=100&to=120&x=relative")
    curve = page.get_by_role("img", name=re.compile("^loss of 2 runs: "))
    expect(curve).to_be_visible()
    curve.press("-")
    expect(page).to_have_url(re.compile("from=95&to=125"))


def test_compare_draws_over_samples(page: Page, world: World) -> None:
    world.tables.clickhouse.command(
        "INSERT INTO step_metrics (job_id, metric, epoch, attempt, rank, step, time, value, node_id) "
        "SELECT job_id, 'samples', epoch, attempt, rank, step, time, step * 32, node_id FROM step_metrics "
        "WHERE metric = 'loss' AND job_id IN ('sweep-21', 'sweep-22')"
    )
    roll_up(world.tables.clickhouse, "metric = 'samples'")
    page.goto("/compare?job=sweep-21&job=sweep-22&job=sweep-23&m=loss")
    page.get_by_label("x axis").select_option("samples")
    curve = page.get_by_role("img", name=re.compile("^loss of 3 runs: "))
    expect(curve).to_have_attribute("aria-label", re.compile("samples 0 to 12,768$"))
    expect(page.get_by_text("1 run without samples: not on this axis.")).to_be_visible()
