"""What a campaign itself holds jobs to can complain: shown what holds, and the same with one thing wrong."""

from __future__ import annotations

import pytest

from tests.chaos.campaign import ended_as_it_must, last_weights, same_weights, sql_differs
from tests.chaos.jobs import MUST_END, Asked, JobKind
from tests.unit.harness.test_chaos_judge import evidence
from trainhouse.events import Event, JobState, JobStatus, LogLines, Order
from trainhouse.events.wire import topics

ONE, OTHER = "a" * 64, "b" * 64
KEY = ("j", 1, 0, "loss")


def ended(kind: JobKind, state: JobState, attempt: int = 0, needless: bool = False) -> list[str]:
    status = JobStatus.model_validate({"job_id": "j", "status_seq": 3, "state": state, "attempt": attempt, "reason": "of its own"})
    return list(ended_as_it_must(Asked("j", kind), status, needless))


@pytest.mark.parametrize("kind", list(JobKind))
def test_a_job_that_ends_otherwise_than_its_kind_must_is_seen(kind: JobKind) -> None:
    assert not ended(kind, MUST_END[kind])
    for state in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.REJECTED):
        if state is not MUST_END[kind]:
            assert f"must end {MUST_END[kind]}: of its own" in ended(kind, state)[0]


def test_a_restart_without_a_reason_is_seen() -> None:
    must = MUST_END[JobKind.EXAMPLE]
    assert not ended(JobKind.EXAMPLE, must, attempt=0, needless=True)
    assert not ended(JobKind.EXAMPLE, must, attempt=1, needless=False)
    assert "blindness is not death" in ended(JobKind.EXAMPLE, must, attempt=1, needless=True)[0]


def test_other_weights_or_none_are_seen() -> None:
    assert not list(same_weights({"calm": ONE, "hit": ONE}, ["calm", "hit"]))
    assert "hit ended with weights b" in next(iter(same_weights({"calm": ONE, "hit": OTHER}, ["calm", "hit"])))
    assert "hit ended with weights None" in next(iter(same_weights({"calm": ONE}, ["calm", "hit"])))
    assert len(list(same_weights({}, ["calm", "hit"]))) == 2, "two that printed none are not alike"


def printed(job: str, *lines: str) -> tuple[str, Event, Order | None]:
    about = {"job_id": job, "attempt": 0, "epoch": 1, "node_id": "n", "rank": 0, "stream": "stdout"}
    more = {"start": 0, "end": 9, "lines": lines, "offsets": [0] * len(lines), "read_at_ms": 1}
    return topics.LOGS, LogLines.model_validate(about | more), None


def test_the_weights_that_count_are_the_last_of_the_job_itself() -> None:
    told = [printed("j", f"weights sha256 {OTHER}"), printed("j", "done", f"weights sha256 {ONE}"), printed("k", f"weights sha256 {OTHER}")]
    assert last_weights(evidence(*told), "j") == ONE
    assert last_weights(evidence(*told), "l") is None


def test_points_and_states_that_sql_has_otherwise_are_seen() -> None:
    states = {"j": "SUCCEEDED"}
    assert not list(sql_differs({KEY: 5}, {KEY: 5}, states, states))
    for found, expected in (({KEY: 4}, {KEY: 5}), ({}, {KEY: 5}), ({KEY: 6}, {KEY: 5}), ({KEY: 5}, {})):
        assert "points of ('j', 1, 0, 'loss')" in next(iter(sql_differs(found, expected, states, states)))
    for said in ({"j": "RUNNING"}, {}):
        assert "SQL says that j is SUCCEEDED" in next(iter(sql_differs({}, {}, states, said)))
    assert "SQL says that j is None" in next(iter(sql_differs({}, {}, {}, states)))
