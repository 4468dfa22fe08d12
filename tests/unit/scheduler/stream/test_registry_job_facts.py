"""Facts of a job that trained a version: by its status, and by the submission that the status has the hash of."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.fakes.journal_fakes import FakeBroker, FakeLog
from tests.support.registry_requests import VALIDATION, facts_of
from trainhouse.events import Event, JobAdmitted, JobSpec, JobState, JobStatus, JobSubmitted, envelope_of
from trainhouse.events.model.tracking import LoggedModelChanged, TagsChanged, TrackedRunBegun
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.topics import ADMISSION, CONTROL, JOBS, STATUS, TRACKING
from trainhouse.scheduler.core.registry.trained_on import with_data
from trainhouse.scheduler.stream.model_interfaces import KnownJob
from trainhouse.scheduler.stream.registry.job_facts import read_job


def spec_of(**data: Any) -> JobSpec:
    """A spec with this data."""
    return JobSpec.model_validate({"runtime": {"command": ["train"]}} | ({"data": data} if data else {}))


def known(*records: tuple[str, Event]) -> KnownJob | None:
    """What is known of job gpt by these records."""

    async def look() -> KnownJob | None:
        log = FakeLog(FakeBroker())
        for k, (topic, event) in enumerate(records):
            await log.send(topic, b"gpt", encode(envelope_of(event, id=f"e{k}", source="tests", now_ms=1)))
        return await read_job(log, "gpt")

    return asyncio.run(look())


def status(spec: JobSpec) -> JobStatus:
    """Status of the job with a spec."""
    about = {"job_id": "gpt", "status_seq": 1, "state": JobState.RUNNING, "spec_sha256": spec.sha256()}
    return JobStatus.model_validate(about | {"project": "vision", "user": "ada"})


def submitted(spec: JobSpec, job_id: str = "gpt") -> JobSubmitted:
    """Submission of a job."""
    return JobSubmitted.model_validate({"job_id": job_id, "spec": spec})


def test_data_and_split_are_those_of_the_spec_and_no_other_submission_of_that_name_counts() -> None:
    spec, other = spec_of(dataset=VALIDATION, split="train"), spec_of()
    records = [(JOBS, submitted(spec)), (JOBS, submitted(other)), (JOBS, submitted(other, "gpt-2")), (STATUS, status(spec))]
    assert known(*records) == KnownJob("vision", "ada", (VALIDATION,), (f"{VALIDATION}/train",))
    assert known((JOBS, submitted(other)), (STATUS, status(spec))) == KnownJob("vision", "ada", has_spec=False)
    assert known((JOBS, submitted(spec))) is None


def test_a_job_that_came_by_its_projects_topic_has_the_data_of_its_admission() -> None:
    spec, resolved = spec_of(dataset="imagenet@1.0.0"), spec_of(dataset=VALIDATION)
    about = {"job_id": "gpt", "spec": resolved, "submission_id": "s", "submitted_at_ms": 1}
    admitted = [(CONTROL, JobAdmitted.model_validate(about | {"spec_sha256": each})) for each in (spec.sha256(), "another")]
    assert known(*admitted, (STATUS, status(spec))) == KnownJob("vision", "ada", (VALIDATION,))


def test_a_job_that_ran_longer_than_control_keeps_has_the_data_of_the_admissions_topic() -> None:
    spec, other = spec_of(dataset=VALIDATION, split="train"), spec_of()
    records = [(ADMISSION, submitted(spec)), (ADMISSION, submitted(other)), (STATUS, status(spec))]
    assert known(*records) == KnownJob("vision", "ada", (VALIDATION,), (f"{VALIDATION}/train",))


def test_of_what_a_client_logged_the_first_word_counts_and_its_data_is_not_known() -> None:
    of = {"experiment_id": "1", "experiment": "vision", "project": "vision"}
    begun = TrackedRunBegun.model_validate(of | {"job_id": "gpt", "user": "ada", "started_at_ms": 1})
    again = begun.model_copy(update={"user": "eve", "project": "speech"})
    tagged = TagsChanged.model_validate({"job_id": "gpt", "tags": {"a": "b"}, "at_ms": 1})
    assert known((TRACKING, tagged)) is None
    assert known((TRACKING, tagged), (TRACKING, begun), (TRACKING, again)) == KnownJob("vision", "ada", has_spec=False)
    created = LoggedModelChanged.model_validate(of | {"model_id": "gpt", "user": "bob", "created": True, "at_ms": 1})
    changed = created.model_copy(update={"created": False, "user": "eve"})
    assert known((TRACKING, changed)) is None
    assert known((TRACKING, changed), (TRACKING, created)) == KnownJob("vision", "bob", has_spec=False)
    other = begun.model_copy(update={"job_id": "gpt-2"})
    assert known((TRACKING, other)) is None


def test_what_a_registration_leaves_out_is_added() -> None:
    facts = with_data(facts_of(1, data=(), splits=(), missing=("data",)), (VALIDATION,), (f"{VALIDATION}/train",), 256)
    assert (facts.data, facts.splits, facts.missing) == ((VALIDATION,), (f"{VALIDATION}/train",), ())
    same = with_data(facts, ("imagenet@1.0.0",), (), 256)
    assert same == facts, "a tag of data that is known by its hash adds none"
