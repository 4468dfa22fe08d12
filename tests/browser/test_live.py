"""What happens shows on a page that is open; a page goes on by itself when the gateway was away."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

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
