"""Images, tables, histograms, texts and audio on a job's page: by key, at a step that all share, loaded when near; nothing of them runs."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.axe import ALL, COLOURS
from tests.browser.story import JOB
from tests.browser.world import World
from trainhouse.events.model.media import MediaRecorded, media_path
from trainhouse.events.model.tracking import ArtifactLogged, artifact_key
from trainhouse.events.wire import topics
from trainhouse.workers import Audio, Histogram, Image, Table, Text
from trainhouse.workers.session.media.values import Media

RAN = "window.ran = true"
SHOTS = os.environ.get("TRAINHOUSE_TEST_SHOTS")
"""A folder for pictures of the page, for people to look at."""


def logged(world: World, key: str, value: Media | bytes, step: int, number: int = 0, rank: int = 0) -> str:
    """What a rank's session does with a value: its content to the store, then the event."""
    folder, ending = (value.folder, value.ending) if isinstance(value, Media) else ("images", "png")
    content = value.stage()() if isinstance(value, Media) else value
    sha256 = hashlib.sha256(content).hexdigest()
    world.objects.put_if_absent(artifact_key(JOB, sha256), content)
    at_ms = world.story.ms(500 + step)
    path = media_path(folder, key, step, at_ms, rank, number, ending)
    about = {"job_id": JOB, "attempt": 1, "epoch": 2, "rank": rank, "path": path, "sha256": sha256, "at_ms": at_ms}
    event = MediaRecorded.model_validate(about | {"uri": world.objects.uri(artifact_key(JOB, sha256)), "size_bytes": len(content)})
    world.story.put(topics.ENVIRONMENTS, event, 500 + step)
    return path


def picture(seed: int) -> Image:
    """28 x 28 pixels with a shape that differs by seed."""
    rows, columns = np.mgrid[0:28, 0:28]
    distance = np.hypot(rows - 8 - seed % 12, columns - 8 - (5 * seed) % 12)
    return Image(np.clip(np.stack([1.4 - distance / 8, 1.2 - distance / (6 + seed % 5), distance / 30], axis=-1), 0, 1))


@pytest.fixture(scope="module")
def media(world: World) -> World:
    """The story's job, with media of ten steps."""
    random = np.random.default_rng(1)
    for step in range(60, 120, 6):
        for number in range(14 if step == 114 else 4):
            logged(world, "eval/samples", picture(step + number), step, number)
        spread = random.normal(0.02 * (step - 60), 0.2 + 0.01 * (step - 60), 4000)
        logged(world, "weights/layer.0", Histogram(np.append(spread, [np.nan])), step)
        logged(world, "generated", Text(f"Step {step}: it was <b>bold</b> <script>{RAN}</script>\n" + "Once upon a time … " * 60), step)
    rows = [[f"question {n} <img src=x onerror='{RAN}'>", f"answer {n}", n / 7, None if n % 3 else True] for n in range(300)]
    logged(world, "answers", Table(["question", "answer", "score", "right"], rows), 114)
    logged(world, "speech", Audio(np.sin(np.arange(8000) / 8), 8000), 114)
    logged(world, "evil", f"<svg xmlns='http://www.w3.org/2000/svg' onload='{RAN}'><script>{RAN}</script></svg>".encode(), 114)
    for path, content in {"plots/page.html": f"<script>{RAN}</script>", "config.json": f'{{"a": "<script>{RAN}</script>"}}'}.items():
        sha256 = hashlib.sha256(content.encode()).hexdigest()
        world.objects.put_if_absent(artifact_key(JOB, sha256), content.encode())
        found = {"uri": world.objects.uri(artifact_key(JOB, sha256)), "sha256": sha256, "size_bytes": len(content)}
        world.story.put(
            topics.TRACKING, ArtifactLogged.model_validate({"job_id": JOB, "path": path, "at_ms": world.story.ms(900)} | found), 900
        )
    return world


def test_media_are_shown_by_key_and_follow_one_step(page: Page, media: World) -> None:
    page.goto(f"/jobs/{JOB}?tab=media")
    images = page.get_by_role("list", name="Images eval/samples")
    expect(images.get_by_role("img")).to_have_count(12)
    page.get_by_role("button", name="Show all 14 images").click()
    expect(images.get_by_role("img")).to_have_count(14)
    first = images.get_by_role("img", name="eval/samples, step 114", exact=True)
    first.scroll_into_view_if_needed()
    expect(first).to_have_js_property("naturalWidth", 28)
    page.get_by_role("slider", name="Step").fill("2")
    expect(images.get_by_role("img")).to_have_count(4)
    expect(images.get_by_role("img", name="eval/samples, step 72", exact=True)).to_be_attached()
    expect(page).to_have_url(re.compile("at=72"))
    text = page.get_by_label("generated step 72")
    text.scroll_into_view_if_needed()
    expect(text).to_contain_text("Step 72: it was <b>bold</b>")
    answers = page.get_by_role("heading", name="answers")
    answers.scroll_into_view_if_needed()
    expect(page.get_by_text("Nothing was logged under this key until this step.").first).to_be_visible()
    page.get_by_role("button", name="Newest").click()
    expect(page.get_by_text("The first 20 of 300 rows.")).to_be_attached()
    expect(page.get_by_role("cell", name="answer 20")).to_have_count(0)
    page.get_by_role("button", name="Show all rows").click()
    expect(page.get_by_role("cell", name="answer 299")).to_be_attached()
    expect(page.get_by_text("of 300 rows")).to_have_count(0)


def test_histograms_over_steps_are_a_heat_map(page: Page, media: World) -> None:
    page.goto(f"/jobs/{JOB}?tab=media&m=weights")
    chart = page.get_by_role("img", name=re.compile("^weights.layer.0: 10 histograms of steps 60 to 114, values -"))
    expect(chart).to_be_visible()
    expect(page.get_by_text(re.compile("^step 114: 4,000 values from .* median .*, 1 not finite$"))).to_be_visible()
    page.get_by_role("slider", name="Step").fill("0")
    expect(page.get_by_text(re.compile("^step 60: 4,000 values"))).to_be_visible()


def test_audio_plays(page: Page, media: World) -> None:
    page.goto(f"/jobs/{JOB}?tab=media&m=speech")
    sound = page.get_by_label("speech step 114")
    expect(sound).to_be_visible()
    sound.evaluate("(element) => { element.muted = true; element.preload = 'auto'; element.load(); }")
    page.wait_for_function("(element) => element.readyState >= 1 && Math.abs(element.duration - 1) < 0.01", arg=sound.element_handle())


def test_nothing_that_a_program_logged_runs(page: Page, media: World) -> None:
    page.goto(f"/jobs/{JOB}?tab=media")
    broken = page.get_by_text("evil, step 114: no image that a browser can show.")
    for name in ("evil", "generated", "answers", "config.json"):
        page.get_by_role("heading", name=name).scroll_into_view_if_needed()
    expect(broken).to_be_visible()
    expect(page.get_by_text("question 0 <img src=x onerror=")).to_be_visible()
    expect(page.get_by_label("config.json")).to_contain_text("<script>")
    expect(page.get_by_text("page.html")).to_have_count(0)
    assert page.evaluate("window.ran === undefined")
    evil = page.request.get(f"/v1/training-jobs/{JOB}/media/items", params={"kind": "image", "key": "evil"}).json()["items"][0]["path"]
    shown = page.request.get(f"/v1/training-jobs/{JOB}/media/content", params={"path": evil})
    assert shown.headers["content-type"] == "image/png" and "sandbox" in shown.headers["content-security-policy"]
    alone = page.context.new_page()
    alone.goto(shown.url)
    assert alone.evaluate("window.ran === undefined") and alone.locator("svg").count() == 0


def test_keys_far_below_are_asked_for_once_they_are_near(page: Page, media: World) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": 1000, "height": 300})
    page.goto(f"/jobs/{JOB}?tab=media")
    expect(page.get_by_role("list", name="Images eval/samples").get_by_role("img")).to_have_count(12)
    assert not any("media/text" in url for url in asked)
    page.get_by_role("heading", name="generated").scroll_into_view_if_needed()
    expect(page.get_by_label("generated step 114")).to_be_visible()
    assert any("media/text" in url for url in asked)


def test_a_job_without_media_says_how_to_log_some(page: Page, world: World) -> None:
    page.goto("/jobs/sweep-01?tab=media")
    expect(page.get_by_text("No image, table, histogram, text or audio was logged.")).to_be_visible()
    expect(page.get_by_text('session.log({"samples": Image(array)})')).to_be_visible()


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_nothing_sticks_out(looked_at: Page, media: World, width: int, scheme: str) -> None:
    looked_at.set_viewport_size({"width": width, "height": 900})
    looked_at.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    looked_at.goto(f"/jobs/{JOB}?tab=media")
    for name in ("eval/samples", "weights/layer.0", "answers", "generated", "speech"):
        looked_at.get_by_role("heading", name=name).scroll_into_view_if_needed()
        expect(looked_at.get_by_text("Loading ")).to_have_count(0)
    assert looked_at.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    if SHOTS:
        looked_at.screenshot(path=Path(SHOTS) / f"media-{width}-{scheme}.png", full_page=True)
    found = Axe().run(looked_at, options=ALL if scheme == "light" else COLOURS).response["violations"]
    assert not [f"{one['id']}: {[node['html'][:200] for node in one['nodes'][:3]]}" for one in found]
