"""Outputs of a job: asked for once, when every rank exited with code 0; the job ends by intake's answers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.support.core_world import Driver, admitted, exited, going, gone, lost, noticed, progress, registered, running, started
from trainhouse.events import (
    CancelJob,
    CheckpointRequested,
    DatasetVersion,
    DrainNode,
    GangAllocated,
    GangReleased,
    JobRejected,
    JobState,
    JobStatus,
    OutputAnswered,
    OutputsSealed,
    PoolCreated,
    PoolName,
    ProjectLimited,
    PublishDataset,
    ReviewAction,
    ReviewJob,
)
from trainhouse.events.model.dataset import SplitSize
from trainhouse.events.model.decisions import JobRequeued
from trainhouse.events.wire.topics import JOBS
from trainhouse.scheduler.core.attempts.job_outputs import OUTPUTS_SINCE, SEALING_MS
from trainhouse.scheduler.core.schedule import ScheduleMachine


def version(name: str = "tokens", project: str = "default", sha256: str = "a" * 64) -> DatasetVersion:
    return DatasetVersion(
        dataset=name,
        sha256=sha256,
        project=project,
        schema_hash="b" * 64,
        split_config_hash="c" * 64,
        splits={"train": SplitSize(samples=1, bytes=10, shards=1)},
        row_count=1,
        bytes=10,
    )


def sealed(gang: GangAllocated, *versions: DatasetVersion, failure: str = "") -> OutputsSealed:
    about = {"job_id": gang.job_id, "attempt": gang.attempt, "epoch": gang.epoch, "pool": gang.pool, "at_ms": 1}
    return OutputsSealed.model_validate(about | {"node_id": gang.placements[0].node_id, "versions": versions, "failure": failure})


def answered(found: DatasetVersion, refusal: str = "", job_id: str = "j") -> OutputAnswered:
    fields = {"job_id": job_id, "pool": "default", "partition": 0, "dataset": found.dataset, "sha256": found.sha256, "refusal": refusal}
    return OutputAnswered.model_validate(fields)


def started_job(machine: ScheduleMachine | None = None, **fields: Any) -> tuple[Driver, GangAllocated]:
    driver = Driver(machine) if machine is not None else Driver()
    driver.feed(registered("a"), registered("b"))
    return driver, running(driver, "j", gang={"ranks": 2}, **({"outputs": ["tokens"]} | fields))


def clean(gang: GangAllocated) -> list[Any]:
    return [exited(gang, rank) for p in gang.placements for rank in p.ranks]


def asked(driver: Driver) -> list[PublishDataset]:
    return [e.event for e in driver.effects if isinstance(e.event, PublishDataset)]


def state(driver: Driver) -> JobStatus:
    return driver.last(JobStatus, job_id="j")


def test_a_job_succeeds_when_its_output_is_published() -> None:
    driver, gang = started_job()
    driver.feed(*clean(gang), sealed(gang, version()))
    assert not asked(driver)  # nothing before every node has left the attempt
    driver.feed(*gone(gang))
    assert [(a.version, a.job_id, a.pool) for a in asked(driver)] == [(version(), "j", "default")]
    assert [e.topic for e in driver.effects if isinstance(e.event, PublishDataset)] == [JOBS]
    assert state(driver).state is JobState.RUNNING
    driver.feed(answered(version()))
    assert state(driver).state is JobState.SUCCEEDED and str(version().name) in state(driver).reason
    driver.feed(answered(version()), sealed(gang, version()), *gone(gang))
    assert len(asked(driver)) == 1


def test_a_refused_output_fails_the_job_with_the_reason() -> None:
    driver, gang = started_job()
    driver.feed(*clean(gang), sealed(gang, version()), *gone(gang), answered(version(), "dataset tokens belongs to project x"))
    assert state(driver).state is JobState.FAILED and "belongs to project x" in state(driver).reason


def test_an_attempt_that_fails_publishes_nothing_and_the_next_one_does_once() -> None:
    driver, gang = started_job()
    driver.feed(exited(gang, 0), sealed(gang, version(sha256="d" * 64)), exited(gang, 1, 1), *gone(gang))
    assert not asked(driver)
    driver.tick(60_000)
    second = going(driver, "j")
    assert second.epoch > gang.epoch
    driver.feed(sealed(gang, version(sha256="d" * 64)))  # a late report of the first one
    driver.feed(*clean(second), sealed(second, version()), *gone(second), answered(version(sha256="d" * 64)), answered(version()))
    assert [a.version.sha256 for a in asked(driver)] == ["a" * 64]
    assert state(driver).state is JobState.SUCCEEDED


@pytest.mark.parametrize("event", ["cancel", "lost"])
def test_what_is_asked_for_is_not_undone(event: str) -> None:
    driver, gang = started_job()
    driver.feed(*clean(gang), sealed(gang, version()), *gone(gang))
    driver.feed(CancelJob(job_id=gang.job_id) if event == "cancel" else lost(registered(str(gang.placements[0].node_id))))
    assert state(driver).state is JobState.RUNNING
    driver.tick(60_000)
    driver.feed(answered(version()))
    assert state(driver).state is JobState.SUCCEEDED


def test_a_job_that_is_cancelled_before_publishes_nothing() -> None:
    driver, gang = started_job()
    driver.feed(CancelJob(job_id=gang.job_id), *clean(gang), *gone(gang))
    assert state(driver).state is JobState.CANCELLED and not asked(driver)


def test_a_node_that_is_lost_before_its_outputs_are_reported_costs_a_restart() -> None:
    driver, gang = started_job()
    driver.feed(*clean(gang), lost(registered(str(gang.placements[0].node_id))), *gone(gang))
    assert state(driver).attempt == 1 and not asked(driver)


@pytest.mark.parametrize("wrong", [[version("other")], [version(project="x")], [version(), version("more")], []])
def test_other_outputs_than_the_specs_are_never_published(wrong: list[DatasetVersion]) -> None:
    driver, gang = started_job()
    driver.feed(*clean(gang), sealed(gang, *wrong), *gone(gang))
    assert state(driver).state is JobState.FAILED and "the spec has tokens" in state(driver).reason and not asked(driver)


def test_an_output_that_is_not_whole_fails_the_job() -> None:
    driver, gang = started_job()
    driver.feed(*clean(gang), sealed(gang, failure="output tokens has no sample"), *gone(gang))
    assert state(driver).state is JobState.FAILED and "has no sample" in state(driver).reason


def test_several_outputs_end_the_job_with_the_last_answer() -> None:
    driver, gang = started_job(outputs=["tokens", "more"])
    driver.feed(*clean(gang), sealed(gang, version(), version("more")), *gone(gang), answered(version()), answered(version()))
    assert state(driver).state is JobState.RUNNING and len(asked(driver)) == 2
    driver.feed(answered(version("more")))
    assert state(driver).state is JobState.SUCCEEDED


def test_below_the_level_a_job_with_outputs_fails() -> None:
    driver, gang = started_job(ScheduleMachine().at(OUTPUTS_SINCE - 1))
    driver.feed(*clean(gang), sealed(gang, version()), *gone(gang))
    assert state(driver).state is JobState.FAILED and "an update is not finished" in state(driver).reason


def waiting_job(**fields: Any) -> tuple[Driver, GangAllocated]:
    driver, gang = started_job(**fields)
    driver.feed(*clean(gang), sealed(gang, version()), *gone(gang))
    return driver, gang


def requests_to_intake(driver: Driver) -> list[str]:
    return [str(e.event_id) for e in driver.effects if isinstance(e.event, PublishDataset)]


def test_an_answer_that_does_not_come_is_asked_for_again_ever_more_seldom_under_a_new_id() -> None:
    driver, _ = waiting_job(outputs=["tokens"])
    times = []
    for _ in range(3600 // 10):
        driver.tick(10_000)
        if len(requests_to_intake(driver)) > len(times) + 1:
            times.append(driver.now_ms)
    assert [(b - a) // 1000 for a, b in pairwise(times)] == [120, 240, 480, 900, 900, 900]
    ids = requests_to_intake(driver)
    assert len(set(ids)) == len(ids) == 8 and all(event_id.startswith(ids[0]) for event_id in ids)
    driver.feed(answered(version()))
    assert state(driver).state is JobState.SUCCEEDED


def test_only_outputs_without_an_answer_are_asked_for_again() -> None:
    driver, gang = started_job(outputs=["tokens", "more"])
    driver.feed(*clean(gang), sealed(gang, version(), version("more")), *gone(gang), answered(version()))
    driver.tick(60_000)
    assert [a.version.dataset for a in asked(driver)] == ["tokens", "more", "more"]


def test_a_job_that_waits_for_its_answer_repeats_no_order_and_no_status() -> None:
    driver, gang = waiting_job(limits={"run_time_s": 7200.0})
    driver.feed(CancelJob(job_id=gang.job_id), wait_ms=1000)
    before = len(driver.effects)
    for _ in range(50):
        driver.tick(1000)
    assert [type(e.event).__name__ for e in driver.effects[before:] if not isinstance(e.event, PoolCreated)] == []
    assert not driver.all(GangReleased, job_id="j")


def waits(driver: Driver, time_s: int) -> None:
    """Time goes by, with a tick every 10 s."""
    for _ in range(time_s // 10):
        driver.tick(10_000)


@pytest.mark.parametrize("early", [True, False])
def test_a_cancel_ends_a_job_whose_answer_does_not_come(early: bool) -> None:
    driver, gang = waiting_job()
    if early:
        driver.feed(CancelJob(job_id=gang.job_id))
        waits(driver, 590)
        assert state(driver).state is JobState.RUNNING and "cancelled" in state(driver).reason
        waits(driver, 20)
    else:
        waits(driver, 610)
        assert state(driver).state is JobState.RUNNING
        driver.feed(CancelJob(job_id=gang.job_id))
    reason = state(driver).reason
    assert state(driver).state is JobState.CANCELLED and "may be published" in reason and "trainhouse data list" in reason


@pytest.mark.parametrize("limit_s", [30.0, 7200.0])
def test_the_limit_of_run_time_ends_a_job_whose_answer_does_not_come(limit_s: float) -> None:
    driver, _ = waiting_job(limits={"run_time_s": limit_s})
    waits(driver, 60)
    assert state(driver).state is JobState.RUNNING
    waits(driver, 600)
    assert (state(driver).state is JobState.FAILED) == (limit_s < 7200)
    waits(driver, 7200)
    assert (
        state(driver).state is JobState.FAILED
        and "limits.run_time_s" in state(driver).reason
        and "may be published" in state(driver).reason
    )


DAY_S = 86_400


@pytest.mark.parametrize("fields", [{}, {"limits": {"run_time_s": 30.0 * DAY_S}}])
def test_a_job_whose_answer_never_comes_ends_after_a_day_without_a_limit_too(fields: dict[str, Any]) -> None:
    driver, _ = waiting_job(**fields)
    waits(driver, DAY_S - 60)
    assert state(driver).state is JobState.RUNNING
    waits(driver, 300)
    reason, requests = state(driver).reason, len(requests_to_intake(driver))
    assert state(driver).state is JobState.FAILED and "may be published" in reason and "run time" not in reason
    assert f"has not answered {requests} requests" in reason
    waits(driver, 3600)
    assert len(requests_to_intake(driver)) == requests


@pytest.mark.parametrize("asleep_s", [3600, 3 * DAY_S, 400 * DAY_S])
@pytest.mark.parametrize("asked_for", ["nothing", "cancel", "run time"])
@pytest.mark.parametrize("awake_s", [0, 590])
def test_a_job_that_nothing_looked_at_for_days_asks_once_more_and_waits_for_the_answer(asleep_s: int, asked_for: str, awake_s: int) -> None:
    driver, gang = waiting_job(limits={"run_time_s": 60.0} if asked_for == "run time" else {})
    if asked_for == "cancel":
        driver.feed(CancelJob(job_id=gang.job_id))
    waits(driver, awake_s)
    requests = len(requests_to_intake(driver))
    driver.tick(asleep_s * 1000)
    assert len(requests_to_intake(driver)) == requests + 1
    waits(driver, 120)
    assert state(driver).state is JobState.RUNNING
    driver.feed(answered(version()))
    assert state(driver).state is JobState.SUCCEEDED


def test_only_time_in_which_it_asks_makes_a_job_end() -> None:
    driver, _ = waiting_job()
    for _ in range(5):
        waits(driver, 3600)
        driver.tick(3 * DAY_S * 1000)
        assert state(driver).state is JobState.RUNNING
    waits(driver, DAY_S)
    assert state(driver).state is JobState.FAILED


def test_an_attempt_that_made_way_and_finished_ends_without_an_answer_for_that_alone() -> None:
    driver, gang = started_job()
    driver.feed(progress(gang, 3))
    driver.feed(DrainNode(pool=PoolName("default"), node_id=gang.placements[0].node_id, deadline_s=1))
    while not driver.all(GangReleased, job_id="j"):
        driver.tick(10_000)
    driver.feed(*clean(gang), sealed(gang, version()), *gone(gang))
    assert len(requests_to_intake(driver)) == 1
    waits(driver, DAY_S + 300)
    reason = state(driver).reason
    assert state(driver).state is JobState.FAILED and "run time" not in reason
    assert reason.startswith("every rank exited with code 0, but intake has not answered")


def test_a_job_that_waits_for_its_answer_is_none_that_runs_and_takes_no_review() -> None:
    driver = Driver()
    driver.feed(registered("a"), registered("b"), ProjectLimited(project="default", version=1, running=1))
    gang = running(driver, "j", gang={"ranks": 2}, outputs=["tokens"])
    driver.feed(*clean(gang), sealed(gang, version()), *gone(gang))
    driver.feed(admitted("k", gang={"ranks": 1}))
    driver.tick(10_000)
    assert driver.status("k").state is JobState.SCHEDULED
    restored = driver.machine.load(driver.machine.dump(driver.state))
    assert restored.book.bounds.running("default", "default") == 1 == driver.state.book.bounds.running("default", "default")
    assert driver.machine.dump(restored) == driver.machine.dump(driver.state)
    driver.feed(ReviewJob(job_id=gang.job_id, action=ReviewAction.SEND, user="u"))
    assert state(driver).state is JobState.RUNNING and "being published" in state(driver).reason
    assert "being published" in driver.last(JobRejected, job_id="j").reason
    driver.feed(answered(version()))
    assert state(driver).state is JobState.SUCCEEDED
    assert driver.state.book.bounds.running("default", "default") == 1


def sealing_job(**fields: Any) -> tuple[Driver, GangAllocated]:
    """A job whose ranks have all exited with code 0, and whose agent seals its outputs."""
    driver, gang = started_job(**fields)
    driver.feed(*clean(gang))
    return driver, gang


@pytest.mark.parametrize("asked", ["run time", "drain", "notice", "review"])
def test_a_finished_attempt_whose_outputs_are_sealed_is_not_stopped(asked: str) -> None:
    driver, gang = sealing_job(limits={"run_time_s": 60.0} if asked == "run time" else {})
    node = registered(str(gang.placements[0].node_id))
    if asked == "drain":
        driver.feed(DrainNode(pool=PoolName("default"), node_id=node.node_id, deadline_s=30))
    elif asked == "notice":
        driver.feed(noticed(node, driver.now_ms + 3_600_000))
    elif asked == "review":
        driver.feed(ReviewJob(job_id=gang.job_id, action=ReviewAction.SEND, user="u"))
    for _ in range(20):
        driver.tick(10_000)
    assert not driver.all(GangReleased, job_id="j") and not driver.all(CheckpointRequested, job_id="j")
    assert "outputs are being sealed" in state(driver).reason
    driver.feed(sealed(gang, version()), *gone(gang), answered(version()))
    assert state(driver).state is JobState.SUCCEEDED and state(driver).attempt == 0


def test_sealing_is_waited_for_within_a_bound() -> None:
    driver, gang = sealing_job(limits={"run_time_s": 60.0})
    driver.tick(120_000)
    driver.tick(SEALING_MS)
    assert driver.all(GangReleased, job_id="j")
    driver.feed(*gone(gang))
    assert state(driver).state is JobState.FAILED and "outputs were not sealed" in state(driver).reason


def test_a_node_that_goes_away_gives_no_longer_than_it_stays() -> None:
    driver, gang = sealing_job()
    driver.feed(noticed(registered(str(gang.placements[0].node_id)), driver.now_ms + 120_000))
    driver.tick(80_000)
    assert not driver.all(GangReleased, job_id="j")
    driver.tick(20_000)
    assert driver.all(GangReleased, job_id="j")
    driver.feed(*gone(gang))
    again = driver.last(JobRequeued, job_id="j").reason
    assert "samples that attempt 0 added without a piece's name are left out" in again


def test_a_job_that_saves_to_make_way_and_finishes_instead_may_seal() -> None:
    driver, gang = started_job()
    driver.feed(progress(gang, 3))
    driver.feed(DrainNode(pool=PoolName("default"), node_id=gang.placements[0].node_id, deadline_s=30))
    assert state(driver).state is JobState.CHECKPOINTING
    driver.feed(*clean(gang))
    for _ in range(6):
        driver.tick(10_000)
    assert not driver.all(GangReleased, job_id="j")
    driver.feed(sealed(gang, version()), *gone(gang), answered(version()))
    assert state(driver).state is JobState.SUCCEEDED


def test_a_cancel_does_not_wait_for_the_seal() -> None:
    driver, gang = sealing_job()
    driver.feed(CancelJob(job_id=gang.job_id))
    driver.feed(*gone(gang))
    assert state(driver).state is JobState.CANCELLED


@pytest.mark.parametrize("all_started", [True, False])
def test_an_attempt_that_finishes_before_it_is_seen_to_run_may_seal_too(all_started: bool) -> None:
    driver = Driver()
    driver.feed(registered("a"), registered("b"), admitted("j", gang={"ranks": 2}, outputs=["tokens"]))
    gang = driver.last(GangAllocated, job_id="j")
    if all_started:
        driver.feed(*(started(gang, p.node_id) for p in gang.placements))
    driver.feed(*clean(gang))
    driver.feed(DrainNode(pool=PoolName("default"), node_id=gang.placements[0].node_id, deadline_s=30))
    assert state(driver).state is JobState.CHECKPOINTING and not driver.all(GangReleased, job_id="j")
    driver.feed(sealed(gang, version()), *gone(gang), answered(version()))
    assert state(driver).state is JobState.SUCCEEDED
