"""What was written before there were projects stays byte for byte as it was: specs, statuses, submissions, the directory's state."""

from __future__ import annotations

import orjson

from tests.support.core_world import admitted, spec
from trainhouse.events import JobStatus, JobSubmitted, PoolCreated, ProjectLimits
from trainhouse.events.wire.journal import decisions_json
from trainhouse.scheduler.core.intake.directory import DirectoryMachine


def test_what_says_nothing_of_purposes_is_written_as_before() -> None:
    old = spec()
    assert "purpose" not in orjson.loads(old.model_dump_json()) and b"purpose" not in old.canonical_json()
    submitted = JobSubmitted.model_validate({"job_id": "j", "spec": old})
    status = JobStatus.model_validate({"job_id": "j", "status_seq": 1, "state": "PENDING"})
    for told in decisions_json([submitted, status, admitted("j")]):
        assert b"purpose" not in orjson.dumps(told) and b"asked_as" not in orjson.dumps(told)


def test_what_says_something_is_written_and_read_back() -> None:
    asked = JobSubmitted.model_validate({"job_id": "j", "spec": spec(purpose="p"), "asked_as": "viewer"})
    assert JobSubmitted.model_validate_json(asked.model_dump_json()) == asked
    assert spec(purpose="p").sha256() != spec().sha256() != spec(purpose="q").sha256()


def test_a_directory_without_projects_is_dumped_as_before() -> None:
    machine = DirectoryMachine()
    state = machine.initial(0)
    machine.fold(state, 1, [], [PoolCreated.model_validate({"pool": "p", "partition": 0})])
    before = machine.at(machine.lowest_level)
    assert sorted(orjson.loads(before.dump(state))) == ["format", "held", "jobs", "partition", "pools", "seen"]
    assert sorted(orjson.loads(machine.dump(state))) == ["format", "held", "jobs", "partition", "pools", "seen", "settled"]


def test_limits_that_say_nothing_of_jobs_are_written_as_before() -> None:
    said = {"highest_priority", "submissions_per_minute", "requests_per_minute", "storage_gib"}
    assert ProjectLimits().model_dump().keys() == said
    assert ProjectLimits(running=1, queued=2).model_dump().keys() == said | {"running", "queued"}
