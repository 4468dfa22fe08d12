"""What people do on the pages: sign in, look for a job, read it, compare runs, look at the fleet, ask in SQL."""

from __future__ import annotations

import html
import re
from pathlib import Path

import httpx
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Watched, sign_in
from tests.browser.dataset_story import LONELY, NAME
from tests.browser.story import JOB, SPEC
from tests.browser.world import World
from trainhouse.cli.stack.open import login_address
from trainhouse.client.kafka.job_events import spec_of_job
from trainhouse.events.settings import KafkaSettings


def test_a_token_signs_in_by_hand_and_by_a_code(context: BrowserContext, world: World, watched: Watched, tmp_path: Path) -> None:
    page = context.new_page()
    page.goto("/jobs")
    page.get_by_label("Token").fill("no.such.token")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Unauthorized")
    page.get_by_label("Token").fill(world.gateway.token("viewer"))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    (cookie,) = [c for c in context.cookies() if c["name"] == "trainhouse_session"]
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.goto("about:blank")
    page.goto(_page_of_a_code(world, tmp_path).as_uri())
    watched.hosts.discard("file")
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    assert page.url == f"{world.gateway.url}/nodes"


def _page_of_a_code(world: World, folder: Path) -> Path:
    """The file that `trainhouse open` gives to a browser."""
    headers = {"Authorization": f"Bearer {world.gateway.token()}"}
    code = httpx.post(f"{world.gateway.url}/v1/login-codes", headers=headers, timeout=30).json()["code"]
    path = folder / "open.html"
    address = login_address(world.gateway.url, "/nodes", code)
    path.write_text(f'<meta charset="utf-8"><meta http-equiv="refresh" content="0;url={html.escape(address)}">')
    return path


def test_a_link_that_mlflow_prints_opens_the_run(page: Page) -> None:
    page.goto(f"/#/experiments/0/runs/{JOB}")
    expect(page).to_have_url(re.compile(f"/jobs/{JOB}$"))
    page.goto("/")
    page.evaluate("location.hash = '#/experiments/0'")
    expect(page).to_have_url(re.compile("/jobs$"))
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()


def test_the_overview_shows_every_device_the_queue_and_alerts(page: Page) -> None:
    page.goto("/")
    fleet = page.get_by_role("application")
    expect(fleet).to_have_attribute("aria-label", re.compile("^10,000 devices on 1,250 nodes"))
    expect(page.get_by_label("Devices by state")).to_contain_text("lost")
    queue = page.get_by_role("region", name="Jobs that wait, in order").first
    expect(queue).to_contain_text("at once; the most that come free together are 4")
    expect(page.get_by_text("steps of story-1 are slow")).to_be_visible()
    fleet.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text(re.compile(r"^node-\d{4}, pool a100: "))).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/nodes/node-\d{4}$"))


def test_jobs_are_filtered_ordered_opened_and_chosen_by_keys(page: Page) -> None:
    page.goto("/")
    page.get_by_role("heading", name="Overview").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page.get_by_text(re.compile(r"^10,05\d of 10,05\d jobs$"))).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("team:language state:failed")
    jobs = page.get_by_role("list", name="Jobs")
    expect(page).to_have_url(re.compile("q=team"))
    expect(page.get_by_text(re.compile("^0 of"))).to_be_visible()
    expect(page.get_by_text("No job fits")).to_be_visible()
    page.get_by_role("searchbox").fill("sweep-0")
    expect(page.get_by_text(re.compile("^10 of"))).to_be_visible()
    page.get_by_role("button", name="Order by Job").click()
    expect(jobs.get_by_role("listitem").first).to_contain_text("sweep-00")
    for name in ("sweep-00", "sweep-03"):
        page.get_by_label(f"Choose {name} to compare").check()
    jobs.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/jobs/sweep-00$"))
    page.go_back()
    expect(page.get_by_role("searchbox")).to_have_value("sweep-0")


def test_a_job_tells_its_whole_story(page: Page) -> None:
    page.goto(f"/jobs/{JOB}")
    expect(page.get_by_role("img", name=re.compile("^loss: loss last 1.0"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^States in order: waiting .* scheduled .* running"))).to_be_visible()
    spent = page.get_by_role("img", name=re.compile("^Device time by what it went into"))
    expect(spent).to_have_attribute("aria-label", re.compile("training steps .* steps done again"))
    parts = page.get_by_role("navigation", name="Parts of the job")
    parts.get_by_role("link", name="Ranks").click()
    expect(page.get_by_text(re.compile("^Slowest: rank 11, "))).to_be_visible()
    expect(page.get_by_role("region", name=re.compile("^Ranks"))).to_contain_text("node-0002:gpu7")
    parts.get_by_role("link", name="Checkpoints").click()
    expect(page.get_by_role("region", name=re.compile("^Checkpoints"))).to_contain_text("1.9 GiB")
    parts.get_by_role("link", name="Events").click()
    expect(page.get_by_role("region", name=re.compile("^Events"))).to_contain_text("node-0002 was lost")
    parts.get_by_role("link", name="Why pending").click()
    expect(page.get_by_text("16 devices are needed at once; 12 are free")).to_be_visible()
    parts.get_by_role("link", name="Config").click()
    page.get_by_label("Filter").fill("hyper")
    expect(page.get_by_role("region", name="Config")).to_contain_text("hyperparameters.lr")
    parts.get_by_role("link", name="Artifacts").click()
    artifacts = page.get_by_role("region", name=re.compile("^Artifacts"))
    expect(artifacts.get_by_role("row").filter(has_text="bpe-32k@1f1f1f1f1f1f")).to_contain_text("used")
    expect(artifacts.get_by_role("row").filter(has_text="story-export@1f1f1f1f1f1f")).to_contain_text("1.9 GiB")
    parts.get_by_role("link", name="Lineage").click()
    expect(page.get_by_role("region", name="Lineage graph")).to_contain_text("story-1@1")


def test_a_new_job_begins_from_a_checkpoint(page: Page, bus: KafkaSettings) -> None:
    page.goto(f"/jobs/{JOB}?tab=checkpoints")
    page.get_by_role("button", name="Resume from here: a new job from step 60").click()
    told = page.get_by_role("status").filter(has_text="it resumes from step 60")
    expect(told).to_contain_text("Submitted as ")
    job_id = told.get_by_role("link").inner_text()
    expect(told.get_by_role("link")).to_have_attribute("href", f"/jobs/{job_id}")
    spec = spec_of_job(bus, job_id)
    assert spec is not None and (spec.resume_from, spec.user) == (f"{JOB}@1", "eva")
    assert spec.model_copy(update={"resume_from": None, "user": SPEC.user}) == SPEC


def test_who_only_reads_is_offered_no_new_job(context: BrowserContext, world: World) -> None:
    sign_in(context, world.gateway.token("viewer"))
    page = context.new_page()
    page.goto(f"/jobs/{JOB}?tab=checkpoints")
    expect(page.get_by_role("region", name=re.compile("^Checkpoints"))).to_contain_text("1.9 GiB")
    expect(page.get_by_role("button", name="Resume from here")).to_have_count(0)


def test_logs_are_searched_and_shown_as_text(page: Page) -> None:
    page.goto(f"/jobs/{JOB}?tab=logs")
    lines = page.get_by_role("list", name="Lines of the logs")
    expect(lines).to_contain_text("step 119: loss 1.810")
    page.keyboard.press("/")
    page.keyboard.type("peer RESET")
    expect(page.get_by_text("1 line", exact=True)).to_be_visible()
    expect(lines).to_contain_text("<b>bold</b>")
    assert lines.locator("b").count() == 0, "what a job writes is text, never markup"
    expect(lines.locator("mark")).to_have_text("peer reset")
    page.get_by_label("Rank").select_option("3")
    expect(page.get_by_text("No line contains “peer RESET”.")).to_be_visible()


def test_logs_are_filtered_by_attempt_and_level_wrapped_and_kept(page: Page) -> None:
    page.goto(f"/jobs/{JOB}?tab=logs")
    page.get_by_label("Level").select_option("error")
    lines = page.get_by_role("list", name="Lines of the logs")
    expect(page.get_by_text("1 line", exact=True)).to_be_visible()
    page.get_by_label("wrap").check()
    expect(lines.get_by_role("listitem")).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert Path(download.value.path()).read_text().endswith("attempt=0 rank=5 stderr ConnectionError: peer reset <b>bold</b>\n")
    page.get_by_label("Attempt").select_option("1")
    expect(page.get_by_text("No line fits these filters.")).to_be_visible()
    expect(page).to_have_url(re.compile("attempt=1&level=error|level=error.*attempt=1"))


def test_curves_are_arranged_and_the_address_has_it(page: Page) -> None:
    page.goto(f"/jobs/{JOB}")
    page.get_by_role("button", name="Pin tokens_per_s").click()
    page.get_by_role("button", name="Pin loss").click()
    page.get_by_role("button", name="Move loss before tokens_per_s").click()
    page.get_by_label("x axis").select_option("relative")
    page.get_by_label("Smoothing").fill("0.6")
    expect(page).to_have_url(re.compile(r"pin=loss&pin=tokens_per_s&x=relative&smooth=0.6"))
    expect(page.get_by_role("img", name=re.compile(r"^loss: .*relative time \d+"))).to_be_visible()
    page.get_by_text("Views", exact=True).click()
    page.get_by_label("Name of the view").fill("mine")
    page.get_by_role("button", name="Save this view").click()
    page.get_by_role("button", name="Default view").click()
    expect(page).to_have_url(re.compile(f"/jobs/{JOB}$"))
    page.get_by_role("button", name="mine", exact=True).click()
    expect(page).to_have_url(re.compile("pin=loss&pin=tokens_per_s"))
    page.reload()
    expect(page.get_by_role("heading", name="Pinned")).to_be_visible()
    expect(page.get_by_label("x axis")).to_have_value("relative")


def test_smoothing_and_the_x_of_a_curve(page: Page) -> None:
    page.goto("/jobs")
    tried = """async () => {
      const m = await import('/static/app/series.js');
      const curve = { step: [0, 10, 20], time_ms: [5000, 6000, 8000], mean: [1, 2, 4] };
      const count = m.samplesFrom({ step: [0, 20], mean: [0, 640] });
      return [m.smoothed([1, null, 1, 4], 0.5), m.xOf(curve, "relative", { began_ms: 4000 }), m.xOf(curve, "samples", { samplesAt: count }),
        m.stepsOf([1, 2, 4], curve.step, 1.5, 2.5), m.grouped(["system/cpu", "lr", "loss", "eval/loss"]).map((one) => one.group)];
    }"""
    smooth, relative, samples, steps, groups = page.evaluate(tried)
    assert smooth[:3] == [1, None, 1] and 2 < smooth[3] < 4
    assert (relative, samples, steps, groups) == ([1, 2, 4], [0, 320, 640], [0, 20], ["", "eval", "system"])


def test_jobs_have_chosen_columns_and_groups(page: Page) -> None:
    page.goto("/jobs?q=sweep-0&group=team&order=name")
    jobs = page.get_by_role("list", name="Jobs")
    expect(jobs.get_by_role("listitem").first).to_contain_text("language 10 jobs")
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Duration").check()
    page.get_by_label("User", exact=True).uncheck()
    expect(page.get_by_role("button", name="Order by Duration")).to_be_visible()
    expect(page.get_by_role("button", name="Order by User")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("button", name="Order by Duration")).to_be_visible()


def test_fifty_runs_are_compared(page: Page) -> None:
    page.goto("/compare")
    page.get_by_label("Add runs").fill("sweep-")
    page.get_by_role("button", name="Add 50 that fit").click()
    expect(page.get_by_role("img", name=re.compile("^loss of 50 runs: "))).to_be_visible()
    expect(page.get_by_role("region", name="Fields in which the configs differ")).to_contain_text("hyperparameters.width")
    expect(page.get_by_role("img", name=re.compile("^50 runs over hyperparameters.lr, hyperparameters.width, loss, last"))).to_be_visible()
    page.get_by_label("Search metrics").fill("samples")
    expect(page.get_by_role("img", name=re.compile("^samples_per_s of 50 runs: "))).to_be_visible()
    page.get_by_role("button", name="Remove sweep-49").click()
    expect(page.get_by_text("49 runs", exact=True)).to_be_visible()


def test_nodes_and_one_node(page: Page) -> None:
    page.goto("/nodes")
    expect(page.get_by_text("1,250 of 1,250 nodes")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("node-0001")
    expect(page.get_by_text("1 of 1,250 nodes")).to_be_visible()
    page.get_by_role("list", name="Nodes").get_by_role("link", name="node-0001").click()
    expect(page.get_by_role("region", name="Devices of the node")).to_contain_text("node-0001:gpu7")
    expect(page.get_by_role("region", name=re.compile("^Gangs on the node"))).to_contain_text(JOB)


def test_datasets_and_one_dataset(page: Page) -> None:
    page.goto("/datasets")
    listed = page.get_by_role("region", name="Datasets, the newest version of each")
    expect(listed).to_contain_text("3, 1 deprecated")
    page.get_by_label("Filter datasets").fill("support")
    expect(listed.get_by_role("row")).to_have_count(2)
    listed.get_by_role("link", name=NAME).click()
    expect(page.get_by_role("heading", name=NAME)).to_be_visible()
    drift = page.get_by_role("region", name="Fields against the version before")
    expect(drift.get_by_role("row", name="json.score")).to_contain_text("drifted0.31 (limit 0.1)0.22 (limit 0.1)1 % → 8 %")
    expect(page.get_by_role("region", name="Fields of a sample").get_by_role("row", name="json.score")).to_contain_text("float|int")
    expect(page.get_by_role("region", name="Splits of the version")).to_contain_text("93 %")
    shards = page.get_by_role("region", name="Shards in quarantine, the newest first")
    expect(shards).to_contain_text("released by ada: it is whole again")
    expect(shards).to_contain_text("expected CRC-32 1f2e3d4c")
    expect(page.get_by_role("region", name="Jobs that read it")).to_contain_text("reads-chats")
    page.get_by_role("button", name="Show version 1.0.0").click()
    expect(page.get_by_text("by bo: names were not removed. No new job may name this version.")).to_be_visible()
    expect(page.get_by_text("It is the first version")).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?version=[0-9a-f]{64}$"))
    page.goto(f"/datasets/{LONELY}")
    for command in ("trainhouse data show", "trainhouse data verify", "trainhouse submit --data"):
        expect(page.get_by_text(command)).to_be_visible()


def test_another_projects_dataset_is_not_there(context: BrowserContext, world: World) -> None:
    sign_in(context, world.gateway.token("viewer", projects=("vision",)))
    page = context.new_page()
    page.goto("/datasets")
    expect(page.get_by_text("trainhouse data publish NAME PATH")).to_be_visible()
    page.goto(f"/datasets/{NAME}")
    expect(page.get_by_role("alert")).to_contain_text("Not found")


def test_utilization_and_cost(page: Page) -> None:
    page.goto("/utilization?by=job")
    expect(page.get_by_role("img", name=re.compile("^Share of devices held: a100 "))).to_be_visible()
    expect(page.get_by_role("list", name="Device hours by team")).to_contain_text("vision")
    expect(page.get_by_role("region", name="Device time and cost by job")).to_contain_text(JOB)


def test_sql_answers_with_a_table_and_a_chart_and_refuses_to_write(page: Page) -> None:
    page.goto("/sql")
    field = page.get_by_label("SQL", exact=True)
    field.fill("SELECT number AS n, number * number AS square FROM numbers(50)")
    field.press("Control+Enter")
    expect(page.get_by_text(re.compile("^50 rows in"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^square: square last 2,401"))).to_be_visible()
    expect(page.get_by_role("list", name="Rows of the answer")).to_contain_text("81")
    field.fill("SELECT state, count() AS jobs FROM job_status GROUP BY state")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("list", name="jobs by state")).to_contain_text("SUCCEEDED")
    field.fill("DROP TABLE jobs_rows")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_be_visible()


def test_another_projects_job_is_not_there(context: BrowserContext, world: World) -> None:
    sign_in(context, world.gateway.token("viewer", projects=("speech",)))
    page = context.new_page()
    page.goto(f"/jobs/{JOB}")
    expect(page.get_by_role("alert")).to_contain_text(f"there is no job {JOB} that you may see")


def test_keys_have_a_help_and_the_content_can_be_skipped_to(page: Page) -> None:
    page.goto("/")
    page.get_by_role("heading", name="Overview").wait_for()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Move in a list or map")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_a_jobs_performance_shows_the_parts_of_a_step_and_its_traces(page: Page) -> None:
    page.goto(f"/jobs/{JOB}?tab=performance")
    expect(
        page.get_by_role("img", name="Parts of a step: waiting for data 10 %, forward 29 %, backward 57 %, all else 4.3 %")
    ).to_be_visible()
    for text in ("41 %", "13 %", "12,345"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()
    expect(page.get_by_text("The newest values of rank 0; the view step_figures has means over all ranks.")).to_be_visible()
    trace = page.get_by_role("link", name="Fetch the trace r1 of rank 3")
    expect(trace).to_have_attribute("href", f"/v1/training-jobs/{JOB}/profiles/r1/3")
