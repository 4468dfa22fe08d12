"""The archive on a whole stack, whose journals are cut off behind it: replay, rebuilds and recovery go on as if nothing were gone.

The tests of this file follow each other: first all is archived and trimmed, then it is read, then harm is done to it.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.integration.own_stack import SLOTS, OwnStack
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.cli.shared.exit_codes import Exit
from trainhouse.deploy.local.layout import read_toml
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.events.archive.partition import PREFIX
from trainhouse.events.archive.reading import RECORDED
from trainhouse.events.bus.kafka import producer_config
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.envelope import rfc3339
from trainhouse.events.wire.topics import ADMISSION, CONTROL, DECISIONS, DIRECTORY, MODEL_REQUESTS, REGISTRY, STUDY_REQUESTS, TUNING
from trainhouse.projections.ingest.lanes import OF_DECISIONS
from trainhouse.scheduler.stream.history.journal_replay import snapshots_of

pytestmark = pytest.mark.stack
COMMAND = [sys.executable, "-m", "trainhouse.cli.main"]
Rows = dict[tuple[str, int], dict[str, Any]]


@dataclass
class Site:
    """The stack, and what was seen of it before anything was trimmed."""

    stack: LiveStack
    jobs: list[str] = field(default_factory=list)
    ran_at_ms: int = 0
    archived: Rows = field(default_factory=dict)

    @cached_property
    def objects(self) -> S3ObjectStore:
        return S3ObjectStore(StoreSettings.model_validate(read_toml(self.stack.data_dir / "trainhouse.toml")["s3"]))

    @property
    def kafka(self) -> KafkaSettings:
        return KafkaSettings.model_validate(read_toml(self.stack.data_dir / "trainhouse.toml")["kafka"])

    def keys(self, topic: str) -> list[str]:
        return [found.key for found in self.objects.list(f"{PREFIX}{topic}/")]

    def run_a_job(self) -> None:
        job = f"archived-{secrets.token_hex(3)}"
        self.stack.ok("submit", "--no-code", "--wait", "--id", job, "--", "python", "-c", "pass")
        self.jobs.append(job)

    def archive(self, *more: str) -> Rows:
        return rows_of(self.stack.ok("archive", "--json", *more, timeout_s=500))

    def disturb(self) -> None:
        """An input for each partition that leaves a record and nothing else: an idle journal has one every two minutes."""
        producer = Producer(producer_config(self.kafka))
        of_machines = ((MODEL_REQUESTS, 1), (STUDY_REQUESTS, 1))
        for topic, partitions in ((ADMISSION, self.kafka.partitions), (CONTROL, self.kafka.partitions), *of_machines):
            for partition in range(partitions):
                producer.produce(topic, value=b"nothing that can be read", partition=partition)
        assert producer.flush(30) == 0

    def start_archive(self, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, "archive", "--json", *more],
            env=self.stack.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent(),
        )

    def of_decisions(self) -> dict[str, str]:
        """Hashes of the tables that follow from decisions, as the projector has them now."""
        return hashes_of(self.stack.ok("projections", "hash", "--json"))

    def scheduler_pid(self) -> int:
        pid = self.stack.part("scheduler").pid
        assert pid
        return pid

    def verified(self) -> dict[str, dict[str, Any]]:
        return {row["topic"]: row for row in self.stack.run("replay", "--verify", "--json").objects()}


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """The process stands still in the block, which may kill it."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def rows_of(out: str) -> Rows:
    return {(row["topic"], row["partition"]): row for row in map(json.loads, out.splitlines())}


def hashes_of(out: str) -> dict[str, str]:
    return {row["table"]: row["hash"] for row in map(json.loads, out.splitlines()) if row["table"] in OF_DECISIONS}


@pytest.fixture(scope="module")
def site(own_stack: OwnStack) -> Site:
    if not own_stack.runs():
        own_stack.up()
    return Site(LiveStack(own_stack.data_dir, SLOTS))


def test_writers_that_are_killed_and_writers_at_once_leave_one_archive(site: Site) -> None:
    site.run_a_job()
    site.ran_at_ms = time.time_ns() // 1_000_000
    killed = site.start_archive("--follow", "--every", "1")
    until(lambda: site.keys(DECISIONS), "a first object")
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=480)
    site.run_a_job()
    both = [site.start_archive() for _ in range(2)]
    told = [one.communicate(timeout=480) for one in both]
    assert [one.returncode for one in both] == [0, 0], told
    for place, row in site.archive().items():
        assert row["topic_begins_at"] == 0
        assert row["archived_to"] >= max(rows_of(out)[place]["archived_to"] for out, _ in told)


def test_topics_are_trimmed_to_what_is_still_needed(site: Site) -> None:
    before = site.archive()

    def trimmed() -> Rows | None:
        """Beyond all that was said of the jobs: a snapshot comes with each record, and trimmed is up to the oldest of three."""
        site.disturb()
        rows = site.archive("--trim")
        journals = [place for place in before if place[0] not in RECORDED]
        return rows if all(rows[place]["topic_begins_at"] >= before[place]["archived_to"] for place in journals) else None

    site.archived = after = until(trimmed, lambda: before, timeout_s=300, every_s=2)
    assert all(row["topic_begins_at"] <= row["archived_to"] for row in after.values())
    for journal in (DECISIONS, DIRECTORY, REGISTRY, TUNING):
        for pointer in {p.partition: p for p in snapshots_of(site.kafka, journal)}.values():
            assert after[journal, pointer.partition]["topic_begins_at"] <= pointer.offset, "the record that a snapshot includes last stays"
    assert sum(row["topic_begins_at"] for (topic, _), row in after.items() if topic == ADMISSION) > len(site.jobs)
    follower = site.start_archive("--follow", "--trim", "--every", "1")
    site.disturb()  # else the first record comes two minutes later
    first = rows_of(follower.stdout.readline() if follower.stdout else "")
    assert first and all(row["records"] for row in first.values())
    follower.terminate()
    _, said = follower.communicate(timeout=480)
    assert follower.returncode == 0, said


def test_replay_is_the_same_byte_for_byte(site: Site) -> None:
    found = site.verified()
    assert {topic: row["same"] for topic, row in found.items()} == dict.fromkeys((DECISIONS, DIRECTORY, REGISTRY, TUNING), True), found
    assert all(row["recomputed"] for row in found.values())
    for topic, row in found.items():
        archived = sum(of["archived_to"] for (name, _), of in site.archived.items() if name == topic)
        assert row["ignored"] < row["records"] >= archived - row["ignored"], (archived, row)
    then = site.stack.run("replay", "--at", rfc3339(site.ran_at_ms), "--json")
    assert then.code == 0, then.err
    assert then.objects()[0]["kind"] == "moment"
    assert json.loads(site.stack.ok("what-if", "--policy", "fifo", "--json"))["recorded"]["jobs"] == len(
        site.stack.rows("SELECT job_id FROM jobs")
    )


def test_a_rebuild_gives_the_same_tables(site: Site, tmp_path: Path) -> None:
    # A scheduler that runs writes down a cycle every few seconds: the journal stands still meanwhile.
    with paused(site.scheduler_pid()):
        fresh = hashes_of(site.stack.ok("projections", "rebuild", "--json", "--into", str(tmp_path / "new")))
        assert set(fresh) == OF_DECISIONS
        # What serves was read from the topics before anything was trimmed.
        until(lambda: site.of_decisions() == fresh, lambda: set(site.of_decisions().items()) ^ set(fresh.items()))


def test_a_scheduler_without_a_snapshot_recovers_from_the_archive(site: Site) -> None:
    pid = site.scheduler_pid()
    with paused(pid):
        for found in list(site.objects.list("snapshots/")):
            site.objects.delete(found.key)
        os.kill(pid, signal.SIGKILL)
    site.run_a_job()
    assert "folding the archived journal" in Path(site.stack.part("scheduler").log).read_text()
    assert site.verified()[DECISIONS]["same"]


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_an_object_that_is_damaged_or_missing_is_named(site: Site, harm: str) -> None:
    key = site.keys(DECISIONS)[0]
    content = site.objects.get(key)
    if harm == "damaged":
        site.objects.put(key, content[:-20])
    else:
        site.objects.delete(key)
    try:
        for arguments in (("replay", "--verify"), ("what-if", "--policy", "fifo")):
            # On a busy machine the brokers may be late with an answer about a topic.
            done = until(lambda: done if (done := site.stack.run(*arguments)).code != Exit.UNAVAILABLE else None)  # noqa: B023
            assert done.code == 1, done.err
            assert key.rpartition("/")[0] in done.err and "Traceback" not in done.err
    finally:
        site.objects.put(key, content)
    assert site.verified()[DECISIONS]["same"]
