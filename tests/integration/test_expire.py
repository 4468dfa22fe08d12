"""Finished jobs leave the compacted topics of a real stack, and everything that is asked of them has the same answer; what intake re-keyed
is known by its place.

The tests of this file follow each other.
"""

from __future__ import annotations

import json
import secrets
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.own_stack import SLOTS, OwnStack
from tests.support.decoded import decoded
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.deploy.local.layout import read_toml
from trainhouse.events.archive.log import journal_reader
from trainhouse.events.bus.admin import topic_id
from trainhouse.events.bus.kafka import partitions_of, read_to_end
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import ADMISSION, JOBS, STATUS

pytestmark = pytest.mark.stack
A_SECOND_IN_DAYS = 1 / 86_400


@dataclass(frozen=True)
class Hasty(LiveStack):
    """A stack whose commands keep a finished job for a second."""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"TRAINHOUSE_RETENTION_STATUS_DAYS": str(A_SECOND_IN_DAYS)}

    @property
    def kafka(self) -> KafkaSettings:
        return KafkaSettings.model_validate(read_toml(self.data_dir / "trainhouse.toml")["kafka"])

    def run_a_job(self) -> str:
        job = f"ended-{secrets.token_hex(3)}"
        self.submit(job)
        return job

    def submit(self, job: str) -> str:
        return self.ok("submit", "--no-code", "--wait", "--id", job, "--", "python", "-c", "pass")

    def expire(self, *more: str) -> dict[str, int]:
        """How many keys each topic lost."""
        rows = map(json.loads, self.ok("expire", "--json", *more).splitlines())
        return {row["topic"]: row["ended" if "--dry-run" in more else "tombstones"] for row in rows}

    def hashes(self, out: str) -> dict[str, str]:
        return {row["table"]: row["hash"] for row in map(json.loads, out.splitlines()) if row["table"] in ("jobs_rows", "statuses_rows")}


@pytest.fixture(scope="module")
def stack(own_stack: OwnStack) -> Hasty:
    if not own_stack.runs():
        own_stack.up()
    return Hasty(own_stack.data_dir, SLOTS)


def test_a_finished_job_leaves_the_status_topic_and_has_the_same_answers(stack: Hasty, tmp_path: Path) -> None:
    job = stack.run_a_job()
    before = [stack.ok("status", job), json.loads(stack.ok("status", job, "--json"))]
    assert job in stack.client().statuses()
    stack.run_a_job()  # by its records, too, the first one ended more than a second ago
    until(lambda: stack.expire("--dry-run")[STATUS], "a status that ended and that the tables hold")
    assert job in stack.client().statuses(), "a dry run deletes nothing"
    ended = 0

    def gone() -> bool:
        nonlocal ended
        ended += stack.expire()[STATUS]
        return job not in stack.client().statuses()

    until(gone, "the status of this job")  # at once, unless it was one of another test that had ended
    assert ended > 0
    after = json.loads(stack.ok("status", job, "--json"))
    assert {name for name in before[1] if before[1][name] != after.get(name)} == set()
    assert stack.ok("status", job) == before[0]
    stack.submit(job)  # the same job, which has ended: nothing is waited for
    fresh = stack.hashes(stack.ok("projections", "rebuild", "--json", "--into", str(tmp_path / "new")))
    assert set(fresh) == {"jobs_rows", "statuses_rows"}
    until(lambda: stack.hashes(stack.ok("projections", "hash", "--json")) == fresh, "the tables that serve, built anew")


def test_each_admission_names_the_record_that_it_comes_from(stack: Hasty) -> None:
    kafka = stack.kafka
    with closing(journal_reader(kafka)) as reader:
        found = list(decoded(read_to_end(reader, ADMISSION, partitions_of(reader, ADMISSION))))
    origins = {e.origin for e in found if e.order is None}
    assert origins and None not in origins
    assert {o.topic_id for o in origins if o} == {topic_id(kafka, JOBS)}
