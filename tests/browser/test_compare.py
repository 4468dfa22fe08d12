"""Runs beside each other: names by what differs, groups with a band, brushes, scatter, importance, environments and code; bad input."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import sign_in
from tests.browser.story import JOB
from tests.browser.test_faults import of
from tests.browser.world import World
from trainhouse.projections.store.rollups import roll_up

NAME = "n" * 200
"""Of tracked runs that share it."""
RUNS = tuple(f"named-{n}" for n in range(12))
ALL = "&".join(f"job={run}" for run in RUNS)


@pytest.fixture(scope="module")
def named(world: World) -> Iterator[World]:
    """Twelve runs that share one name, with parameters and a metric each, one of them NaN, and two environments."""
    run = world.tables.clickhouse.command
    ids = "concat('named-', toString(number))"
    run(
        f"INSERT INTO jobs_rows SELECT * REPLACE ({ids} AS job_key, {ids} AS job_id, '{NAME}' AS name) FROM "
        "(SELECT *, toUInt32(substring(job_id, 7)) AS number FROM jobs_rows WHERE job_id BETWEEN 'sweep-00' AND 'sweep-11')".replace(
            "SELECT * REPLACE", "SELECT * EXCEPT (number) REPLACE"
        )
    )
    run(
        "INSERT INTO parameters_rows (job_id, key, version, value, logged_at) SELECT "
        f"{ids}, k, 1, multiIf(k = 'lr', toString(0.001 * (1 + number)), k = 'opt', ['adam', 'sgd'][number % 2 + 1], 'nan'), now64(3) "
        "FROM numbers(12) ARRAY JOIN ['lr', 'opt', 'broken'] AS k"
    )
    run(
        "INSERT INTO step_metrics (job_id, metric, epoch, attempt, rank, step, time, value, node_id) SELECT "
        f"{ids}, m, 1, 0, 0, step, now64(3) - 1000 + step, "
        "multiIf(m = 'nothing', nan, m = 'lr', 0.001 * (1 + number), number + 1 / (1 + step)), "
        "'n' FROM numbers(12) ARRAY JOIN range(20) AS step ARRAY JOIN ['loss', 'nothing', 'lr'] AS m"
    )
    roll_up(world.tables.clickhouse, "job_id LIKE 'named-%'")
    run(
        "INSERT INTO job_environments_rows (job_id, epoch, rank, version, torch_version, packages, captured_at) SELECT "
        f"{ids}, 1, 0, 1, if(number = 0, '2.12.1', '2.13.0'), map('numpy', '2.4.6'), now64(3) FROM numbers(2)"
    )
    yield world
    for table in ("jobs_rows", "parameters_rows", "step_metrics", "step_metrics_1s_rows", "job_environments_rows"):
        run(f"ALTER TABLE {table} DELETE WHERE job_id LIKE 'named-%' SETTINGS mutations_sync = 2")  # lists of others count jobs


def test_runs_of_one_name_are_named_by_what_differs(page: Page, named: World) -> None:
    page.goto(f"/compare?{ALL}")
    legend = page.get_by_role("group", name="Runs; choose one to see it alone")
    expect(legend.get_by_role("button").first).to_contain_text(re.compile(r"^n+ lr=0.001 opt=adam$"))
    legend.get_by_role("button").nth(1).click()
    expect(page.get_by_role("img", name=re.compile(r"^loss of 12 runs: n+ lr=0.002 opt=sgd last [^;]*; step 0 to 19$"))).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    axes = page.get_by_role("region", name="Parallel coordinates").get_by_role("img")
    expect(axes).to_have_attribute("aria-label", re.compile("^12 runs over parameters.lr, parameters.opt, loss, last"))
    cells = page.get_by_role("region", name="Fields in which the configs differ").get_by_role("cell")
    expect(cells.filter(has_text=re.compile(r"^parameters.lr$"))).to_have_count(1)


def test_runs_are_grouped_with_a_mean_and_a_band(page: Page, named: World) -> None:
    page.goto(f"/compare?{ALL}&m=loss")
    page.get_by_label("Group by").select_option("opt")
    expect(page).to_have_url(re.compile("group=opt"))
    curve = page.get_by_role("img", name=re.compile("^loss of 12 runs in 2 groups: "))
    expect(curve).to_have_attribute("aria-label", re.compile(r"opt adam \(6\) last 5.05, least 0.05, greatest 11; opt sgd \(6\) last 6.05"))
    page.get_by_label("Band").select_option("std")
    expect(curve).to_have_attribute("aria-label", re.compile(r"opt adam \(6\) last 5.05, least 1.3"))
    page.get_by_label("Group by").select_option("lr")
    expect(page.get_by_role("group", name="Groups of runs; choose one to see it alone").get_by_role("button")).to_have_count(12)


def test_means_and_bands_of_curves(page: Page) -> None:
    page.goto("/jobs")
    found = page.evaluate(
        of(
            "views/compare/groups.js",
            "[m.filled([0, 1, 2, 3], [1, null, 3, null]), m.banded([0, 1], [[1, 2], [3, null]], 'range'), "
            "m.banded([0], [[1], [3]], 'std')]",
        )
    )
    assert found[0] == [1, 2, 3, None]
    assert found[1] == {"mean": [2, 2], "least": [1, 2], "greatest": [3, 2]}
    assert found[2]["mean"] == [2] and abs(found[2]["greatest"][0] - 2 - 2**0.5) < 1e-9


def test_many_values_of_a_number_fall_into_ranges(page: Page) -> None:
    page.goto("/jobs")
    runs = [{"job_id": f"r{n}"} for n in range(41)]
    numbers = {"path": "lr", "values": {f"r{n}": n for n in range(40)}}
    words = {"path": "host", "values": {f"r{n}": f"host-{n}" for n in range(40)}}
    tried = (
        "[m.groupsOf(given.runs, given.numbers).map((one) => one.label), "
        "m.groupable([given.numbers, given.words], given.runs).map((one) => one.path)]"
    )
    labels, offered = page.evaluate(of("views/compare/groups.js", tried), {"runs": runs, "numbers": numbers, "words": words})
    assert labels == ["lr 0 to 9 (10)", "lr 10 to 19 (10)", "lr 20 to 29 (10)", "lr 30 to 39 (10)", "lr not set (1)"]
    assert offered == ["lr"]


def test_runs_are_kept_by_dragging_along_an_axis_and_by_keys(page: Page, named: World) -> None:
    page.goto(f"/compare?{ALL}&m=loss")
    # What is above the axes, and below them, moves them as long as it is loaded.
    expect(page.get_by_role("img", name=re.compile("^loss of 12 runs: "))).to_be_visible()
    expect(page.get_by_role("region", name="Results of the runs").get_by_role("row")).to_have_count(13)
    grip = page.locator(".brush .grip").first
    grip.scroll_into_view_if_needed()
    box = grip.bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + box["height"] - 2)
    page.mouse.down()
    page.mouse.move(middle, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile("brush="))
    expect(page.get_by_text(re.compile("^6 runs of 12 kept by"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^loss of 6 runs: "))).to_be_visible()
    expect(page.get_by_role("region", name="Results of the runs").get_by_role("row")).to_have_count(7)
    page.reload()
    expect(page.get_by_text(re.compile("^6 runs of 12 kept by"))).to_be_visible()
    page.get_by_role("button", name="Keep all").click()
    expect(page.get_by_role("img", name=re.compile("^loss of 12 runs: "))).to_be_visible()
    form = page.get_by_role("form", name="Keep some runs")
    form.get_by_label("Keep runs by").select_option("parameter opt")
    form.get_by_label("value").select_option("sgd")
    form.get_by_role("button", name="Keep").click()
    expect(page.get_by_text("6 runs of 12 kept by parameters.opt: sgd")).to_be_visible()
    form.get_by_label("Keep runs by").select_option("parameter lr")
    form.get_by_label("from").fill("0.005")
    form.get_by_role("button", name="Keep").click()
    expect(page.get_by_text(re.compile("^4 runs of 12 kept by"))).to_be_visible()
    page.goto(f"/compare?{ALL}&brush=nonsense&brush=a~x~y&brush=parameter lr~2~3")
    expect(page.get_by_text("Drag along an axis to keep the runs that pass there.")).to_be_visible()


def test_any_two_values_are_a_scatter(page: Page, named: World) -> None:
    page.goto(f"/compare?{ALL}")
    expect(
        page.get_by_role(
            "img", name=re.compile(r"^loss, last over parameters.lr: 12 runs, parameters.lr 0.001 to 0.012, loss, last 0.05 to 11.05")
        )
    ).to_be_visible()
    page.get_by_label("x of the scatter").select_option("parameter opt")
    expect(page.get_by_role("img", name=re.compile("^loss, last over parameters.opt: 12 runs, parameters.opt adam, sgd"))).to_be_visible()
    page.get_by_label("log y").check()
    page.get_by_label("y of the scatter").select_option("greatest loss")
    expect(page).to_have_url(re.compile("sylog=1"))
    page.locator(".scatter circle").first.hover()
    expect(
        page.locator(".tip").filter(has_text=re.compile(r"^n+ lr=0.001 opt=adam: parameters.opt adam · loss, highest 1$"))
    ).to_be_visible()


def test_importance_of_parameters(page: Page, named: World) -> None:
    page.goto(f"/compare?{ALL}")
    bars = page.get_by_role("listitem").filter(has_text=re.compile("12 runs$"))
    expect(bars).to_have_count(2)
    expect(bars.first).to_contain_text("lr+1.0012 runs")
    page.goto(f"/compare?job={RUNS[0]}&job={RUNS[1]}")
    expect(page.get_by_text("It takes 5 runs with loss to judge a parameter; these are 2.")).to_be_visible()


def test_environments_and_code_are_compared(page: Page, named: World) -> None:
    page.goto(f"/compare?job={RUNS[0]}&job={RUNS[1]}&job={RUNS[2]}")
    lines = page.get_by_role("region", name="Lines in which the environments differ")
    expect(lines.get_by_role("row")).to_have_count(2)
    expect(lines).to_contain_text("torch_version")
    expect(page.get_by_text("Not recorded for 1 run.")).to_be_visible()
    expect(page.get_by_text("were submitted without code.")).to_be_visible()


def test_lines_of_code_that_differ_are_shown(page: Page, named: World) -> None:
    side = {"git_commit": "a" * 40, "git_dirty": True}
    files = [
        {
            "path": "train.py",
            "change": "changed",
            "left_bytes": 10,
            "right_bytes": 12,
            "diff": "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-lr = 1\n+lr = 2 <b>",
        },
        {"path": "data.bin", "change": "added", "left_bytes": None, "right_bytes": 2**20, "diff": None},
    ]
    found = {
        "left": side | {"job_id": RUNS[0], "sha256": "1"},
        "right": side | {"job_id": RUNS[1], "sha256": "2"},
        "same": False,
        "files": files,
        "more": 3,
    }
    page.route("**/v1/compare/code?*", lambda route: route.fulfill(json=found))
    page.goto(f"/compare?job={RUNS[0]}&job={RUNS[1]}")
    page.get_by_text("train.py changed").click()
    lines = page.get_by_label("Lines of train.py that differ")
    expect(lines.locator(".plus")).to_have_text("+lr = 2 <b>")
    page.get_by_text("data.bin added").click()
    expect(page.get_by_text("Its lines are not shown: it is not text, or too large.")).to_be_visible()
    expect(page.get_by_text("3 more files differ.")).to_be_visible()


def test_one_run_and_runs_without_parameters(page: Page) -> None:
    page.goto(f"/compare?job={JOB}")
    expect(page.get_by_text("Choose two runs or more that differ")).to_be_visible()
    expect(page.get_by_text("One run differs from nothing; choose another one.")).to_have_count(3)
    expect(page.get_by_role("img", name=re.compile("^mfu of 1 run: .*step 119 to 119$"))).to_be_visible()
    page.goto("/compare?job=bulk-00001&job=bulk-00002")
    expect(page.get_by_text("None of these runs has logged a metric.")).to_be_visible()
    expect(page.get_by_text("The configs of these runs are the same")).to_be_visible()


def test_a_metric_that_is_nan_throughout_is_no_fault(page: Page, named: World) -> None:
    page.goto(f"/compare?{ALL}&m=nothing&im=nothing")
    expect(page.get_by_text("nothing of 12 runs: nothing was logged yet.")).to_be_visible()
    expect(page.get_by_text("It takes 5 runs with nothing to judge a parameter; these are 0.")).to_be_visible()


def test_a_hundred_runs_are_compared_and_no_more(page: Page) -> None:
    page.goto("/compare?" + "&".join(f"job=bulk-{n:05}" for n in range(1, 121)))
    expect(page.get_by_text("The address names 120 runs; the first 100 are compared.")).to_be_visible()
    expect(page.get_by_role("region", name="Results of the runs").get_by_role("row")).to_have_count(101)


def test_another_projects_run_is_not_there(context: BrowserContext, world: World) -> None:
    sign_in(context, world.gateway.token("viewer", projects=("research",)))
    page = context.new_page()
    page.goto("/compare?job=bulk-00001&job=sweep-01")
    expect(page.get_by_role("alert")).to_contain_text("there is no job bulk-00001 that you may see")
