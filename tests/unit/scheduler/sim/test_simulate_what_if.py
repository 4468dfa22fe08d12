"""What-if: a history read from a journal that the real machine decided, and run again under another policy."""

import json
from typing import Any

import pytest

from tests.support.core_world import Driver, admitted, lost, policy_changed, progress, registered, run_through, started, stopped
from trainhouse.cli.fleet.what_if import row, sentence
from trainhouse.events import CordonNode, GangAllocated, NodeRegistered, ProjectLimited, QuarantineNode, UncordonNode
from trainhouse.events.model.policy import Blocking, Order, RunTimes, SchedulingPolicy
from trainhouse.events.wire.journal import JournalRecord, record_hash
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.replay import LogEntry
from trainhouse.scheduler.sim.history import End, Happening, History, history_of
from trainhouse.scheduler.sim.journal_trace import NothingRecordedError, recorded
from trainhouse.scheduler.sim.types import Options
from trainhouse.scheduler.sim.what_if import what_if
from trainhouse.scheduler.stream.history.history_journal import happenings

FIFO = {"order": "submit", "blocking": "strict", "run_times": "limits"}
SHORTEST = SchedulingPolicy(name="shortest", order=Order.SHORTEST, blocking=Blocking.STRICT)


def history(driver: Driver) -> History:
    return history_of(Happening(0, now_ms, d) for now_ms, decisions in driver.records for d in decisions)


def entries(driver: Driver, partition: int = 0) -> list[LogEntry]:
    found, last = [], "0" * 64
    for n, (now_ms, decisions) in enumerate(driver.records):
        record = JournalRecord(n + 1, "o", now_ms, n, (), tuple(decisions), 0, 1, 1, last)
        found.append(LogEntry(partition, n, record.encode()))
        last = record_hash(found[-1].value)
    return found


def gang(driver: Driver, job_id: str) -> GangAllocated:
    return driver.last(GangAllocated, job_id=job_id)


def finish(driver: Driver, job_id: str, after_ms: int) -> None:
    """Ends a running job's work."""
    driver.tick(after_ms)
    run_through(driver, gang(driver, job_id))
    driver.tick(1)


def a_day() -> tuple[Driver, NodeRegistered]:
    """One node of two slots under FIFO: a long job of team red, then a long and a short one of team blue, one at a time."""
    driver = Driver()
    node = registered("n1")
    driver.feed(node)
    driver.feed(policy_changed(**FIFO))
    for n, (job_id, team, limit_s) in enumerate([("long", "red", 600), ("big", "blue", 400), ("quick", "blue", 20)]):
        driver.feed(admitted(job_id, ranks=2, team=team, limits={"run_time_s": limit_s}), wait_ms=1000 * n)
    for job_id, run_ms in (("long", 500_000), ("big", 300_000), ("quick", 10_000)):
        finish(driver, job_id, run_ms)
    return driver, node


def test_a_history_has_each_attempt_and_wait() -> None:
    driver, _ = a_day()
    found = history(driver)
    assert set(found.jobs) == {"long", "big", "quick"} and found.pools == ["default"]
    long, big, quick = (found.jobs[j] for j in ("long", "big", "quick"))
    assert [a.how for a in long.attempts] == [End.DONE] and long.outcome == "succeeded"
    assert long.wait_ms(found.last_ms) == 0
    assert long.work_ms(found.last_ms) == 503_000
    assert big.wait_ms(found.last_ms) == 502_000
    assert quick.wait_ms(found.last_ms) == 800_001
    assert found.nodes["n1"].closed == []
    assert len(found.policies["default"]) == 1


def test_another_policy_is_compared_and_the_recorded_one_is_true_to_what_happened() -> None:
    driver, _ = a_day()
    past = recorded(history(driver))
    assert past.policy.order is Order.SUBMIT and past.carried == frozenset()
    limits = SHORTEST.model_copy(update={"run_times": RunTimes.LIMITS})
    found = what_if(past, limits)
    assert (found.recorded_policy, found.new_policy) == (past.policy.name, "shortest")
    assert found.honesty.jobs == 3
    assert found.honesty.median_wait_off_s <= 2 and found.honesty.p95_wait_off_s <= 3
    assert found.honesty.real_utilization == pytest.approx(found.honesty.simulated_utilization, abs=0.02)
    of = {(c.what, c.team): c for c in found.changes}
    # "quick" overtakes "big": 300 s sooner, which itself waits 10 s longer.
    assert of["mean_wait_s", ""].difference == pytest.approx((-300 + 10) / 3, abs=2)
    assert of["mean_wait_s", "blue"].difference == pytest.approx((-300 + 10) / 2, abs=3)
    assert of["mean_wait_s", "red"].difference == 0
    assert json.dumps(found.as_json())
    assert row(of["mean_wait_s", "blue"])[0] == "blue" and "-" in row(of["mean_wait_s", "blue"])[4]
    assert "3 jobs that ended" in sentence(found.honesty)


def test_the_recorded_policy_against_itself_differs_in_nothing() -> None:
    past = recorded(history(a_day()[0]))
    assert all(c.difference == 0 for c in what_if(past, past.policy).changes)


def test_since_carries_what_was_there_and_compares_the_rest() -> None:
    driver, _ = a_day()
    whole = history(driver)
    middle_ms = whole.jobs["long"].attempts[0].start_ms + 200_000
    past = recorded(whole, since_ms=middle_ms)
    assert past.carried == {"long", "big", "quick"} and past.real == []
    assert (past.jobs[0].job_id, past.jobs[0].duration_s) == ("long", 303)
    assert any("3 jobs were there already" in n for n in past.notes)
    late_ms = whole.jobs["long"].end_ms
    assert late_ms is not None
    assert {j.job_id for j in recorded(whole, since_ms=late_ms).jobs} == {"big", "quick"}
    with pytest.raises(NothingRecordedError, match="later than the journal's last record"):
        recorded(whole, since_ms=whole.last_ms + 1)


def test_a_lost_node_is_out_of_service_and_its_work_is_done_again() -> None:
    driver = Driver()
    node = registered("n1")
    driver.feed(node)
    driver.feed(policy_changed(**FIFO))
    driver.feed(admitted("j", ranks=2, limits={"run_time_s": 5000}))
    driver.feed(started(gang(driver, "j"), "n1"))
    driver.feed(progress(gang(driver, "j"), 1))
    driver.feed(lost(node), wait_ms=100_000)
    driver.feed(registered("n1", incarnation="inc-2", boot_id="boot-2"), wait_ms=50_000)
    driver.tick(60_000)
    finish(driver, "j", 200_000)
    found = history(driver)
    assert [a.how for a in found.jobs["j"].attempts] == [End.LOST, End.DONE]
    assert found.jobs["j"].work_ms(found.last_ms) == 260_000
    (closed,) = found.nodes["n1"].closed
    assert closed.to_ms is not None and closed.to_ms - closed.from_ms == 50_000
    past = recorded(found)
    (fault,) = past.faults
    assert (fault.node_id, (fault.repaired_s or 0) - fault.time_s) == ("n1", pytest.approx(50, abs=1))
    assert past.lost_gpu_s == pytest.approx(2 * 100, abs=3)
    result = what_if(past, past.policy, Options(checkpoint_s=1800, restart_s=0))
    assert result.honesty.simulated_lost_gpu_s == pytest.approx(past.lost_gpu_s, abs=5)


def test_a_closed_node_is_out_of_service_but_a_cordon_is_only_told() -> None:
    driver = Driver()
    driver.feed(registered("n1"), registered("n2"))
    driver.feed(admitted("j", ranks=2))
    about: dict[str, Any] = {"pool": "default", "reason": "ecc", "user": "ada"}
    driver.feed(QuarantineNode.model_validate(about | {"node_id": "n2"}), wait_ms=10_000)
    driver.feed(CordonNode.model_validate(about | {"node_id": "n1"}), wait_ms=10_000)
    driver.feed(UncordonNode.model_validate(about | {"node_id": "n2"}), wait_ms=20_000)
    finish(driver, "j", 60_000)
    found = history(driver)
    assert [(c.to_ms or 0) - c.from_ms for c in found.nodes["n2"].closed] == [30_000]
    assert found.nodes["n1"].closed == [] and found.cordons == 1
    assert any("cordoned 1 times" in n for n in recorded(found).notes)


def test_limits_of_projects_are_only_told() -> None:
    driver, _ = a_day()
    assert not any("limits.running" in note for note in recorded(history(driver)).notes)
    driver.feed(*(ProjectLimited(project=f"p{n}", version=1, running=n or None, queued=1) for n in range(3)))
    assert any("limits.running of 2 projects (p1, p2)" in note for note in recorded(history(driver)).notes)


def test_jobs_without_an_end_are_guessed_and_told() -> None:
    driver = Driver()
    driver.feed(registered("n1"))
    for job_id in ("runs", "waits", "limited"):
        limits = {"limits": {"run_time_s": 77}} if job_id == "limited" else {}
        driver.feed(admitted(job_id, ranks=2, **limits))
    driver.tick(40_000)
    past = recorded(history(driver))
    assert {j.job_id: j.duration_s for j in past.jobs} == {"runs": 40, "waits": 60, "limited": 77}
    assert any("1 jobs had not ended" in n for n in past.notes) and any("2 jobs never ran" in n for n in past.notes)
    assert "cannot be said" in sentence(what_if(past, past.policy).honesty)


def test_pools_are_asked_for_by_name() -> None:
    driver = Driver()
    driver.feed(registered("n1"), registered("n2", pool="other"))
    driver.feed(admitted("a", ranks=1), admitted("b", ranks=1, pool="other"))
    found = history(driver)
    with pytest.raises(NothingRecordedError, match="several pools; name one with --pool; there are default, other"):
        recorded(found)
    with pytest.raises(NothingRecordedError, match="no pool 'third'"):
        recorded(found, "third")
    assert [j.job_id for j in recorded(found, "other").jobs] == ["b"]
    with pytest.raises(NothingRecordedError, match="there are none"):
        recorded(History())


def test_what_agents_were_told_twice_is_one_attempt() -> None:
    driver, _ = a_day()
    orders = [d for d in driver.decisions if isinstance(d, GangAllocated) and d.job_id == "long"]
    happened = [Happening(0, 1_000_000 + n, d) for n, d in enumerate(driver.decisions) if not isinstance(d, GangAllocated) or d in orders]
    twice = [h for h in happened for _ in range(2 if isinstance(h.decision, GangAllocated) else 1)]
    assert len(history_of(twice).jobs["long"].attempts) == 1


def test_only_records_that_count_are_read() -> None:
    log = entries(a_day()[0])
    whole = list(happenings(log))
    loser = LogEntry(0, 99, log[3].value)
    assert list(happenings([*log[:5], loser, *log[5:], loser])) == whole
    with pytest.raises(BrokenInvariant, match="seq 5: its previous_hash"):
        forged = log[4].value.replace(b'"previous_hash":"', b'"previous_hash":"f')
        list(happenings([*log[:4], LogEntry(0, 4, forged)]))
    with pytest.raises(BrokenInvariant, match="begins at seq 2"):
        list(happenings(log[1:]))
    assert history_of(whole).jobs.keys() == {"long", "big", "quick"}


def test_a_history_goes_to_the_last_record_whatever_that_decided() -> None:
    driver, _ = a_day()
    driver.tick(90_000)
    assert history_of(happenings(entries(driver))).last_ms == driver.now_ms


def test_partitions_are_chained_apart() -> None:
    one, two = entries(a_day()[0], 0), entries(a_day()[0], 1)
    mixed = [e for pair in zip(one, two, strict=True) for e in pair]
    assert len(list(happenings(mixed))) == 2 * len(list(happenings(one)))


def test_a_stopped_gang_that_was_cancelled_counts_as_long_as_it_ran() -> None:
    driver = Driver()
    driver.feed(registered("n1"))
    driver.feed(admitted("j", ranks=1))
    from trainhouse.events import CancelJob

    driver.feed(started(gang(driver, "j"), "n1"))
    driver.feed(CancelJob.model_validate({"job_id": "j"}), wait_ms=30_000)
    driver.feed(stopped(gang(driver, "j"), "n1"))
    (job,) = recorded(history(driver)).jobs
    assert (job.status, job.duration_s) == ("cancelled", 30)
