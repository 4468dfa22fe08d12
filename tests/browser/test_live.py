"""What happens shows on a page that is open; a page goes on by itself when the gateway was away."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.story import JOB
from tests.browser.world import World

# Reads a stream of one block at a time, and says after each whether it was taken for the stream's beginning.
BEGINNINGS = """async (blocks) => {
  const { follow } = await import("/static/app/live.js");
  let sending;
  const body = new ReadableStream({ start: (made) => { sending = made; } });
  window.fetch = async () => new Response(body);
  let begun = 0;
  const end = follow("/v1/stream", { begins: () => { begun += 1; } });
  const found = [];
  for (const block of blocks) {
    sending.enqueue(new TextEncoder().encode(block));
    await new Promise((resolve) => setTimeout(resolve, 50));
    found.push(begun);
  }
  end();
  return found;
}"""


# Longer than the pages wait before they draw what a stream told.
BEYOND_SETTLING_MS = 1500
OF_JOB = re.compile(rf"/v1/training-jobs/{JOB}$")
LISTING = re.compile(r"/v1/training-jobs\?")
# An eighth of the crowd's 10,000, and some of the story's; the list comes in pages of 1,000, which are no end of it.
ALL_RUNNING = re.compile(r"1,2\d{2}")


@pytest.fixture
def gateway_back(world: World) -> Iterator[None]:
    """Whatever a test did to it, the next one has a gateway."""
    yield
    if world.gateway.process is None or world.gateway.process.poll() is not None:
        world.gateway.start()


def test_curves_and_lines_grow_while_one_looks(page: Page, world: World) -> None:
    page.goto(f"/jobs/{JOB}")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile("^loss 120 points"))).to_be_visible()
    world.story.steps(2, 120, 10, 940, 3, ranks=1)
    expect(page.get_by_role("heading", name=re.compile("^loss 130 points"))).to_be_visible()
    page.get_by_role("navigation", name="Parts of the job").get_by_role("link", name="Logs").click()
    lines = page.get_by_role("list", name="Lines of the logs")
    expect(lines).to_contain_text("step 119: loss 1.810")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    world.story.say(2, 0, ["a line that came while one looked"], 950)
    expect(lines).to_contain_text("a line that came while one looked")


def test_a_stream_that_only_says_that_it_lives_has_not_begun_to_tell(page: Page) -> None:
    page.goto("/nodes")
    assert page.evaluate(BEGINNINGS, [": here\n\n", "retry: 1000\n\n", ": still here\n\n", "event: log\ndata: {}\n\n"]) == [0, 1, 1, 1]


@contextmanager
def listing_held(page: Page, told: dict[str, object]) -> Iterator[None]:
    """The stream tells a status at once, the listing comes when this ends."""
    body = f"id: 1\nevent: status\ndata: {json.dumps(told)}\n\n"
    held: list[Route] = []
    page.route("**/v1/stream", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    page.route(LISTING, lambda route: held.append(route))
    yield
    page.unroute(LISTING)
    for route in held:
        route.continue_()


def test_a_list_is_shown_when_its_first_page_has_come(page: Page) -> None:
    with listing_held(page, {"job_id": "bulk-00004", "name": "told-early", "state": "RUNNING", "status_seq": 10**6}):
        page.goto("/jobs")
        page.wait_for_timeout(BEYOND_SETTLING_MS)
        expect(page.get_by_text("Loading jobs …")).to_be_visible()
        expect(page.get_by_text("told-early")).not_to_be_visible()
    expect(page.get_by_text(re.compile(r"^10,05\d of 10,05\d jobs$"))).to_be_visible()


def test_a_job_that_ended_while_the_list_came_is_not_among_those_that_run(page: Page) -> None:
    figure = page.get_by_text(re.compile(r"^Jobs that hold devices")).first.locator("..")
    page.goto("/")
    expect(figure).to_contain_text(ALL_RUNNING)
    before = figure.inner_text()
    with listing_held(page, {"job_id": "bulk-00004", "name": "ended", "state": "SUCCEEDED", "status_seq": 10**6}):
        page.goto("/")
        page.wait_for_timeout(BEYOND_SETTLING_MS)
    expect(figure).to_contain_text(ALL_RUNNING)
    assert number_in(figure.inner_text()) == number_in(before) - 1


def number_in(text: str) -> int:
    return int(re.sub(r"\D", "", text))


@contextmanager
def told_of_the_job(page: Page, **told: object) -> Iterator[None]:
    """The job's stream tells a status at once, the answer to what the job is comes when this ends."""
    whole = page.request.get(f"/v1/training-jobs/{JOB}").json() | {"status_seq": 10**6} | told
    body = f"id: 1\nevent: status\ndata: {json.dumps(whole)}\n\n"
    held: list[Route] = []
    page.route(f"**/{JOB}/stream*", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    page.route(OF_JOB, lambda route: held.append(route))
    yield
    page.unroute(OF_JOB)
    for route in held:
        route.continue_()


def test_what_the_stream_told_before_the_answer_came_counts(page: Page) -> None:
    with told_of_the_job(page, state="SUCCEEDED"):
        page.goto(f"/jobs/{JOB}")
        page.wait_for_timeout(BEYOND_SETTLING_MS)
    expect(page.get_by_text("team language")).to_be_visible()
    expect(page.get_by_text("succeeded", exact=True).first).to_be_visible()
    expect(page.get_by_role("button", name="Cancel job")).not_to_be_visible()


def test_a_checkpoint_that_the_tables_have_later_than_the_stream_is_shown(page: Page, world: World) -> None:
    with told_of_the_job(page, last_checkpoint_commit=2):
        page.goto(f"/jobs/{JOB}?tab=checkpoints")
    table = page.get_by_role("table", name="Checkpoints, the newest first")
    expect(table).to_contain_text("60")
    world.story.saved(2, 2, 115, 950)
    expect(table).to_contain_text("115")


def test_an_address_that_is_no_escape_and_a_span_that_is_almost_a_minute(page: Page) -> None:
    page.goto("/jobs/%E0%A4%A")
    expect(page.get_by_role("alert")).to_contain_text("Not found")
    span = "async (seconds) => (await import('/static/app/format.js')).span(seconds)"
    assert page.evaluate(span, 119.7) == "1 min 59 s"
    ticks = "async (values) => values.map((await import('/static/app/format.js')).tick)"
    assert page.evaluate(ticks, [0, 0.5, -99_999, 100_000, 120_550_000, 2e9]) == ["0", "0.5", "-99,999", "100K", "120.55M", "2B"]


@pytest.mark.usefixtures("gateway_back")
def test_a_page_goes_on_when_the_gateway_was_away(page: Page, world: World) -> None:
    page.goto(f"/jobs/{JOB}?tab=logs")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    lines = page.get_by_role("list", name="Lines of the logs")
    expect(lines).to_contain_text("loss 1.810")
    world.gateway.stop(hard=True)
    expect(page.get_by_text("reconnecting", exact=True)).to_be_visible()
    page.get_by_role("navigation", name="Parts of the job").get_by_role("link", name="Checkpoints").click()
    expect(page.get_by_role("alert")).to_contain_text("The gateway does not answer")
    page.get_by_role("navigation", name="Parts of the job").get_by_role("link", name="Logs").click()
    world.story.say(2, 0, ["a line of while it was away"], 960)
    world.gateway.start()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(lines).to_contain_text("a line of while it was away")


def test_lines_that_came_faster_than_they_were_read_leave_no_hole(page: Page, world: World) -> None:
    page.goto(f"/jobs/{JOB}?tab=logs")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.get_by_role("list", name="Lines of the logs")).to_contain_text("loss 1.810")
    world.story.say(2, 1, [f"fast {n}" for n in range(2500)], 955)
    expect(page.get_by_role("list", name="Lines of the logs")).to_contain_text("fast 2499")
    expect(page.get_by_text("1,000 lines, more before")).to_be_visible()


def test_an_attempt_has_the_same_number_in_the_lineage_as_everywhere(page: Page) -> None:
    page.goto(f"/jobs/{JOB}?tab=lineage")
    name = "async (id) => { const m = await import('/static/app/parts/graph.js'); return [m.nameOf(id).kind, m.shownId(id)]; }"
    assert page.evaluate(name, "attempt:train-7/1") == ["attempt 0", "attempt 0 of train-7"]
