"""The end of an interactive session: its program's reason is the reason of the job's success, of no other job's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.core_world import Driver, admitted, exited, gone, progress, registered, started
from trainhouse.events import GangAllocated, JobState
from trainhouse.events.model.interactive_end import SESSION_ENDED
from trainhouse.scheduler.core.state.deadlines import QUIET_START_MS

EXITED = "every rank exited with code 0"


@pytest.mark.parametrize(
    ("fields", "reason", "shown"),
    [
        ({"interactive": {}}, f"{SESSION_ENDED}nobody used it", f"{SESSION_ENDED}nobody used it"),
        ({"interactive": {}}, "a reason of something else", EXITED),
        ({"interactive": {}}, "", EXITED),
        ({}, f"{SESSION_ENDED}nobody used it", EXITED),
    ],
)
def test_the_status_has_the_reason_of_the_session(fields: dict[str, Any], reason: str, shown: str) -> None:
    d = Driver()
    d.feed(registered("n1", 1), admitted("j", gang=1, **fields))
    gang = d.last(GangAllocated, job_id="j")
    d.feed(started(gang, "n1"))
    d.feed(exited(gang, 0, reason=reason))
    d.feed(*gone(gang))
    assert (d.status("j").state, d.status("j").reason) == (JobState.SUCCEEDED, shown)


@pytest.mark.parametrize("between", ["quiet", "progress"])
def test_what_comes_between_the_end_of_a_session_and_that_of_its_attempt_leaves_the_reason(between: str) -> None:
    d = Driver()
    d.feed(registered("n1", 1), admitted("j", gang=1, interactive={}))
    gang = d.last(GangAllocated, job_id="j")
    d.feed(started(gang, "n1"))
    d.feed(exited(gang, 0, reason=f"{SESSION_ENDED}nobody used it"))
    if between == "quiet":
        d.tick(QUIET_START_MS + 1)
    else:
        d.feed(progress(gang, 1))
    assert d.status("j").state is JobState.RUNNING
    d.feed(*gone(gang))
    assert (d.status("j").state, d.status("j").reason) == (JobState.SUCCEEDED, f"{SESSION_ENDED}nobody used it")
