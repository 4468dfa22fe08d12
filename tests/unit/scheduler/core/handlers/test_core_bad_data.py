"""Bad data of a job: shards are reported to intake once an attempt; a job with too many bad samples is reviewed, and may go on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.core_world import Driver, admitted, exited, going, gone, registered, running, saved
from tests.unit.scheduler.core.handlers.test_core_review import asked
from trainhouse.events import (
    BadShardFound,
    CheckpointRequested,
    DrainNode,
    GangAllocated,
    JobRejected,
    JobReviewed,
    JobState,
    QuarantineShard,
    ReviewAction,
    ShardFault,
    TooManyBadSamples,
)
from trainhouse.events.wire.topics import JOBS
from trainhouse.scheduler.core.handlers.bad_data import MOST_SHARDS, OWNERS_SINCE
from trainhouse.scheduler.core.handlers.review import BAD_SAMPLES_SINCE
from trainhouse.scheduler.core.schedule import ScheduleMachine

VERSION = "a" * 64
DATA = {"dataset": f"speech@sha256:{VERSION}", "quarantined": ["f" * 64]}


def about(gang: GangAllocated, rank: int = 0) -> dict[str, Any]:
    return {
        "job_id": gang.job_id,
        "attempt": gang.attempt,
        "epoch": gang.epoch,
        "node_id": gang.placements[0].node_id,
        "pool": gang.pool,
        "rank": rank,
        "at_ms": 1,
    }


def bad_shard(gang: GangAllocated, shard: str = "b" * 64, rank: int = 0, **more: Any) -> BadShardFound:
    found = {"dataset": "speech", "sha256": VERSION, "shard": shard, "split": "train", "fault": "missing", "sample": "s3"}
    return BadShardFound.model_validate(about(gang, rank) | found | {"expected": "an object", "seen": "none"} | more)


def too_many(gang: GangAllocated, bad: int = 41, rank: int = 0) -> TooManyBadSamples:
    counts = {"step": 9, "bad": bad, "allowed": 40, "samples": 40_000, "last": "it is truncated"}
    return TooManyBadSamples.model_validate(about(gang, rank) | counts)


def trained(**fields: Any) -> tuple[Driver, GangAllocated]:
    d = Driver()
    d.feed(registered("a"))
    return d, running(d, "j", **({"ranks": 2, "data": DATA} | fields))


def refusal(d: Driver) -> str:
    return d.last(JobRejected).reason


def requests(d: Driver) -> list[QuarantineShard]:
    return [e.event for e in d.effects if e.topic == JOBS and isinstance(e.event, QuarantineShard)]


def test_a_shard_is_reported_to_intake_once_an_attempt_by_whichever_rank() -> None:
    d, gang = trained()
    d.feed(bad_shard(gang), bad_shard(gang, rank=1), bad_shard(gang))
    [asked_for] = requests(d)
    assert (asked_for.dataset, asked_for.sha256, asked_for.shard, asked_for.split) == ("speech", VERSION, "b" * 64, "train")
    evidence = asked_for.evidence
    assert (evidence.fault, evidence.sample, evidence.expected, evidence.seen) == (ShardFault.MISSING, "s3", "an object", "none")
    assert (evidence.job_id, evidence.rank, evidence.node_id) == ("j", 0, "a")
    [effect] = [e for e in d.effects if e.topic == JOBS]
    assert effect.event_id == f"j:bad-shard:{gang.epoch}:{'b' * 64}"
    assert d.status("j").state is JobState.RUNNING


def test_reports_of_other_versions_attempts_nodes_and_known_shards_ask_for_nothing() -> None:
    d, gang = trained()
    d.feed(
        bad_shard(gang, sha256="c" * 64),
        bad_shard(gang, dataset="noise"),
        bad_shard(gang, epoch=int(gang.epoch) + 1),
        bad_shard(gang, node_id="b"),
        bad_shard(gang, job_id="other"),
        bad_shard(gang, shard="f" * 64),
    )
    assert not requests(d)
    d.feed(*(bad_shard(gang, shard=f"{number:064x}") for number in range(MOST_SHARDS + 5)))
    assert len(requests(d)) == MOST_SHARDS


def test_reports_of_another_projects_version_count_for_the_job_alone() -> None:
    d, gang = trained(project="vision", data=DATA | {"owner": "speech", "purpose": "research"})
    d.feed(*(bad_shard(gang, shard=f"{number:064x}") for number in range(1, MOST_SHARDS + 5)))
    assert not requests(d), "no request is made in the owner's name"
    d.feed(bad_shard(gang, shard=f"{1:064x}"), too_many(gang))
    d.feed(saved(gang, 1), exited(gang, 0, 77), exited(gang, 1, 77), *gone(gang))
    reason = d.status("j").reason
    assert "Shards: 000000000000…" in reason and "project speech, which owns it, looks at it" in reason, reason
    assert "`trainhouse data verify speech@sha256:aaa" in reason and "quarantine" not in reason
    [review] = [e.event for e in d.effects if isinstance(e.event, JobReviewed)]
    assert "speech@sha256:aaa" in review.reason


def test_below_the_level_reports_of_another_projects_version_are_not_taken() -> None:
    d = Driver(ScheduleMachine().at(OWNERS_SINCE - 1))
    d.feed(registered("a"))
    gang = running(d, "j", ranks=2, data=DATA | {"owner": "speech", "purpose": "research"})
    d.feed(bad_shard(gang))
    assert not requests(d)


def test_a_job_with_too_many_bad_samples_saves_and_waits_for_a_person_who_accepts_them() -> None:
    d, gang = trained()
    d.feed(bad_shard(gang), too_many(gang), too_many(gang, rank=1))
    assert d.last(CheckpointRequested).then_stop and d.status("j").state is JobState.CHECKPOINTING
    d.feed(saved(gang, 1), exited(gang, 0, 77), exited(gang, 1, 77), *gone(gang))
    status = d.status("j")
    assert status.state is JobState.NEEDS_REVIEW and not status.allocation and status.last_checkpoint is not None
    for part in (
        "41 samples of speech@sha256:aaa",
        "by step 9, more than data.max_bad allows, 40 with 40000 samples",
        "Shards: bbbbbbbbbbbb…, ffffffffffff…",
        "The last one: it is truncated",
        "`trainhouse data quarantine list speech@sha256:aaa",
        "`trainhouse data quarantine rebuild speech@sha256:aaa",
        "`trainhouse review j --go-on` accepts those up to now, with `--max-bad SHARE`",
    ):
        assert part in status.reason, status.reason
    reviews = [e.event for e in d.effects if isinstance(e.event, JobReviewed)]
    assert [(r.action, r.user, r.bad_samples) for r in reviews] == [(ReviewAction.SEND, "trainhouse", 41)]
    d.feed(admitted("other", ranks=2))
    other = d.last(GangAllocated)
    assert other.job_id == "other", "its devices are free"
    d.feed(exited(other, 0, 0), exited(other, 1, 0), *gone(other))
    d.feed(asked(ReviewAction.GO_ON, reason="fine"))
    again = d.last(GangAllocated)
    assert (again.job_id, again.accepted_bad) == ("j", 41)
    d.feed(bad_shard(again))
    assert len(requests(d)) == 2, "another attempt reports it once more: it may have been released meanwhile"


def test_a_report_that_comes_after_the_ranks_have_left_for_it_changes_nothing() -> None:
    d, gang = trained()
    d.feed(asked(ReviewAction.SEND))
    d.feed(too_many(gang))
    assert "odd loss" in d.status("j").reason
    d.feed(saved(gang, 1), exited(gang, 0, 75), exited(gang, 1, 75), *gone(gang))
    d.feed(too_many(gang), bad_shard(gang))
    assert not requests(d) and "odd loss" in d.status("j").reason
    d.feed(asked(ReviewAction.GO_ON))
    assert d.last(GangAllocated).accepted_bad is None


@pytest.mark.parametrize("how", ["saves", "released"])
def test_a_gang_that_makes_way_for_another_leaves_for_the_review_instead(how: str) -> None:
    d, gang = trained()
    d.feed(DrainNode(pool="default", node_id="a", reason="repair", user="ada"))
    if how == "released":
        d.feed(saved(gang, 1))
    d.feed(too_many(gang))
    d.feed(*([saved(gang, 1)] if how == "saves" else []), exited(gang, 0, 77), exited(gang, 1, 77), *gone(gang))
    status = d.status("j")
    assert status.state is JobState.NEEDS_REVIEW and "41 samples" in status.reason
    d.feed(registered("b"), asked(ReviewAction.GO_ON))
    assert d.last(GangAllocated).accepted_bad == 41


def test_a_later_review_for_another_reason_accepts_no_bad_samples() -> None:
    d, gang = trained()
    d.feed(too_many(gang), saved(gang, 1), exited(gang, 0, 77), exited(gang, 1, 77), *gone(gang))
    d.feed(asked(ReviewAction.GO_ON))
    second = going(d, "j")
    d.feed(too_many(second, bad=80), exited(second, 0, 77), exited(second, 1, 77), *gone(second))
    d.feed(asked(ReviewAction.GO_ON))
    third = going(d, "j")
    assert third.accepted_bad == 80
    d.feed(asked(ReviewAction.SEND), *gone(third), asked(ReviewAction.GO_ON))
    assert d.last(GangAllocated).accepted_bad == 80 and d.state.job("j").bad_samples is None


def test_a_job_that_goes_on_with_another_limit_has_it_in_each_of_its_attempts() -> None:
    d, gang = trained()
    assert gang.spec.data is not None and gang.spec.data.max_bad is None
    d.feed(too_many(gang), exited(gang, 0, 77), exited(gang, 1, 77), *gone(gang))
    d.feed(asked(ReviewAction.GO_ON, max_bad=0.1))
    again = going(d, "j")
    d.feed(exited(again, 0, None, 15), exited(again, 1, None, 15), *gone(again))
    for order in (again, d.last(GangAllocated)):
        assert order.spec.data is not None and (order.accepted_bad, order.spec.data.max_bad) == (41, 0.1)
    d.feed(asked(ReviewAction.SEND, max_bad=0.2))
    assert "max_bad goes with go_on" in refusal(d)


def test_another_limit_is_for_jobs_of_datasets_once_an_update_is_finished() -> None:
    d, gang = trained(data=None)
    d.feed(asked(ReviewAction.SEND), exited(gang, 0, 75), exited(gang, 1, 75), *gone(gang))
    d.feed(asked(ReviewAction.GO_ON, max_bad=0.1))
    assert "it reads no published dataset" in refusal(d)
    d.machine = ScheduleMachine().at(BAD_SAMPLES_SINCE - 1)
    d.feed(asked(ReviewAction.GO_ON, max_bad=0.1))
    assert "an update is not finished" in refusal(d)


def test_a_rank_that_cannot_go_on_without_the_sample_ends_and_its_job_is_reviewed_all_the_same() -> None:
    d, gang = trained()
    d.feed(saved(gang, 1), too_many(gang), exited(gang, 0, 1), exited(gang, 1, None, 9), *gone(gang))
    status = d.status("j")
    assert status.state is JobState.NEEDS_REVIEW and "41 samples" in status.reason
    assert d.state.job("j").tally.failures == 0


def test_below_the_level_a_job_is_reviewed_without_what_programs_of_before_cannot_read() -> None:
    d = Driver(ScheduleMachine().at(BAD_SAMPLES_SINCE - 1))
    d.feed(registered("a"))
    gang = running(d, "j", ranks=2, data=DATA)
    d.feed(bad_shard(gang))
    assert not requests(d)
    d.feed(too_many(gang), saved(gang, 1), exited(gang, 0, 77), exited(gang, 1, 77), *gone(gang))
    status = d.status("j")
    assert status.state is JobState.NEEDS_REVIEW and "`trainhouse upgrade finish" in status.reason
    assert d.state.job("j").tally.failures == 0 and b"bad_s" not in d.machine.dump(d.state)
    [review] = [e.event for e in d.effects if isinstance(e.event, JobReviewed)]
    assert "bad_samples" not in review.model_dump()
    d.feed(asked(ReviewAction.GO_ON))
    assert d.last(GangAllocated).epoch == 2 and d.last(GangAllocated).accepted_bad is None
