"""Pages of models: what a person reads there, approves, promotes and takes back; by keyboard, on a phone, with a thousand versions."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect

from tests.browser.axe import complaints
from tests.browser.conftest import WAIT_MS, WIDE, sign_in
from tests.browser.dataset_story import NAME as DATASET
from tests.browser.dataset_story import READER
from tests.browser.decided_story import story_in
from tests.browser.model_story import LONG, MANY, SORTER, ModelStory, content_in
from tests.browser.world import World

SORTER_PAGE = f"/models/{SORTER}?project=research"
NARROW = {"width": 400, "height": 800}


@pytest.fixture(scope="module", autouse=True)
def models(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The models; nothing else asks a gateway of this session for them."""
    with story_in(world, tmp_path_factory.mktemp("models"), ModelStory):
        yield


@pytest.fixture
def page_of(browser: Browser, world: World) -> Iterator[Callable[..., Page]]:
    """Opens pages of people by their names and roles."""
    made: list[BrowserContext] = []

    def opened(sub: str, *roles: str) -> Page:
        context = browser.new_context(base_url=world.gateway.url, viewport=WIDE)
        context.set_default_timeout(WAIT_MS)
        made.append(context)
        sign_in(context, world.gateway.token(*roles, sub=sub))
        return context.new_page()

    yield opened
    for context in made:
        context.close()


def table(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=re.compile(f"^{name}"))


def test_models_are_listed_and_searched(page: Page) -> None:
    page.goto("/")
    page.get_by_role("heading", name="Overview").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("m")
    expect(page).to_have_url(re.compile("/models$"))
    listed = table(page, "Models, by project and name")
    row = listed.get_by_role("row").filter(has_text=SORTER)
    expect(row).to_contain_text(
        re.compile(r"emergency to review.*research.*1 \(1\.0\.0\).*held-out/accuracy 0\.885 \[0\.873, 0\.896\].*not worse", re.S)
    )
    expect(listed.get_by_role("row").filter(has_text=MANY)).to_contain_text("1,000")
    page.keyboard.press("/")
    page.keyboard.type("sorter")
    expect(listed.get_by_role("row")).to_have_count(2)
    page.get_by_role("searchbox").fill("no such model")
    expect(page.get_by_text("No model fits")).to_be_visible()
    page.get_by_role("searchbox").fill("")
    listed.get_by_role("link", name=SORTER).click()
    expect(page.get_by_role("heading", name=SORTER, level=1)).to_be_visible()


def test_who_sees_no_model_is_told_how_to_make_one(context: BrowserContext, world: World) -> None:
    sign_in(context, world.gateway.token("viewer", projects=("vision",)))
    page = context.new_page()
    page.goto("/models")
    expect(page.get_by_text("trainhouse models register NAME JOB")).to_be_visible()
    page.goto(SORTER_PAGE)
    expect(page.get_by_role("alert")).to_contain_text("Not found")


def test_a_model_has_its_champions_gate_results_comparison_and_lineage(page: Page) -> None:
    page.goto(SORTER_PAGE)
    expect(
        page.get_by_role("img", name=re.compile("^Champions in order: version 1 from .*, version 2 from .*, version 1 from"))
    ).to_be_visible()
    page.get_by_text("As a table").first.click()
    spans = table(page, "Champions, the newest first")
    expect(spans.get_by_role("row").nth(1)).to_contain_text(re.compile("now.*rolled back.*bo.*complaints about short answers"))
    expect(spans.get_by_role("row").nth(2)).to_contain_text(re.compile("promoted, emergency.*bo.*version 1 answers nothing"))
    expect(spans.get_by_role("row").nth(3)).to_contain_text(re.compile("promoted.*ada.*eve"))
    versions = table(page, "Versions, the newest first")
    expect(versions.get_by_role("row")).to_have_count(5)
    expect(versions.get_by_role("row").nth(1)).to_contain_text(f"{READER}@4")
    expect(page.get_by_role("heading", name="Version 4", exact=True)).to_be_visible()
    gate = table(page, "Conditions of the gate")
    expect(gate.get_by_role("row").filter(has_text="accuracy at least")).to_contain_text(re.compile(r"met.*0\.885.*0\.7"))
    expect(gate.get_by_role("row").filter(has_text="approvals")).to_contain_text("not met")
    expect(table(page, "The newest results").get_by_role("row").filter(has_text="accuracy")).to_contain_text("[0.873, 0.896]")
    verdicts = table(page, "Verdicts of suite held-out")
    expect(verdicts.get_by_role("row").filter(has_text="lang=sv")).to_contain_text("worse")
    expect(verdicts.get_by_role("row").filter(has_text="lang=fi")).to_contain_text("too few samples")
    expect(verdicts.get_by_role("img", name=re.compile(r"^Difference of accuracy in lang=sv: -0\.03, from -0\.06"))).to_be_visible()
    expect(table(page, "Results of both versions").get_by_role("row").filter(has_text="accuracy")).to_contain_text("0.86 [0.848, 0.871]")
    page.get_by_role("heading", name="Lineage").scroll_into_view_if_needed()
    expect(page.get_by_role("region", name="Lineage graph")).to_contain_text("chat-sorter@4")
    page.get_by_label("Against").fill("2")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Version 4 against version 2")).to_be_visible()
    expect(page.get_by_text("They were not compared on the same samples")).to_be_visible()
    expect(page).to_have_url(re.compile("against=2"))
    versions.get_by_role("button", name="Show version 2").click()
    expect(page.get_by_role("heading", name="Version 2 against version 1")).to_be_visible()


def test_a_model_in_service_has_its_quality_drift_and_freshness(page: Page) -> None:
    page.goto(SORTER_PAGE)
    served = table(page, "Versions in service")
    expect(served.get_by_role("row")).to_have_count(3)
    expect(served.get_by_role("row").nth(1)).to_contain_text(
        re.compile(r"1 \(1\.0\.0\).*champion.*ago.*1 of 5 fields drifted.*28,800.*1,320.*support-chats")
    )
    expect(served.get_by_role("row").nth(2)).to_contain_text(re.compile("staging.*none of 5 fields drifted.*9,600"))
    expect(page.get_by_text("1 observation of version 7: the model has no such version")).to_be_visible()
    quality = table(page, "Live quality beside offline")
    expect(quality.get_by_role("row").nth(1)).to_contain_text(
        re.compile(r"accuracy.*1, champion.*0\.86 \[0\.848, 0\.871\].*worse than offline.*is champion")
    )
    expect(quality.get_by_role("row").nth(2)).to_contain_text(re.compile(r"accuracy.*4, staging.*0\.885 \[0\.873, 0\.896\].*as offline"))
    expect(
        page.get_by_role("img", name=re.compile("^accuracy by window: version 1 last .*; version 1 offline last 0.86.*; version 4 last"))
    ).to_be_visible()
    drift = table(page, "Fields of the newest window")
    expect(drift.get_by_role("row").nth(1)).to_contain_text(re.compile(r"input json\.chars.*drifted.*8 of 24 drifted.*>.*PSI"))
    expect(drift.get_by_role("row").nth(1).get_by_role("img")).to_have_accessible_name(
        "Verdicts of 24 windows: drifted 8, stable 16; the newest: drifted"
    )
    expect(drift.get_by_role("row").filter(has_text="json.lang")).to_contain_text("stable")
    expect(page.get_by_role("img", name=re.compile("^PSI of input json.chars: PSI last .*; limit last"))).to_be_visible()
    page.get_by_role("button", name="Wasserstein").click()
    expect(page.get_by_role("img", name=re.compile("^Wasserstein of input json.chars"))).to_be_visible()
    drift.get_by_role("button", name="Show input json.lang over time").click()
    expect(page.get_by_text("input json.lang has no figure over time")).to_be_visible()
    fresh = table(page, "Age of versions")
    expect(fresh.get_by_role("row").nth(1)).to_contain_text(re.compile(r"1.*champion.*2\d d.*support-chats@.*1 version behind"))
    served.get_by_role("button", name="Show drift of version 4").click()
    expect(page).to_have_url(re.compile("live=4"))
    expect(page.get_by_role("heading", name="Drift of version 4, staging")).to_be_visible()
    expect(drift.get_by_role("row").filter(has_text="json.chars")).to_contain_text(re.compile("stable.*16 of 24 drifted"))
    page.get_by_label("Windows of").select_option("1")
    expect(page).to_have_url(re.compile("days=1"))
    expect(page.get_by_role("heading", name="Drift of version 4, staging")).to_be_visible()


def test_what_is_not_observed_says_what_to_send(page: Page) -> None:
    page.goto(f"{SORTER_PAGE}&live=3")
    expect(page.get_by_role("heading", name="Drift of version 3, staging")).to_be_visible()
    expect(page.get_by_text(f"trainhouse models reference {SORTER}@3 --dataset DATASET@VERSION --project research")).to_be_visible()
    expect(page.get_by_text(f"trainhouse models observe {SORTER}@3 --since 1h")).to_be_visible()
    page.goto(f"/models/{LONG}")
    expect(page.get_by_text("No labels came yet")).to_be_visible()
    expect(page.get_by_text(f"POST /v1/models/{LONG}/observations").first).to_be_visible()
    page.goto(f"/models/{MANY}")
    live = page.locator("section", has=page.get_by_role("heading", name="Live", exact=True))
    expect(live.get_by_text("No predictions were observed within 7 days")).to_be_visible()
    expect(live.get_by_text(f"trainhouse models reference {MANY}@")).to_be_visible()
    expect(live.get_by_text(f"POST /v1/models/{MANY}/references")).to_be_visible()
    expect(table(page, "Age of versions").get_by_text("not known").first).to_be_visible()


WORDS = """async ([rows, verdicts]) => {
  const m = await import('/static/app/model_words.js');
  return [m.liveCurves(rows), m.verdictsInWords(verdicts), [...m.coloursOf([1, 9, 2])], [null, 0.5, 0, 12.9].map(m.daysOf)];
}"""


def test_windows_of_versions_are_drawn_on_one_axis(page: Page) -> None:
    page.goto("/models")

    def row(version: int, ends_ms: list[int], offline: float | None) -> dict[str, object]:
        values = {name: [each / 10_000 for each in ends_ms] for name in ("live", "low", "high")}
        return {"version": version, "offline": offline, "series": {"ends_ms": ends_ms} | values}

    curves, words, colours, ages = page.evaluate(
        WORDS, [[row(1, [1000, 3000], 0.9), row(9, [2000, 3000], None)], ["STABLE", None, "TOO_FEW"]]
    )
    assert curves["x"] == [1, 2, 3]
    assert [(each["label"], each["mean"], each.get("dash", False)) for each in curves["series"]] == [
        ("version 1", [0.1, None, 0.3], False),
        ("version 1 offline", [0.9, 0.9, 0.9], True),
        ("version 9", [None, 0.2, 0.3], False),
    ]
    assert words == "Verdicts of 3 windows: too few values 1, stable 1, without it 1; the newest: too few values"
    assert len({token for _, token in colours}) == 3, "versions 1 and 9 have one colour elsewhere"
    assert ages == ["not known", "12 h", "0 ms", "12 d"]


def test_what_people_write_is_text(page: Page) -> None:
    page.goto(f"{SORTER_PAGE}&version=4")
    expect(page.locator(".markdown strong").filter(has_text="twice")).to_be_visible()
    expect(page.get_by_text("window.attacked = 1").first).to_be_visible()
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        page.goto(f"/models/{LONG}")
        expect(page.get_by_role("heading", name=LONG, level=1)).to_be_visible()
        expect(page.get_by_role("heading", name="Version 1", exact=True)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.goto("/models")
    expect(table(page, "Models, by project and name")).to_contain_text(LONG)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.goto("/models/%3Cimg%20src=x%20onerror=window.attacked=1%3E")
    expect(page.get_by_role("alert")).to_be_visible()
    assert page.evaluate("window.attacked === undefined") and page.locator("main script, main img[src=x]").count() == 0


# Addresses that are none, and nesting that is too deep to read.
BROKEN = (
    *(
        "[word](http://)",
        "[word](https://:80)",
        "[word](http://a%b)",
        "[word](http://[)",
        "[word](http://a:99999)",
        "![word](http://a:99999)",
    ),
    *(
        "[![word](http://a:99999)](http://b:99999)",
        "https://a:99999/ word",
        ">" * 4000 + " word",
        "\n".join(" " * n + "- word" for n in range(300)),
    ),
)
DRAWN = """async (texts) => {
  const m = await import('/static/app/parts/markdown.js');
  return texts.map((text) => {
    const parts = m.partsOf(text);
    const [all, one] = [parts.map((part) => part.tokens), [m.tokensOf(text)]].map((each) => each.map((tokens) => {
      const box = document.createElement('div');
      box.append(m.nodesOf(tokens));
      return box;
    }));
    const same = all.map((each) => each.innerHTML).join('') === one[0].innerHTML;
    const count = (selector) => one[0].querySelectorAll(selector).length;
    return { same, text: one[0].textContent, links: count("a"), plain: count("pre.text") };
  });
}"""


def test_text_that_is_no_markdown_is_shown_and_breaks_nothing(page: Page) -> None:
    page.goto("/models")
    found = page.evaluate(DRAWN, [*BROKEN, "[word](http://a:80/) ![word](http://b/x.png)"])
    assert all("word" in each["text"] and each["same"] for each in found), found
    assert [each["links"] for each in found] == [0] * len(BROKEN) + [2]
    assert (found[8]["plain"], found[8]["text"]) == (1, BROKEN[8])

    def broken(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"notes": "\n\n".join(BROKEN)})

    page.route(re.compile(rf"/v1/models/{SORTER}(/versions/4)?\?"), broken)
    page.goto(f"{SORTER_PAGE}&version=4")
    expect(page.get_by_role("button", name="Reject", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Roll back", exact=True)).to_be_visible()


@pytest.mark.parametrize("word", [".", "..", "../", "?"])
def test_dots_name_no_version(page: Page, word: str) -> None:
    page.goto(f"{SORTER_PAGE}&version={quote(word, safe='')}")
    expect(page.get_by_role("alert")).to_contain_text(f"{word} names no version")
    expect(page.get_by_role("button", name="Reject", exact=True)).to_have_count(0)
    page.goto(f"{SORTER_PAGE}&version=4&against={quote(word, safe='')}")
    expect(page.get_by_role("heading", name=f"Version 4 against version {word}")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text(f"{word} names no version")


def test_a_project_is_one_word_of_a_command(page: Page) -> None:
    page.goto("/models")
    projects = ["default", "research", "a.b_c-1", "x; rm -rf ~", "it's", "$(id)", "a\nb", "-"]
    words = "(await import('/static/app/model_words.js'))"
    said = page.evaluate(
        f"async (projects) => {{ const m = {words}; return projects.map((project) => m.inProject({{ project }})); }}", projects
    )
    assert said[:4] == ["", " --project research", " --project a.b_c-1", " --project 'x; rm -rf ~'"]
    assert [shlex.split(each) for each in said[1:]] == [["--project", project] for project in projects[1:]]


def test_a_thousand_versions_come_in_pages(page: Page) -> None:
    page.goto(f"/models/{MANY}")
    versions = table(page, "Versions, the newest first")
    expect(page.get_by_text("1,000 to 951 of 1,000")).to_be_visible()
    page.get_by_role("button", name="Older").click()
    expect(page.get_by_text("950 to 901 of 1,000")).to_be_visible()
    expect(versions.get_by_role("row")).to_have_count(51)
    page.get_by_role("button", name="Newer").click()
    expect(page.get_by_text("1,000 to 951 of 1,000")).to_be_visible()
    page.get_by_label("Show", exact=True).fill("7")
    page.get_by_label("Show", exact=True).press("Enter")
    expect(page.get_by_role("heading", name="Version 7", exact=True)).to_be_visible()
    expect(page).to_have_url(re.compile("version=7"))


def test_who_only_reads_is_offered_no_request(page_of: Callable[..., Page]) -> None:
    page = page_of("vic", "viewer")
    page.goto(SORTER_PAGE)
    expect(page.get_by_role("heading", name="Gate for version 4")).to_be_visible()
    for name in ("Approve", "Reject", "Promote", "Roll back", "Archive", "Review"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    expect(page.get_by_text(f"trainhouse models review {SORTER} 2")).to_be_visible()


def test_a_version_is_rejected_approved_promoted_and_rolled_back(page_of: Callable[..., Page]) -> None:
    approver, submitter = page_of("eva", "approver"), page_of("sam", "submitter")
    submitter.goto(f"{SORTER_PAGE}&version=4")
    expect(submitter.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
    asked(submitter, "Promote", "Yes, promote it")
    expect(submitter.get_by_role("alert")).to_contain_text("0 of 1 approvals")
    approver.goto(f"{SORTER_PAGE}&version=4")
    expect(approver.get_by_role("button", name="Promote", exact=True)).to_have_count(0)
    asked(approver, "Reject", "Yes, reject it", "lang=sv is worse")
    expect(approver.get_by_text("Rejected by eva.").first).to_be_visible()
    asked(approver, "Approve", "Yes, approve it", "few speak it here")
    expect(approver.get_by_text("Approved by eva.").first).to_be_visible()
    gate = table(approver, "Conditions of the gate")
    expect(gate.get_by_role("row").filter(has_text="approvals")).to_contain_text("1 of 1 approvals (eva)")
    submitter.get_by_role("button", name="Yes, promote it").click()  # its form is still open
    expect(table(submitter, "Versions, the newest first").get_by_role("row").nth(1)).to_contain_text("champion")
    expect(submitter.get_by_text("It is champion.")).to_be_visible()
    submitter.get_by_role("button", name="Roll back", exact=True).click()
    form = submitter.get_by_role("form", name="Make the champion before version 4 champion again?")
    form.get_by_role("button", name="Yes, roll back").click()
    expect(form).to_be_visible()  # a reason is needed
    form.get_by_role("textbox").fill("complaints in Swedish")
    form.get_by_role("button", name="Yes, roll back").click()
    expect(submitter.get_by_text("Version 1 is champion again.")).to_be_visible()
    expect(table(submitter, "Versions, the newest first").get_by_role("row").nth(1)).to_contain_text("archived")


def test_a_champion_that_came_while_a_form_was_open_is_not_rolled_back(page_of: Callable[..., Page]) -> None:
    page, other = page_of("sam", "submitter"), page_of("ada", "submitter")
    page.goto(f"/models/{MANY}?version=1")
    page.get_by_role("button", name="Roll back", exact=True).click()
    page.get_by_role("button", name="Roll back to it", exact=True).click()
    question = re.compile(r"^Make the champion before version (\d+) champion again\?$")
    forms = [page.get_by_role("form", name=name) for name in (question, "Make version 1 champion again?")]
    seen = question.match(forms[0].get_attribute("aria-label") or "")
    assert seen is not None
    other.goto(f"/models/{MANY}?version=999")
    asked(other, "Promote", "Yes, promote it")
    expect(other.get_by_text("It is champion.")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile(r"^999 \("))).to_be_visible()  # the page knows
    for form in forms:
        form.get_by_role("textbox").fill("complaints")
        form.get_by_role("button", name="Yes, roll back").click()
    said = page.get_by_role("alert").filter(has_text=f"version 999 by now, and the rollback was asked against version {seen[1]}")
    expect(said).to_have_count(2)
    expect(forms[0]).to_be_visible()
    forms[0].get_by_role("button", name="Leave it").click()
    page.get_by_role("button", name="Roll back", exact=True).click()
    expect(page.get_by_role("form", name="Make the champion before version 999 champion again?")).to_be_visible()


def test_an_approval_rests_on_what_stood_there_when_its_form_opened(page_of: Callable[..., Page], world: World) -> None:
    page = page_of("eva", "approver")
    page.route(re.compile("/why"), lambda route: route.fulfill(status=503, json={"title": "Not now"}))
    page.goto(f"/models/{LONG}")
    expect(page.get_by_role("alert").filter(has_text="Not now")).to_be_visible()
    expect(page.get_by_role("button", name="Reject", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
    page.unroute(re.compile("/why"))
    page.reload()
    page.get_by_role("button", name="Approve", exact=True).click()
    result = {"suite": "late", "dataset": DATASET, "samples": 400, "evaluated_at_ms": time.time_ns() // 1_000_000, "evaluation_id": "late"}
    fields = {"content": content_in(LONG, 1), "document": content_in(LONG, 2), "metrics": {"accuracy": {"value": 0.5}}}
    bearer = {"Authorization": f"Bearer {world.gateway.token('submitter')}"}
    with page.expect_response(re.compile("/why")):
        answer = httpx.post(f"{world.gateway.url}/v1/models/{LONG}/evaluations", json=result | fields, headers=bearer, timeout=60)
        assert answer.is_success, answer.text
    expect(table(page, "The newest results").get_by_role("row").filter(has_text="late")).to_be_visible()
    form = page.locator(".request form")
    form.get_by_role("button", name="Yes, approve it").click()
    expect(page.get_by_role("alert")).to_contain_text("evidence")
    form.get_by_role("button", name="Leave it").click()
    asked(page, "Approve", "Yes, approve it")
    expect(page.get_by_text("Approved by eva.").first).to_be_visible()


def test_an_emergency_waits_for_another_person(page_of: Callable[..., Page]) -> None:
    maker, other = page_of("eva", "approver"), page_of("zoe", "approver")
    maker.goto(f"/models/{MANY}?version=1000")
    asked(maker, "Promote as an emergency", "Yes, promote it", "all answers are empty")
    notice = "Version 1000 (1.0.999) was promoted as an emergency by eva"
    expect(maker.get_by_text(notice)).to_be_visible()
    asked(maker, "Review", "It is reviewed")
    expect(maker.get_by_role("alert")).to_contain_text("another person reviews it")
    other.goto(f"/models/{MANY}")
    asked(other, "Review", "It is reviewed", "was right")
    expect(other.get_by_text(notice)).to_have_count(0)


def test_requests_are_made_and_left_by_keyboard(page: Page) -> None:
    page.goto(f"{SORTER_PAGE}&version=3")
    archive = page.get_by_role("button", name="Archive", exact=True)
    archive.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name=re.compile("^Archive version 3"))).to_be_focused()
    page.keyboard.press("Escape")
    expect(archive).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.type("superseded")
    page.keyboard.press("Enter")
    expect(page.get_by_text("archived by a person")).to_be_visible()


def test_a_job_and_a_dataset_lead_to_their_models(page: Page) -> None:
    page.goto(f"/jobs/{READER}?tab=checkpoints")
    expect(table(page, "Models made of its checkpoints").get_by_role("row").filter(has_text=f"{READER}@4").first).to_contain_text(SORTER)
    page.goto(f"/datasets/{DATASET}")
    table(page, "Models trained on it").get_by_role("link", name=SORTER).first.click()
    expect(page).to_have_url(re.compile(f"/models/{SORTER}\\?project=research&version="))


@pytest.mark.parametrize(
    ("path", "shows"),
    [
        ("/models", "region:Models, by project and name"),
        (f"{SORTER_PAGE}&version=4", "region:Verdicts of suite held-out"),
        (f"/models/{LONG}", "heading:Gate for version 1"),
        (f"/models/{MANY}", "heading:Gate for version"),
    ],
)
def test_no_violations_and_nothing_sticks_out(looked_at: Page, path: str, shows: str) -> None:
    assert not complaints(looked_at, path, shows, in_the_dark=True)


def asked(page: Page, title: str, yes: str, reason: str = "") -> None:
    """Makes one request on the page."""
    page.get_by_role("button", name=title, exact=True).click()
    form = page.locator(".request form")
    form.get_by_role("textbox").fill(reason)
    form.get_by_role("button", name=yes).click()
