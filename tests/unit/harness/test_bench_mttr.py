"""What the mttr bench makes of faults and progress: which hit recovered when, which a gang rode out, and what was lost."""

from __future__ import annotations

import pytest

from tests.bench.mttr_figures import Hit, Reports, hits, lost_device_s, times


def told(**jobs: dict[int, list[tuple[int, int]]]) -> Reports:
    found = Reports()
    for job_id, epochs in jobs.items():
        for epoch, steps in epochs.items():
            for at_ms, step in steps:
                found.add(job_id, epoch, at_ms, step)
    return found


def every_second(first: int, last: int, step: int) -> list[tuple[int, int]]:
    return [(1000 * t, step + t - first) for t in range(first, last + 1)]


def fault(at_s: int, kind: str, *hit: tuple[str, int]) -> dict[str, object]:
    return {"at_ms": at_s * 1000, "kind": kind, "node_id": "n", "hit": list(hit)}


def test_a_fault_ends_when_a_later_attempt_makes_a_step() -> None:
    reports = told(j={1: every_second(0, 10, 0), 2: every_second(26, 30, 6)})
    assert list(hits([fault(10, "die", ("j", 1))], reports)) == [Hit("j", 1, "die", 16_000, 16_000)]


def test_a_gang_that_goes_on_rode_it_out_but_not_if_another_attempt_follows_it() -> None:
    on = told(j={1: every_second(0, 40, 0)})
    assert list(hits([fault(10, "restart", ("j", 1))], on)) == [Hit("j", 1, "restart", None)]
    # The silent node's gang trained on until its node was given up.
    lost = told(j={1: every_second(0, 25, 0), 2: every_second(28, 30, 20)})
    assert list(hits([fault(10, "silent", ("j", 1))], lost)) == [Hit("j", 1, "silent", 18_000, 3_000)]
    # It was another fault, later, that ended the attempt.
    both = list(hits([fault(10, "silent", ("j", 1)), fault(25, "die", ("j", 1))], lost))
    assert both == [Hit("j", 1, "silent", None), Hit("j", 1, "die", 3_000, 3_000)]


def test_two_faults_of_one_moment_are_ridden_out_together() -> None:
    both = [fault(10, "restart", ("j", 1)), fault(11, "silent", ("j", 1))]
    rode = [Hit("j", 1, "restart", None), Hit("j", 1, "silent", None)]
    assert list(hits(both, told(j={1: every_second(0, 40, 0)}))) == rode
    # A third one, long after them, ended the attempt; neither of them did.
    later = told(j={1: every_second(0, 30, 0), 2: every_second(38, 40, 20)})
    assert list(hits([*both, fault(30, "die", ("j", 1))], later)) == [*rode, Hit("j", 1, "die", 8_000, 8_000)]
    # One that the gang does not survive is ridden out by nobody, whatever else struck just before.
    ended = told(j={1: every_second(0, 12, 0), 2: every_second(28, 30, 5)})
    assert [h.back_ms for h in hits([both[0], fault(12, "die", ("j", 1))], ended)] == [18_000, 16_000]


def test_two_faults_of_one_standstill_end_together_and_what_never_runs_again_is_told() -> None:
    reports = told(j={1: every_second(0, 10, 0), 2: every_second(30, 31, 5)}, k={1: every_second(0, 12, 0)})
    found = list(hits([fault(10, "die", ("j", 1), ("k", 1)), fault(14, "die", ("j", 1))], reports))
    assert [(h.back_ms, h.left) for h in found] == [(20_000, False), (None, True), (16_000, False)]


def test_lost_time_is_rework_and_standstill() -> None:
    reports = told(a={1: every_second(0, 100, 0)}, b={1: every_second(0, 50, 0), 2: every_second(60, 100, 40)})
    lost, whole = lost_device_s(reports, {"a": 8, "b": 2}, 1.0)
    assert whole == pytest.approx(8 * 100 + 2 * 100)
    assert lost == pytest.approx(2 * 20)  # ten seconds of standstill, ten steps done again


def test_times_are_in_seconds_and_nothing_has_none() -> None:
    assert times([]) == {}
    assert times([1000, 2000, 10_000]) == {"p50": 2.0, "p95": 10.0, "worst": 10.0}
