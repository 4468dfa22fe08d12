"""The table of job states."""

import pytest

from trainhouse.events import JobState
from trainhouse.events.model.phases import Failed, Pending, Running, Scheduled, Succeeded
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.state.transitions import TRANSITIONS, check_move


def test_every_state_but_the_first_is_reached_and_final_ones_lead_nowhere() -> None:
    assert {b for _, b, _ in TRANSITIONS} >= set(JobState)
    assert not [a for a, _, _ in TRANSITIONS if a.final]
    assert len({(a, b) for a, b, _ in TRANSITIONS}) == len(TRANSITIONS)


def test_a_way_that_the_table_does_not_have_is_refused() -> None:
    check_move("j", Pending(), Scheduled())
    check_move("j", Running(since_ms=1), Running(since_ms=2))
    for old, new in ((Pending(), Succeeded()), (Failed(), Pending()), (Running(since_ms=1), Scheduled())):
        with pytest.raises(BrokenInvariant, match="no way leads from"):
            check_move("j", old, new)
