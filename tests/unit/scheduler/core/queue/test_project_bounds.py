"""How many jobs of a project may run and wait: decided by the scheduler of a pool, told in words, kept through restarts and reloads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.core_world import Driver, admitted, exited, policy_changed, registered, run_through, started, stopped, token
from trainhouse.events import CancelJob, ChangeProject, Envelope, EventId, GangAllocated, JobState, ProjectLimited, ReviewJob, decode
from trainhouse.events.model.explanation import JobExplained, Obstacle
from trainhouse.events.security.vetting import Known, VettingRules, refusal
from trainhouse.events.wire import topics
from trainhouse.events.wire.journal import NO_HASH, JournaledInput, JournalRecord
from trainhouse.scheduler.core.explain.explainer import answers
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.protocol.publication import outgoing


def limited(project: str, version: int = 1, **limits: Any) -> ProjectLimited:
    return ProjectLimited.model_validate({"project": project, "version": version} | limits)


def fed(*events: Any, slots: int = 8) -> Driver:
    d = Driver()
    d.feed(registered("a", slots))
    d.feed(*events)
    return d


def job(job_id: str, project: str = "vision", **fields: Any) -> Any:
    return admitted(job_id, project=project, **({"ranks": 1} | fields))


def running(d: Driver) -> list[str]:
    return sorted(str(r) for r in d.state.book.running)


def why(d: Driver, job_id: str) -> JobExplained:
    [found] = [answer.build() for answer in answers(d.state, d.now_ms) if answer.job_id == job_id]
    return found


def test_jobs_beyond_the_limit_wait_and_say_which_limit_it_is() -> None:
    d = fed(limited("vision", running=2))
    d.feed(*(job(f"v{n}") for n in range(4)), job("s0", "speech"))
    assert running(d) == ["s0", "v0", "v1"], "devices are free; the limit alone stops it, and no other project"
    d.tick()
    assert "limits.running is 2" in d.status("v2").reason
    told = why(d, "v2")
    assert told.obstacle is Obstacle.QUOTA and "project vision has 2 jobs" in told.text and "limits.running is 2" in told.text
    assert told.eta_ms is None and any("higher limits.running" in way for way in told.unblock)
    run_through(d, d.last(GangAllocated, job_id="v0"))
    assert running(d) == ["s0", "v1", "v2"]


def test_a_raised_limit_starts_those_who_wait_and_a_lowered_one_stops_nobody() -> None:
    d = fed(limited("vision", running=1))
    d.feed(*(job(f"v{n}") for n in range(3)))
    assert running(d) == ["v0"]
    d.feed(limited("vision", 2, running=3))
    assert running(d) == ["v0", "v1", "v2"]
    d.feed(limited("vision", 3, running=1), job("v3"))
    assert running(d) == ["v0", "v1", "v2"]
    d.feed(limited("vision", 2, running=9))
    assert running(d) == ["v0", "v1", "v2"], "an older word counts no more"
    d.feed(limited("vision", 4))
    assert running(d) == ["v0", "v1", "v2", "v3"]


def test_a_job_beyond_the_queue_is_rejected_with_what_to_do() -> None:
    d = fed(limited("vision", running=1, queued=2))
    d.feed(job("v0"))
    d.feed(job("v1"), job("v2"), job("v3"), job("s1", "speech"))
    assert [d.status(f"v{n}").state for n in range(4)] == [JobState.SCHEDULED, JobState.PENDING, JobState.PENDING, JobState.REJECTED]
    reason = d.status("v3").reason
    assert "jobs of project vision wait in pool default" in reason and "limits.queued is 2" in reason and "new id" in reason
    d.feed(CancelJob.model_validate({"job_id": "v1"}), job("v4"))
    assert d.status("v4").state is JobState.PENDING, "there is room again"


def test_jobs_under_review_count_as_waiting_also_after_a_reload() -> None:
    d = fed(limited("vision", running=1, queued=2))
    d.feed(job("v0"))
    for n in range(1, 3):
        d.feed(job(f"v{n}"))
        d.feed(ReviewJob.model_validate({"job_id": f"v{n}", "action": "send"}))
    d.state = d.machine.load(d.machine.dump(d.state))
    d.feed(job("v3"), job("s0", "speech"))
    assert (d.status("v3").state, d.status("s0").state) == (JobState.REJECTED, JobState.SCHEDULED)
    assert "2 of them under review" in d.status("v3").reason
    d.feed(ReviewJob.model_validate({"job_id": "v1", "action": "cancel"}), job("v4"))
    assert d.status("v4").state is JobState.PENDING, "there is room again"
    d.feed(ReviewJob.model_validate({"job_id": "v2", "action": "go_on"}))
    assert d.status("v2").state is JobState.PENDING and not d.state.reviewed


def test_a_retry_is_no_submission() -> None:
    d = fed(limited("vision", running=1, queued=1))
    d.feed(job("v0", limits={"restarts": 2}))
    d.feed(job("v1"))
    gang = d.last(GangAllocated, job_id="v0")
    d.feed(started(gang, "a"), exited(gang, 0, 3, reason="boom"), stopped(gang, "a"))
    d.tick(60_000)
    assert d.status("v1").state is not JobState.REJECTED and d.status("v0").state is not JobState.REJECTED
    assert len(running(d)) == 1


def test_the_rule_for_undeclared_projects_counts_each_by_itself() -> None:
    d = fed(limited("*", running=1), limited("vision"))
    d.feed(job("a0", "a"), job("a1", "a"), job("b0", "b"), job("v0"), job("v1"))
    assert running(d) == ["a0", "b0", "v0", "v1"]


def test_one_project_at_its_limit_holds_up_nobody_behind_it_under_any_policy() -> None:
    for policy in ({"blocking": "strict", "order": "submit"}, {"blocking": "skip"}, {"blocking": "backfill"}):
        d = fed(policy_changed(**policy), limited("vision", running=1))
        d.feed(*(job(f"v{n}", ranks=2) for n in range(5)), *(job(f"s{n}", "speech", ranks=2) for n in range(3)))
        assert running(d) == ["s0", "s1", "s2", "v0"], policy
        assert not d.state.reservations, "no start time is held for who may not start"


def test_a_strict_order_names_the_job_that_does_not_fit_and_none_that_its_project_keeps_out() -> None:
    d = fed(policy_changed(blocking="strict", order="submit"), limited("vision", running=1))
    d.feed(*(job(f"v{n}", ranks=2) for n in range(2)), job("big", "speech", ranks=8), job("small", "speech"))
    assert running(d) == ["v0"]
    assert (why(d, "v1").obstacle, why(d, "big").obstacle) == (Obstacle.QUOTA, Obstacle.NO_ROOM)
    told = why(d, "small")
    assert (told.obstacle, told.refusals[0].by, told.refusals[0].asked) == (Obstacle.ORDER, "big", 8)


def test_a_higher_priority_takes_nobodys_devices_beyond_the_limit() -> None:
    d = fed(policy_changed(preemption={"enabled": True, "min_run_s": 0, "margin": 1}), limited("vision", running=1), slots=2)
    d.feed(job("v0", priority=10), job("s0", "speech", priority=90))
    d.feed(job("v1", priority=1), wait_ms=60_000)
    d.tick(5_000)
    assert running(d) == ["s0", "v0"] and not d.state.claims


def test_it_is_all_there_after_a_reload_and_a_state_without_limits_is_as_before() -> None:
    d = fed()
    assert b"bounds" not in d.machine.dump(d.state)
    d.feed(limited("vision", running=1, queued=1), job("v0"))
    d.feed(job("v1"), job("v2"))
    state = d.machine.load(d.machine.dump(d.state))
    assert d.machine.dump(state) == d.machine.dump(d.state)
    d.state = state
    d.feed(job("v3"))
    d.tick()
    assert running(d) == ["v0"] and d.status("v3").state is JobState.REJECTED


@pytest.mark.parametrize("again", [1, 3])
def test_what_the_directory_says_twice_counts_once(again: int) -> None:
    d = fed(*[token(limited("vision", running=1), 5)] * again)
    assert len(d.all(ProjectLimited)) == 1


def test_what_an_operator_asks_reaches_the_scheduler_as_bytes_with_a_token() -> None:
    machine = DirectoryMachine(control_partitions=2)
    asked = ChangeProject.model_validate({"project": {"name": "vision", "limits": {"running": 1}}})
    envelope = Envelope(EventId("e"), "ops", asked)
    decisions = tuple(machine.decide(machine.initial(0), 5, [Input(0, envelope)]))
    inputs = (JournaledInput(0, envelope),)
    record = JournalRecord(7, "o", 5, 0, inputs, decisions, 0, machine.decide_version, machine.fold_version, NO_HASH)
    record = JournalRecord.decode(record.encode())
    sent = [out for out in outgoing(machine, topics.ADMISSION, 0, record) if out.topic == topics.CONTROL]
    assert sorted(out.partition for out in sent if out.partition is not None) == [0, 1]
    d = fed()
    told = decode(sent[0].value, [*sent[0].headers])
    d.feed(told, told, job("v0"), job("v1"))
    assert running(d) == ["v0"] and len(d.all(ProjectLimited)) == 1


def test_an_agent_may_not_say_how_many_jobs_of_a_project_run() -> None:
    rules, value = VettingRules(required=True, platform_key="k"), b"{}"
    assert "is not signed" in refusal(rules, Known({}, {}), topics.CONTROL, value, None, limited("vision", 99, running=100))
