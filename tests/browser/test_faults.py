"""Faults that users met on the pages: each is tried as it was met."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from playwright.sync_api import Page, Route, expect

from tests.browser.story import JOB
from tests.browser.world import World
from trainhouse.events.model.alert import AlertFired, Severity
from trainhouse.events.wire import topics

# Lines and axes are grey: what has a colour is a curve.
COLOURED = """(chart) => {
  const canvas = chart.querySelector("canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) {
    const [r, g, b, a] = data.slice(i, i + 4);
    if (a > 200 && Math.max(r, g, b) - Math.min(r, g, b) > 60) count += 1;
  }
  return count;
}"""


def of(module: str, expression: str) -> str:
    """A script that gives an expression's value, `m` being a module of the pages and `given` its argument."""
    return f"async (given) => {{ const m = await import('/static/app/{module}'); return {expression}; }}"


def test_requests_that_a_change_of_networks_ended_are_sent_again(page: Page) -> None:
    ended: Counter[str] = Counter()

    def end_the_first(route: Route) -> None:
        ended[asked := route.request.url.partition("?")[0].rpartition("/")[2]] += 1
        if ended[asked] == 1:
            route.abort("internetdisconnected")
        else:
            route.fallback()

    page.route("**/views/job.js", end_the_first)
    page.route(f"**/v1/training-jobs/{JOB}", end_the_first)
    page.goto(f"/jobs/{JOB}")
    expect(page.get_by_role("heading", name=re.compile("^loss "))).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    assert len(ended) == 2 and min(ended.values()) > 1, ended


def test_a_metric_with_one_point_shows_it(page: Page) -> None:
    page.goto(f"/jobs/{JOB}?m=mfu")
    chart = page.get_by_role("img", name=re.compile("^mfu: mfu last 0.412"))
    expect(chart).to_be_visible()
    assert chart.evaluate(COLOURED) >= 10


def test_system_metrics_that_come_later_wait_in_their_folded_group(page: Page, world: World) -> None:
    page.goto(f"/jobs/{JOB}")
    expect(page.get_by_role("heading", name=re.compile("^loss 1[23]0 points"))).to_be_visible()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    world.story.logged(2, 119, 910, {"system/memory_used_bytes": 8e9, "accuracy": 0.5})
    expect(page.get_by_role("heading", name=re.compile("^accuracy 1 point$"))).to_be_visible()
    group = page.get_by_role("group").filter(has_text="system")
    expect(group).to_contain_text("1 metric")
    expect(page.get_by_role("img", name=re.compile("^system.memory"))).to_have_count(0)
    group.get_by_text("system", exact=True).click()
    expect(page.get_by_role("img", name=re.compile("^system.memory_used_bytes: .* last 7.5 GiB"))).to_be_visible()


def test_bytes_on_an_axis_are_in_whole_units_and_not_cut(page: Page) -> None:
    page.goto("/jobs")
    words = of("units.js", "given.map((v) => m.unitOf('system/memory_bytes').tick(v))")
    assert page.evaluate(words, [0, 512 * 2**20, 3 * 2**30, 1.5 * 2**40]) == ["0", "512 MiB", "3 GiB", "1.5 TiB"]
    assert page.evaluate(of("units.js", "m.unitOf('system/device_utilization_pct').tick(45)")) == "45 %"
    assert page.evaluate(of("units.js", "m.unitOf('step/total_ms').word(3500)")) == "3.5 s"


def test_a_start_that_was_expected_before_now_is_overdue(page: Page) -> None:
    page.goto("/jobs")
    due = of("format.js", "given.map((s) => m.due(new Date(1e12 + s * 1000).toISOString(), 1e12))")
    assert page.evaluate(due, [90, 0, -24, -7200]) == ["in 1 min 30 s", "any moment", "any moment", "overdue since 2 h"]


def test_a_field_that_is_a_metric_too_is_one_axis(page: Page) -> None:
    page.goto("/jobs")
    runs = [{"job_id": n, "gpu_seconds": None, "metrics": {"lr": {"last": v}, "loss": {"last": v + 1}}} for n, v in (("a", 1), ("b", 2))]
    values = {"a": 1, "b": 2}
    given = {"runs": runs, "config": [{"path": "hyperparameters.lr", "values": values}], "parameters": [{"path": "lr", "values": values}]}
    given |= {"metrics": [{"metric": "loss"}, {"metric": "lr"}]}
    titles = "m.axesOf(given.runs, m.dimensionsOf(given.runs, given.config, given.parameters, given.metrics), 9).map((axis) => axis.title)"
    axes = of("views/compare/axes.js", titles)
    assert page.evaluate(axes, given) == ["lr", "loss"]
    runs[0]["metrics"] = {"lr": {"last": 0.5}, "loss": {"last": 2}}
    assert page.evaluate(axes, given) == ["lr", "loss", "lr, last"], "a schedule ended elsewhere than it began"


def test_compare_zooms_and_asks_for_the_range(page: Page) -> None:
    page.goto("/compare?job=sweep-01&job=sweep-02&m=loss")
    curve = page.get_by_role("img", name=re.compile("^loss of 2 runs: "))
    expect(curve).to_be_visible()
    curve.scroll_into_view_if_needed()
    box = curve.bounding_box()
    assert box is not None
    with page.expect_request(re.compile(r"compare/curves\?.*from_step=\d+&to_step=\d+")):
        page.mouse.move(box["x"] + 150, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 350, box["y"] + 60, steps=10)
        page.mouse.up()
    expect(page).to_have_url(re.compile(r"from=\d+&to=\d+"))
    page.get_by_role("button", name="Show all steps").click()
    expect(page).not_to_have_url(re.compile("from="))


def test_a_rejected_job_has_its_id_for_a_name(page: Page, world: World) -> None:
    world.tables.clickhouse.command(
        "INSERT INTO jobs_rows (job_key, version, job_id, state, reason, updated_at) "
        "VALUES ('rejected-1', 1, 'rejected-1', 'REJECTED', 'team nowhere is not in the policy', now64(3))"
    )
    page.goto("/jobs?q=rejected-1")
    row = page.get_by_role("list", name="Jobs").get_by_role("listitem")
    expect(row.get_by_role("link", name="rejected-1")).to_be_visible()
    expect(row).to_contain_text("rejected")
    page.goto("/jobs/rejected-1")
    expect(page.get_by_role("heading", name="rejected-1", level=1)).to_be_visible()


def test_alerts_of_one_cause_are_one_row(page: Page, world: World) -> None:
    about: dict[str, Any] = {"severity": Severity.WARNING, "at_ms": world.story.ms(910), "value": 9.0, "limit": 1.0, "labels": {}}
    for rule in ("slo-burn-5m-1h", "slo-burn-6h-3d"):
        for slo in ("control-plane", "ingest-lag"):
            fired = AlertFired(**about, rule=rule, key=slo, summary=f"the error budget of {slo} burns", since_ms=world.story.ms(905))
            world.story.put(topics.ALERTS, fired, 910)
    page.goto("/")
    alerts = page.get_by_role("list", name="Open alerts by cause")
    burns = alerts.get_by_role("listitem").filter(has_text="error budget")
    expect(burns.first).to_contain_text("4 alerts")
    expect(alerts.locator(":scope > li").filter(has_text="error budget")).to_have_count(1)
    expect(alerts.locator(":scope > li").filter(has_text="steps of story-1 are slow")).to_have_count(1)


def test_a_page_asks_for_each_curve_once(page: Page) -> None:
    asked: list[str] = []
    failed: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.goto("/jobs/bulk-00000")
    expect(page.get_by_text("No metric was logged yet.")).to_be_visible()
    page.goto(f"/jobs/{JOB}")
    expect(page.get_by_role("heading", name=re.compile("^loss 1[23]0 points"))).to_be_visible()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    page.wait_for_timeout(3000)
    answers = [url for url in asked if f"/v1/training-jobs/{JOB}/" in url and "/stream" not in url]
    assert any("metric=loss" in url for url in answers)
    assert {url: n for url, n in Counter(answers).items() if n > 1} == {}
    assert [url for url in failed if f"/{JOB}/" in url and "/stream" not in url] == []


def test_places_in_a_queue_have_no_hole(page: Page, world: World) -> None:
    world.tables.clickhouse.command(
        "INSERT INTO explanations_rows (job_id, at, pool, team, place, waiting, waiting_since, text, score) SELECT job_id, now64(3), pool, "
        "team, 2 * place + 1, 60, submitted_at, text, 50 FROM why AS w "
        "INNER JOIN jobs AS j ON j.job_id = w.job_id WHERE j.state = 'PENDING'"
    )
    items = page.request.get("/v1/queue?limit=1000&pool=a100").json()["items"]
    places = [item["place"] for item in items if item["place"]]
    assert places == list(range(1, len(places) + 1)) and len(places) > 2
