"""Pages of studies: what a person reads there, sees change, pauses and stops; on a phone, with strange texts, with 50,000 trials."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.browser.axe import complaints
from tests.browser.conftest import sign_in
from tests.browser.decided_story import story_in
from tests.browser.study_story import BEGUN, FRONT, HUGE, LONG, PROJECT, SEARCH, StudyStory
from tests.browser.test_faults import of
from tests.browser.tracing import LONGEST_MS, traced
from tests.browser.world import World

SEARCH_PAGE = f"/studies/{SEARCH}?project={PROJECT}"
FRONT_PAGE = f"/studies/{FRONT}?project={PROJECT}"
HUGE_PAGE = f"/studies/{HUGE}?project={PROJECT}"


@pytest.fixture(scope="module", autouse=True)
def studies(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StudyStory]:
    """The studies; nothing else asks a gateway of this session about them."""
    with story_in(world, tmp_path_factory.mktemp("studies"), StudyStory) as story:
        yield story


def table(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=re.compile(f"^{name}"))


def whole(page: Page) -> None:
    """Looks at each part, so that all of it is asked for, until nothing is loading."""
    expect(page.get_by_role("heading", name="Trials", exact=True)).to_be_attached()
    for heading in page.get_by_role("heading", level=2).all():
        heading.scroll_into_view_if_needed()
        page.wait_for_timeout(150)
    expect(table(page, "Trials$")).to_be_visible()
    expect(page.get_by_text("Loading ")).to_have_count(0)


def test_studies_are_listed_and_searched(page: Page) -> None:
    page.goto("/")
    page.get_by_role("heading", name="Overview").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("y")
    expect(page).to_have_url(re.compile("/studies$"))
    listed = table(page, "Studies, the newest first")
    row = listed.get_by_role("row").filter(has_text=SEARCH)
    expect(row).to_contain_text(re.compile(rf"running.*0\.\d+.*{BEGUN} of 80.*of 10 h.*val_loss \(min\).*research.*tpe, asha.*ada", re.S))
    expect(listed.get_by_role("row").filter(has_text=FRONT)).to_contain_text(
        re.compile(r"ended.*on the front.*48 of 48.*throughput \(max\)", re.S)
    )
    page.keyboard.press("/")
    page.keyboard.type("digits")
    expect(listed.get_by_role("row")).to_have_count(2)
    page.get_by_role("searchbox").fill("no such study")
    expect(page.get_by_text("No study fits")).to_be_visible()
    page.get_by_role("searchbox").fill("")
    listed.get_by_role("link", name=SEARCH).click()
    expect(page.get_by_role("heading", name=SEARCH, level=1)).to_be_visible()


def test_other_projects_studies_are_not_there(context: BrowserContext, world: World) -> None:
    sign_in(context, world.gateway.token("viewer", projects=("vision",)))
    page = context.new_page()
    page.goto("/studies")
    expect(page.get_by_text("trainhouse study create study.yaml")).to_be_visible()
    page.goto(SEARCH_PAGE)
    expect(page.get_by_role("alert")).to_contain_text("Not found")


def test_a_study_has_its_history_parallel_axes_importance_rungs_times_cost_and_trials(page: Page, studies: StudyStory) -> None:
    page.goto(SEARCH_PAGE)
    whole(page)
    expect(
        page.get_by_role("img", name=re.compile(r"^val_loss of 5\d trials: value of a trial last .*; best so far last 0\.\d+"))
    ).to_be_visible()
    axes = page.get_by_role("region", name="Parallel coordinates").get_by_role("img")
    expect(axes).to_have_attribute("aria-label", re.compile(r"^5\d trials over lr \(log\), width, opt, momentum, val_loss"))
    expect(page.get_by_text(re.compile(r"^For val_loss, by PED-ANOVA over \d+ complete trials"))).to_be_visible()
    expect(page.get_by_text("Not judged: momentum")).to_be_visible()
    first = table(page, "Rungs, the first one first").get_by_role("row").nth(1)
    expect(first).to_contain_text(re.compile(r"^020\d\d\d\d \(\d\d %\)"))
    expect(page.get_by_role("img", name=re.compile(r"^60 trials over time in 4 lanes"))).to_be_visible()
    cost = table(page, "Device time by state of trials")
    for state in ("complete", "stopped early", "failed"):
        expect(cost.get_by_role("row").filter(has_text=state)).to_have_count(1)
    expect(page.get_by_text("Early stopping saved about")).to_be_visible()
    trials = table(page, "Trials$")
    expect(trials.get_by_role("row")).to_have_count(51)
    page.get_by_label("Order of the trials").select_option("best")
    best = trials.get_by_role("row").nth(1)
    expect(best).to_contain_text("best")
    number = int((best.get_by_role("link").text_content() or "").strip())
    assert best.get_by_role("link").get_attribute("href") == f"/jobs/{studies.search.jobs[number]}"
    page.get_by_label("State of the trials").select_option("FAILED")
    expect(trials.get_by_role("row")).to_have_count(2)
    expect(trials.get_by_role("row").nth(1)).to_contain_text("ValueError: lr is too high")


def test_trials_are_kept_by_an_axis(page: Page) -> None:
    page.goto(SEARCH_PAGE)
    whole(page)
    form = page.get_by_role("form", name="Keep some trials")
    form.get_by_label("Keep trials by").select_option("parameter opt")
    form.get_by_label("value").select_option("adam")
    form.get_by_role("button", name="Keep", exact=True).click()
    expect(page.get_by_text(re.compile(r"^\d+ trials of 5\d kept by opt: adam"))).to_be_visible()


def test_several_metrics_have_a_front(page: Page) -> None:
    page.goto(FRONT_PAGE)
    whole(page)
    expect(page.get_by_text(re.compile(r"^\d+ trials of 48 that no other one beats in each metric"))).to_be_visible()
    front = page.get_by_role("img", name=re.compile(r"^throughput \(max\) over val_loss \(min\): 48 trials"))
    expect(front).to_be_visible()
    expect(page.get_by_role("heading", name="Rungs")).to_have_count(0)
    expect(page.get_by_text("36 EUR of 100 EUR")).to_be_visible()
    expect(table(page, "Device time by state of trials").get_by_role("row").filter(has_text="complete")).to_contain_text("36 EUR")
    page.get_by_label("Metric", exact=True).select_option("throughput")
    expect(page.get_by_role("img", name=re.compile("^throughput of 48 trials: "))).to_be_visible()
    expect(page.get_by_text(re.compile(r"^For throughput, by PED-ANOVA"))).to_be_visible()


def test_lanes_of_trials(page: Page) -> None:
    page.goto("/studies")
    trials = [
        {"trial": 0, "began_at_ms": 10, "ended_at_ms": 50},
        {"trial": 1, "began_at_ms": 20, "ended_at_ms": 30},
        {"trial": 2, "began_at_ms": 30, "ended_at_ms": None},
        {"trial": 3, "began_at_ms": 50, "ended_at_ms": 55},
        {"trial": 4, "began_at_ms": None, "ended_at_ms": None},
    ]
    tried = "m.lanesOf(given, 90).map((bar) => [bar.trial.trial, bar.lane, bar.from_ms, bar.to_ms])"
    assert page.evaluate(of("study_words.js", tried), trials) == [[0, 0, 10, 50], [1, 1, 20, 30], [2, 1, 30, 90], [3, 0, 50, 55]]


def test_strange_texts_are_texts(page: Page) -> None:
    page.goto(f"/studies/{LONG}")
    whole(page)
    expect(table(page, "Trials$").get_by_role("row")).to_have_count(2)
    assert page.evaluate("window.attacked === undefined")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_fifty_thousand_trials_stay_fluid(page: Page) -> None:
    with traced(page) as trace:
        page.goto(HUGE_PAGE)
        whole(page)
        expect(page.get_by_text("The best trials and a sample of the others: 150 of 49,936 trials.")).to_be_visible()
        page.get_by_role("button", name="Next").click()
        expect(page.get_by_text("page 2")).to_be_visible()
        expect(table(page, "Trials$").get_by_role("link", name="49949")).to_be_visible()
    assert trace.longest_ms < LONGEST_MS, trace.tasks_ms[:5]


@pytest.mark.parametrize("path", ["/studies", SEARCH_PAGE, FRONT_PAGE, f"/studies/{LONG}"])
def test_no_violations_and_nothing_sticks_out(looked_at: Page, path: str) -> None:
    shows = "region:Studies, the newest first" if path == "/studies" else "heading:History"
    looked_at.goto(path)
    if path != "/studies":
        whole(looked_at)
    assert not complaints(looked_at, path, shows, in_the_dark=True)


def test_who_only_reads_is_offered_no_request(context: BrowserContext, world: World) -> None:
    sign_in(context, world.gateway.token("viewer"))
    page = context.new_page()
    page.goto(SEARCH_PAGE)
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    for name in ("Pause", "Resume", "Stop"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)


def test_the_page_follows_the_study_and_asks_it_to_pause_go_on_and_stop(page: Page, studies: StudyStory) -> None:
    page.goto(SEARCH_PAGE)
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    number = studies.better_trial()
    expect(page.get_by_role("link", name=f"trial {number}")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile(r"^val_loss of \d+ trials: .*best so far last 0\.01"))).to_be_visible()
    for title, yes, word in (
        ("Pause", "Yes, pause it", "paused"),
        ("Resume", "Yes, resume it", "running"),
        ("Stop", "Yes, stop it", "its last trials run"),
    ):
        page.get_by_role("button", name=title, exact=True).click()
        form = page.locator(".request form")
        form.get_by_role("textbox").fill(f"{title} it")
        form.get_by_role("button", name=yes).click()
        expect(page.locator(".figures dd").first).to_have_text(word)
        expect(page.get_by_role("button", name=title, exact=True)).to_have_count(0 if title != "Stop" else 1)
