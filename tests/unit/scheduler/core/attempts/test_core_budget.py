"""What failures cost: by category, by repetition, and what a job's user reads of it."""

from typing import Any

import pytest

from tests.support.core_world import (
    Driver,
    admitted,
    exited,
    going,
    gone,
    lost,
    policy_changed,
    progress,
    registered,
    running,
    saved,
    started,
)
from trainhouse.events import FailureBlamed, FailureCategory, GangAllocated, JobState
from trainhouse.events.model.evidence import MAX_ENDS
from trainhouse.events.model.phases import StopKind
from trainhouse.events.wire import topics
from trainhouse.scheduler.core.attempts import restart_budget
from trainhouse.scheduler.core.schedule import ScheduleMachine

BOOM = """Traceback (most recent call last):
  File "/code/train.py", line 7, in <module>
    step()
  File "/code/train.py", line 3, in step
    raise RuntimeError("boom")
RuntimeError: boom
"""
TYPO = BOOM.replace('raise RuntimeError("boom")', "model.foward(x)").replace("RuntimeError: boom", "NameError: name 'modle' is not defined")


def driver(*nodes: str, **policy: Any) -> Driver:
    d = Driver()
    d.feed(*(registered(n) for n in nodes or ("a",)), policy_changed(**policy))
    return d


def fails(d: Driver, job_id: str = "j", text: str = "", code: int | None = 1, signal: int | None = None) -> None:
    """The newest attempt starts, makes a step, and its rank 0 ends so."""
    gang = going(d, job_id)
    d.feed(exited(gang, 0, code, signal, text), *gone(gang))
    d.tick(60_000)


def test_an_error_that_is_known_to_be_the_programs_own_ends_the_job_at_once() -> None:
    d = driver()
    gang = running(d, "j", ranks=2, limits={"restarts": 3})
    d.feed(saved(gang, 4), exited(gang, 0, 1, None, TYPO), *gone(gang))
    final, verdict = d.status("j"), d.last(FailureBlamed)
    assert (final.state, verdict.category, verdict.mine, verdict.rank) == (JobState.FAILED, FailureCategory.USER_CODE, True, 0)
    assert "NameError" in final.reason and "Blamed on user code" in final.reason and "there is none" in final.reason
    assert "Its last checkpoint is kept: commit 4, step 40." in final.reason
    assert final.last_checkpoint is not None and verdict.lost_steps == 0
    assert [(e.topic, e.key) for e in d.effects if e.event == verdict] == [(topics.VERDICTS, "j")]


def test_the_same_traceback_twice_counts_as_the_jobs_own() -> None:
    d = driver()
    d.feed(admitted("j", ranks=2, limits={"restarts": 9}))
    fails(d, text=BOOM)
    assert d.last(GangAllocated).epoch == 2 and d.state.jobs["j"].tally.failures == 1
    fails(d, text=BOOM)
    assert d.status("j").state is JobState.FAILED and "It failed 2 times in the same way" in d.status("j").reason


def test_how_often_is_policy_and_an_old_failure_is_forgotten() -> None:
    d = driver(failures={"recovery": {"same_failures": 3}, "blame": {"window_h": 1}})
    d.feed(admitted("j", ranks=2, limits={"restarts": 9}))
    fails(d, text=BOOM)
    fails(d, text=BOOM)
    d.tick(2 * 3_600_000)
    fails(d, text=BOOM)
    assert d.status("j").state is not JobState.FAILED
    fails(d, text=BOOM)
    fails(d, text=BOOM)
    assert d.status("j").state is JobState.FAILED


def test_ranks_that_are_killed_or_only_exit_cost_restarts_however_alike_they_are() -> None:
    d = driver()
    d.feed(admitted("j", ranks=2, limits={"restarts": 3}))
    fails(d, code=None, signal=9)
    fails(d, code=None, signal=9)
    fails(d, code=7)
    assert d.status("j").restarts == 3 and d.state.jobs["j"].tally.failures == 3
    fails(d, code=None, signal=9)
    final = d.status("j")
    assert final.state is JobState.FAILED and "All 3 restarts that limits.restarts allows are used" in final.reason
    assert "was killed by SIGKILL" in final.reason


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.", FailureCategory.DEVICE),
        ("OSError: [Errno 28] No space left on device", FailureCategory.STORAGE),
    ],
)
def test_infrastructure_costs_nothing(text: str, category: FailureCategory) -> None:
    d = driver("a", "b")
    d.feed(admitted("j", ranks=2, limits={"restarts": 0}))
    fails(d, text=text)
    assert d.last(FailureBlamed).category is category
    assert d.last(GangAllocated).epoch == 2
    tally = d.state.jobs["j"].tally
    assert (tally.failures, tally.losses, d.status("j").restarts) == (0, 1, 1)


def test_a_rule_of_the_pool_comes_before_all_that_is_shipped() -> None:
    rule = {"name": "license", "pattern": "license server", "category": "PLATFORM", "summary": "no license was free"}
    d = driver(failures={"blame": {"rules": [rule]}})
    d.feed(admitted("j", ranks=2, limits={"restarts": 0}))
    fails(d, text="RuntimeError: license server said no")
    verdict = d.last(FailureBlamed)
    assert (verdict.category, verdict.rule) == (FailureCategory.PLATFORM, "license")
    assert d.state.jobs["j"].tally.losses == 1


def test_losses_without_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_budget, "MAX_LOSSES", 1)
    d = driver()
    d.feed(admitted("j", ranks=2))
    fails(d, text="OSError: [Errno 28] No space left on device")
    fails(d, text="OSError: [Errno 28] No space left on device")
    assert d.status("j").state is JobState.FAILED and "Given up after 1 losses" in d.status("j").reason


def test_what_came_first_is_kept_of_a_large_gang_and_what_the_release_did_is_not() -> None:
    d = Driver()
    d.feed(registered("a", slots=40))
    gang = running(d, "j", ranks=40)
    begun = {"exited_at_ms": d.now_ms + 5}
    late = [exited(gang, r, None, 15).model_copy(update=begun) for r in range(1, 20)]
    d.feed(exited(gang, 0, 1, reason="x" * 5000), *late, exited(gang, 20, 1, reason="first"), exited(gang, 20, 1))
    d.feed(*(exited(gang, r, 1) for r in range(21, 40)))
    allotment = d.state.jobs["j"].allotment
    assert allotment is not None
    ends = allotment.evidence.ends
    assert [e.rank for e in ends] == [0, *range(20, 20 + MAX_ENDS - 1)] and len(ends[0].text) <= 2000
    assert ends[1].device_id == "a-20" and ends[1].text == "first"
    assert d.machine.dump(d.machine.load(d.machine.dump(d.state))) == d.machine.dump(d.state)


def test_pauses_are_policy() -> None:
    d = driver(failures={"recovery": {"backoff_s": 2, "max_backoff_s": 3}})
    d.feed(admitted("j", ranks=2, limits={"restarts": 9}))
    waits = []
    for _ in range(4):
        gang = d.last(GangAllocated)
        d.feed(started(gang, "a"), progress(gang, 1, at_ms=d.now_ms), exited(gang, 0, 3), *gone(gang))
        waits.append(max(0, getattr(d.state.jobs["j"].phase, "not_before_ms", d.now_ms) - d.now_ms))
        d.tick(5_000)
    assert waits == [0, 2_000, 3_000, 3_000]


def test_a_judge_that_fails_blames_nobody_and_the_attempt_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr("trainhouse.scheduler.core.attempts.attribution.blame", broken)
    d = Driver(ScheduleMachine())
    d.feed(registered("a"), admitted("j", ranks=2))
    fails(d, text=BOOM)
    assert (d.last(FailureBlamed).rule, d.last(FailureBlamed).category) == ("not-judged", FailureCategory.UNKNOWN)
    assert "RecursionError: too deep" in d.last(FailureBlamed).summary and d.last(GangAllocated).epoch == 2


def test_a_lost_node_is_blamed_for_what_its_loss_did_elsewhere() -> None:
    d = driver("a", "b")
    gang = running(d, "j", ranks=4, limits={"restarts": 0})
    d.feed(exited(gang, 2, 1, reason="RuntimeError: Connection closed by peer"), lost(registered("a")), *gone(gang))
    verdict = d.last(FailureBlamed)
    assert (verdict.category, verdict.node_id) == (FailureCategory.NODE, "a") and d.state.jobs["j"].tally.losses == 1


def test_ranks_that_saved_and_left_before_anybody_told_why_cost_nothing() -> None:
    d = driver()
    gang = running(d, "j", ranks=2, limits={"restarts": 0})
    d.feed(saved(gang, 4), exited(gang, 0, 75), exited(gang, 1, 75), *gone(gang))
    d.tick(60_000)
    assert d.last(GangAllocated).epoch == 2 and d.state.jobs["j"].tally.failures == 0
    assert d.last(FailureBlamed).rule == "saved-and-left" and not d.state.nodes["a"].trust.blames


def test_where_no_node_can_start_it_nothing_is_tried_again() -> None:
    d = driver()
    running(d, "j", ranks=2, limits={"restarts": 3})
    job = d.state.jobs["j"]
    assert job.allotment is not None
    cost = restart_budget.cost_of(job, job.allotment, StopKind.FATAL, None, d.state.book.policy(job.pool).failures)
    assert cost.over == "No other node could start it." and not cost.failures


def test_a_job_whose_restarts_are_used_is_told_so_even_if_it_failed_alike() -> None:
    d = driver()
    d.feed(admitted("j", ranks=2, limits={"restarts": 1}))
    fails(d, text=BOOM)
    fails(d, text=BOOM)
    assert "All 1 restarts that limits.restarts allows are used" in d.status("j").reason


def test_an_attempt_of_a_minute_got_somewhere() -> None:
    d = driver()
    running(d, "j", ranks=2)
    job = d.state.jobs["j"]
    job = job.model_copy(update={"tally": job.tally.model_copy(update={"streak": 3})})
    ran_ms = job.ran_ms(d.now_ms) - job.tally.ran_ms
    minute_ms = d.now_ms + restart_budget.LONG_ENOUGH_MS - ran_ms
    assert (restart_budget.streak_of(job, minute_ms - 1), restart_budget.streak_of(job, minute_ms)) == (3, 0)
