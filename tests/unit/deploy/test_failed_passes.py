"""Warnings of timed parts: of a pass that ended badly or could not begin, and of no other."""

import pytest

from trainhouse.deploy.local.supervision.failed_passes import failed_passes
from trainhouse.deploy.local.supervision.supervisor_client import PartState


@pytest.mark.parametrize(
    ("state", "exit_status", "how"),
    [("EXITED", 7, "ended with 7"), ("EXITED", -1, "was killed"), ("BACKOFF", 0, "could not be started"), ("FATAL", 0, "not be started")],
)
def test_a_pass_that_failed_is_named_until_the_next_timed_one(state: str, exit_status: int, how: str) -> None:
    [warning] = failed_passes([PartState("sweep", 0, state, 0, exit_status)], {"sweep": "its.log"})
    assert how in warning and "its.log" in warning and "until the next timed pass succeeds" in warning


@pytest.mark.parametrize("state", ["EXITED", "RUNNING", "STARTING", "STOPPED"])
def test_a_part_that_runs_or_ended_well_is_no_warning(state: str) -> None:
    assert failed_passes([PartState("expire", 0, state, 0)], {}) == []
