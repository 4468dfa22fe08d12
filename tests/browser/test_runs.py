"""Tags, notes, chosen columns, actions on one job and on many, as people use them on the pages; what is written goes to a real Kafka."""

from __future__ import annotations

import re

from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import sign_in
from tests.browser.story import JOB, SPEC
from tests.browser.test_faults import of
from tests.browser.world import World
from trainhouse.client.kafka.job_events import spec_of_job
from trainhouse.client.kafka.scan import headers_of, scan
from trainhouse.events import CancelJob, ChangeJob
from trainhouse.events.model.base import Event
from trainhouse.events.model.tracking import TagsChanged
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import decode
from trainhouse.gateway.runs.tag_routes import NOTE

TAGGED = "sweep-41"


def of_kind(bus: KafkaSettings, topic: str, job_id: str, kind: type[Event]) -> list[Event]:
    """Events about a job on a topic."""
    found = (decode(message.value(), headers_of(message)).event for message in scan(bus, [topic], job_id.encode()))
    return [event for event in found if isinstance(event, kind)]


def tagged(world: World, job_id: str, tags: dict[str, str]) -> None:
    """Tags as the projector writes them."""
    at_ms = world.story.ms(950)
    world.tables.put(topics.TRACKING, [TagsChanged(job_id=job_id, tags=tags, at_ms=at_ms)], at_ms)


def test_tags_and_the_note_of_a_job_are_changed_on_its_page(page: Page, world: World, bus: KafkaSettings) -> None:
    tagged(world, TAGGED, {"paper": "icml", "mlflow.user": "ada", NOTE: "the <b>good</b> one"})
    page.goto(f"/jobs/{TAGGED}")
    tags = page.get_by_role("group", name="Tags")
    expect(tags).to_contain_text("paper=icml")
    expect(tags).not_to_contain_text("mlflow")
    expect(page.get_by_text("the <b>good</b> one")).to_be_visible()
    page.get_by_role("button", name="Add a tag").click()
    page.get_by_label("Tag", exact=True).fill("=")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("A tag has a name")
    page.get_by_label("Tag", exact=True).fill(f"{'k' * 200}= a=b ")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(tags).to_contain_text(f"{'k' * 200}=a=b")
    page.get_by_role("button", name="Remove the tag paper").click()
    expect(tags).not_to_contain_text("paper=icml")
    page.get_by_role("button", name="Edit the note").click()
    page.get_by_label("Note").fill("better\nthan the others")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("better than the others")).to_be_visible()
    sent = [event for event in of_kind(bus, topics.TRACKING, TAGGED, TagsChanged) if isinstance(event, TagsChanged)]
    assert [(event.tags, event.deleted) for event in sent] == [
        ({"k" * 200: "a=b"}, ()),
        ({}, ("paper",)),
        ({NOTE: "better\nthan the others"}, ()),
    ]
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")  # charts are drawn anew in the next frames


def test_the_list_of_jobs_is_filtered_by_tag_and_has_chosen_columns(page: Page, world: World) -> None:
    tagged(world, JOB, {"owner": "ada", NOTE: "for the paper"})
    page.goto("/jobs?q=tag:owner%3Dada")
    jobs = page.get_by_role("list", name="Jobs")
    expect(jobs.get_by_role("listitem")).to_have_count(1)
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Tags", exact=True).check()
    page.get_by_label("Note", exact=True).check()
    page.get_by_label("Search", exact=True).fill("lr")
    page.get_by_label("lr", exact=True).check()
    page.get_by_label("Search", exact=True).fill("loss")
    page.get_by_role("checkbox", name="loss, lowest").check()
    page.get_by_role("checkbox", name="loss, last").check()
    row = jobs.get_by_role("listitem").first
    expect(row).to_contain_text(re.compile(r"owner=ada.*for the paper.*3e-4(?:[01]\.\d+){2}", re.S))
    page.reload()
    expect(row).to_contain_text(re.compile(r"owner=ada.*3e-4", re.S))
    page.get_by_role("searchbox", name="Filter jobs").fill("sweep-0")
    page.get_by_role("button", name="Order by lr").click()
    expect(jobs.get_by_role("listitem").first).to_contain_text("sweep-00")
    page.get_by_role("button", name="Order by lr, now rising").click()
    expect(jobs.get_by_role("listitem").first).to_contain_text("sweep-09")


def test_jobs_without_a_value_come_last_whichever_way(page: Page) -> None:
    page.goto("/jobs")
    jobs = [{"job_id": n, "name": n} for n in "abcd"]
    tried = (
        "['lr', '-lr'].map((order) => m.sorted(given.jobs, order, { lr: (job) => given.lr[job.job_id] }).map((job) => job.job_id).join(''))"
    )
    assert page.evaluate(of("filter.js", tried), {"jobs": jobs, "lr": {"a": 2, "b": 1, "d": "word"}}) == ["badc", "abdc"]


def test_many_jobs_are_tagged_and_cancelled(page: Page, bus: KafkaSettings) -> None:
    page.goto("/jobs?q=bulk-0004&order=name")
    for job in ("bulk-00040", "bulk-00044", "bulk-00046"):
        page.get_by_role("listitem").filter(has_text=job).get_by_role("checkbox").check()
    chosen = page.get_by_role("group", name="Chosen jobs")
    expect(chosen).to_contain_text("3 jobs chosen")
    chosen.get_by_role("button", name="Tag", exact=True).click()
    chosen.get_by_label("Tag").fill("batch=7")
    chosen.get_by_role("button", name="Set on 3").click()
    expect(chosen.get_by_role("status")).to_have_text("Tagged: 3 jobs.")
    for job in ("bulk-00040", "bulk-00044", "bulk-00046"):
        (event,) = of_kind(bus, topics.TRACKING, job, TagsChanged)
        assert isinstance(event, TagsChanged) and event.tags == {"batch": "7"}
    chosen.get_by_role("button", name="Cancel jobs").click()
    expect(chosen).to_contain_text("Cancel 2 jobs that have not ended?")
    chosen.get_by_role("button", name="Yes, cancel them").click()
    expect(chosen.get_by_role("status")).to_have_text("Asked to cancel: 2 jobs.")
    assert [len(of_kind(bus, topics.JOBS, job, CancelJob)) for job in ("bulk-00040", "bulk-00044", "bulk-00046")] == [0, 1, 1]
    chosen.get_by_role("button", name="Choose all 10 that fit").click()
    chosen.get_by_role("button", name="Compare 10").click()
    expect(page.get_by_role("heading", name="Compare")).to_be_visible()
    expect(page.get_by_text("10 runs", exact=True)).to_be_visible()


def test_what_was_refused_of_many_is_listed_with_its_reason(page: Page, world: World) -> None:
    """Kafka is away."""
    page.goto("/jobs?q=bulk-00052")
    page.get_by_role("listitem").get_by_role("checkbox").check()
    chosen = page.get_by_role("group", name="Chosen jobs")
    tried = """async (given) => {
      const m = await import('/static/app/views/jobs/bulk.js');
      const found = await m.forEach(given, async (job) => { if (job.bad) throw new Error('no'); });
      return found.map(([job, why]) => `${job.job_id} ${why}`);
    }"""
    assert page.evaluate(tried, [{"job_id": str(n), "bad": n == 2} for n in range(9)]) == ["2 no"]
    expect(chosen).to_contain_text("1 job chosen")


def test_a_job_is_submitted_again_and_resumed_from_its_page(page: Page, world: World, bus: KafkaSettings) -> None:
    page.goto(f"/jobs/{JOB}")
    page.get_by_text("Resubmit", exact=True).click()
    page.get_by_role("button", name="From the start").click()
    told = page.get_by_role("status").filter(has_text="Submitted as ")
    expect(told).to_be_visible()
    spec = spec_of_job(bus, told.get_by_role("link").inner_text())
    assert spec is not None and spec.labels == {"rerun-of": JOB} and spec.user == "eva"
    assert spec.model_copy(update={"labels": {}, "user": SPEC.user}) == SPEC
    page.locator("summary").filter(has_text="Priority").click()
    expect(page.get_by_label("Priority", exact=True)).to_have_value(re.compile(r"\d+"))
    page.get_by_label("Priority", exact=True).fill("7")
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page.get_by_text("Asked for; the scheduler has not answered yet.")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("is on the bus, but cannot be read yet")
    (event,) = of_kind(bus, topics.JOBS, JOB, ChangeJob)
    assert isinstance(event, ChangeJob) and event.priority == 7


def test_who_only_reads_is_offered_no_action(context: BrowserContext, world: World) -> None:
    sign_in(context, world.gateway.token("viewer"))
    page = context.new_page()
    tagged(world, JOB, {"owner": "ada"})
    page.goto(f"/jobs/{JOB}")
    expect(page.get_by_role("group", name="Tags")).to_contain_text("owner=ada")
    for name in ("Add a tag", "Edit the note", "Write a note", "Remove the tag owner"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.get_by_text("Resubmit", exact=True)).to_have_count(0)
    page.goto("/jobs?q=bulk-00052")
    page.get_by_role("listitem").get_by_role("checkbox").check()
    chosen = page.get_by_role("group", name="Chosen jobs")
    expect(chosen.get_by_role("button", name="Compare 1")).to_be_visible()
    expect(chosen.get_by_role("button", name="Cancel jobs")).to_have_count(0)
