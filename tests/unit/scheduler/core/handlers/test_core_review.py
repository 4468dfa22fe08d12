"""Review of a job: it leaves its devices or its queue, waits for a person, and goes on or is cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.core_world import Driver, admitted, exited, going, gone, registered, running, saved
from trainhouse.events import (
    CancelJob,
    CheckpointRequested,
    Event,
    GangAllocated,
    GangReleased,
    JobId,
    JobRejected,
    JobReviewed,
    JobState,
    ProgressReported,
    ReviewAction,
    ReviewJob,
    envelope_of,
)
from trainhouse.events.model.decisions import JobMoved
from trainhouse.events.model.phases import Pending as Waits
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.journal import InputRefused
from trainhouse.events.wire.topics import DEAD_LETTERS, STATUS, VERDICTS
from trainhouse.scheduler.core.protocol.batch import Limits, Pending, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import begin, fold_bytes
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.protocol.publication import outgoing
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.replay import LogEntry, verify


def asked(action: ReviewAction, job: str = "j", reason: str = "odd loss", user: str = "ada", max_bad: float | None = None) -> ReviewJob:
    return ReviewJob(job_id=JobId(job), action=action, reason=reason, user=user, max_bad=max_bad)


def trained(**fields: Any) -> tuple[Driver, GangAllocated]:
    d = Driver()
    d.feed(registered("a"))
    return d, running(d, "j", ranks=2, **fields)


def reviewed() -> tuple[Driver, GangAllocated]:
    """Job j saved, left, and is under review."""
    d, gang = trained()
    d.feed(asked(ReviewAction.SEND))
    d.feed(saved(gang, 1), exited(gang, 0, 75), exited(gang, 1, 75), *gone(gang))
    return d, gang


def test_a_running_job_saves_leaves_and_waits_for_a_person() -> None:
    d, gang = trained()
    d.feed(asked(ReviewAction.SEND))
    assert d.last(CheckpointRequested).then_stop and d.status("j").state is JobState.CHECKPOINTING
    assert d.status("j").reason == "saves, because sent to review by ada: odd loss"
    d.feed(saved(gang, 1))
    assert d.last(GangReleased).reason == "sent to review by ada: odd loss"
    d.feed(exited(gang, 0, 75), exited(gang, 1, 75), *gone(gang))
    status = d.status("j")
    assert (status.state, status.reason, status.allocation) == (JobState.NEEDS_REVIEW, "sent to review by ada: odd loss", ())
    assert status.last_checkpoint is not None and status.finished_at_ms is None and status.attempt == 1
    assert not d.state.book.running and d.state.book.lanes.get("j") is None and not d.state.claims
    told = d.last(JobReviewed)
    assert (told.action, told.user, told.reason) == (ReviewAction.SEND, "ada", "odd loss")
    assert [e.event for e in d.effects if e.topic == VERDICTS and e.key == "j"] == [told]
    d.feed(admitted("other", ranks=2))
    assert d.last(GangAllocated).job_id == "other", "its devices are free"


def test_it_goes_on_from_its_last_checkpoint_and_counts_as_waiting_from_then_on() -> None:
    d, _ = reviewed()
    tally = d.state.jobs["j"].tally
    d.tick(60_000)
    assert d.status("j").state is JobState.NEEDS_REVIEW, "time alone lets nothing go on"
    d.feed(asked(ReviewAction.GO_ON, reason="the data is mended"))
    assert d.status("j").state is JobState.SCHEDULED
    assert d.state.jobs["j"].waits_since_ms == d.now_ms
    again = d.last(GangAllocated)
    assert (again.job_id, again.attempt, again.epoch, again.restore_at_most) == ("j", 1, 2, None)
    assert (tally.failures, tally.losses, tally.streak) == (0, 0, 0)
    assert "goes on after its review by ada: the data is mended" in [s.reason for s in d.all(type(d.status("j")), job_id="j")]
    going(d, "j")


@pytest.mark.parametrize("by_review", [True, False])
def test_it_is_cancelled_by_its_review_or_as_any_other_job(by_review: bool) -> None:
    d, _ = reviewed()
    d.feed(asked(ReviewAction.CANCEL, reason="useless") if by_review else CancelJob(job_id=JobId("j"), reason="useless", user="ada"))
    status = d.status("j")
    assert status.state is JobState.CANCELLED and "by ada" in status.reason and "useless" in status.reason and "j" not in d.state.jobs


def test_a_waiting_job_leaves_its_queue() -> None:
    d = Driver()
    d.feed(admitted("j", ranks=2), asked(ReviewAction.SEND))
    assert d.status("j").state is JobState.NEEDS_REVIEW and d.status("j").attempt == 0
    d.feed(registered("a"))
    assert not d.all(GangAllocated)
    d.feed(asked(ReviewAction.GO_ON))
    assert d.last(GangAllocated).job_id == "j"


def test_a_review_shortens_no_pause_between_restarts() -> None:
    d, gang = trained(limits={"restarts": 9})
    for n in range(2):
        d.feed(exited(gang, 0, 1, reason=f"boom {n}"), *gone(gang))
        gang = d.last(GangAllocated)
    waits = d.state.jobs["j"].phase
    assert isinstance(waits, Waits) and waits.not_before_ms > d.now_ms
    d.feed(asked(ReviewAction.SEND))
    d.state = d.machine.load(d.machine.dump(d.state))
    d.feed(asked(ReviewAction.GO_ON))
    assert d.state.jobs["j"].phase == waits and d.status("j").state is JobState.PENDING
    d.tick(waits.not_before_ms - d.now_ms)
    assert d.status("j").state is JobState.SCHEDULED
    d, _ = reviewed()
    assert b'{"kind":"review"}' in d.last(JobMoved).model_dump_json().encode(), "older journals are written as ever"


def test_a_save_that_does_not_come_and_a_rank_that_fails_meanwhile_end_in_the_review() -> None:
    d, gang = trained()
    d.feed(asked(ReviewAction.SEND))
    d.feed(exited(gang, 1, 1, reason="RuntimeError: boom"))
    d.feed(exited(gang, 0, 1), *gone(gang))
    assert d.status("j").state is JobState.NEEDS_REVIEW
    d, gang = trained()
    d.feed(asked(ReviewAction.SEND))
    d.tick(30_000)
    assert d.all(GangReleased)
    d.feed(*gone(gang))
    assert d.status("j").state is JobState.NEEDS_REVIEW


def test_a_job_that_ends_well_before_it_was_released_has_succeeded() -> None:
    d, gang = trained()
    d.feed(asked(ReviewAction.SEND), exited(gang, 0), exited(gang, 1), *gone(gang))
    assert d.status("j").state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("before", "action", "why"),
    [
        ((), ReviewAction.GO_ON, "it is RUNNING, not NEEDS_REVIEW"),
        ((), ReviewAction.CANCEL, "it is RUNNING, not NEEDS_REVIEW; `trainhouse cancel` ends it"),
        ((asked(ReviewAction.SEND),), ReviewAction.GO_ON, "it is CHECKPOINTING and still leaves its devices"),
        ((asked(ReviewAction.SEND),), ReviewAction.SEND, "it was sent to review already"),
        ((CancelJob(job_id=JobId("j")),), ReviewAction.SEND, "its attempt is ending (cancelled by its user)"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_under_its_own_id(before: Sequence[Event], action: ReviewAction, why: str) -> None:
    d, _ = trained()
    d.feed(*before)
    held = d.state.jobs["j"]
    d.feed(envelope_of(asked(action), id="asked-1", source="test", now_ms=0))
    refused = d.last(JobRejected)
    assert refused.submission_id == "asked-1" and f"job j cannot be reviewed ({action}): {why}" in refused.reason
    assert d.state.jobs["j"] == held
    told = [e for e in d.effects if e.topic == STATUS and e.key == "asked-1"]
    assert [(t.event.state, t.event.reason) for t in told] == [(JobState.REJECTED, refused.reason)]  # type: ignore[attr-defined]


def test_a_job_that_has_ended_is_not_reviewed() -> None:
    d, gang = trained()
    d.feed(exited(gang, 0), exited(gang, 1), *gone(gang))
    d.feed(asked(ReviewAction.GO_ON))
    assert "it has ended" in d.last(JobRejected).reason


def test_a_review_that_is_under_way_is_cancelled_as_any_job() -> None:
    d, gang = trained()
    d.feed(asked(ReviewAction.SEND), saved(gang, 1), CancelJob(job_id=JobId("j")), *gone(gang))
    assert d.status("j").state is JobState.CANCELLED


def test_a_snapshot_holds_what_is_under_review() -> None:
    d, _ = reviewed()
    restored = d.machine.load(d.machine.dump(d.state))
    assert restored.jobs["j"] == d.state.jobs["j"] and d.machine.dump(restored) == d.machine.dump(d.state)


class Poisoned(ScheduleMachine):
    """Raises on progress at step 13."""

    def decide(self, state: Any, now_ms: int, inputs: Sequence[Input]) -> list[Event]:
        if any(isinstance(i.event, ProgressReported) and i.event.step == 13 for i in inputs):
            raise RuntimeError("unlucky")
        return super().decide(state, now_ms, inputs)


class Journal:
    """An owner's records over control, each proposed, folded and kept."""

    def __init__(self) -> None:
        self.machine = Poisoned()
        self.folded = begin(self.machine, 0)
        self.values: list[bytes] = []
        self.out: list[Any] = []
        self.decisions: list[Event] = []

    def feed(self, *events: Event) -> None:
        first = self.folded.cursor + 1
        waiting: list[Pending] = []
        for n, event in enumerate(events):
            value = encode(envelope_of(event, id=f"e{first + n}", source="test", now_ms=0))
            waiting.append(pending(first + n, value, (), Limits()))
        while self.folded.cursor < first + len(events) - 1:
            found = Proposer(self.machine, "me").propose(self.folded, self.folded.now_ms + 1_000, waiting, 0, tick=True)
            assert found is not None
            self.values.append(found.value)
            self.folded, record = fold_bytes(self.machine, self.folded, found.value)
            assert record is not None
            self.decisions += record.decisions
            self.out += outgoing(self.machine, "trainhouse.control", 0, record)


def at_step(gang: GangAllocated, step: int, **more: Any) -> ProgressReported:
    about = {"job_id": gang.job_id, "attempt": gang.attempt, "epoch": gang.epoch, "node_id": gang.placements[0].node_id, "pool": gang.pool}
    return ProgressReported.model_validate(about | {"rank": 0, "step": step, "at_ms": step} | more)


def test_an_input_that_cannot_be_handled_sends_its_running_job_to_review() -> None:
    journal = Journal()
    journal.feed(registered("a", slots=3), admitted("j", ranks=2), admitted("other"))
    gang = next(d for d in journal.decisions if isinstance(d, GangAllocated) and d.job_id == "j")
    journal.feed(*(e for e in (at_step(gang, 1), at_step(gang, 13), at_step(gang, 14))))
    state = journal.folded.state
    assert [d.job_id for d in journal.decisions if isinstance(d, InputRefused)] == ["j"]
    told = next(d for d in journal.decisions if isinstance(d, JobReviewed))
    assert told.user == "trainhouse" and "RuntimeError: unlucky" in told.reason and DEAD_LETTERS in told.reason
    assert any(isinstance(d, CheckpointRequested) for d in journal.decisions)
    journal.feed(saved(gang, 1), *gone(gang))
    assert type(journal.folded.state.jobs["j"].phase).__name__ == "UnderReview"
    assert state.jobs["other"].allotment is not None
    assert any(o.topic == DEAD_LETTERS for o in journal.out)
    report = verify((LogEntry(0, n, v) for n, v in enumerate(journal.values)), Poisoned())
    assert report.same and report.recomputed == len(journal.values), report.differences


@pytest.mark.parametrize("stale", [{"epoch": 7}, {"node_id": "stranger"}])
def test_of_another_attempt_or_from_a_stranger_it_does_not(stale: dict[str, Any]) -> None:
    journal = Journal()
    journal.feed(registered("a"), admitted("j", ranks=2))
    gang = next(d for d in journal.decisions if isinstance(d, GangAllocated))
    journal.feed(at_step(gang, 1), at_step(gang, 13, **stale))
    assert any(isinstance(d, InputRefused) for d in journal.decisions)
    assert not [d for d in journal.decisions if isinstance(d, JobReviewed)]
