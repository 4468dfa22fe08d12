"""The table of job states, and that ARCHITECTURE.md shows the present one."""

from pathlib import Path

import pytest

from trainhouse.events import JobState
from trainhouse.events.model.phases import Failed, Pending, Running, Scheduled, Succeeded
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.state.transitions import TRANSITIONS, check_move, render_markdown

ROOT = Path(__file__).parents[5]


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


def test_the_architecture_page_shows_the_present_table() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    begin, end = "<!-- transitions: begin -->", "<!-- transitions: end -->"
    shown = page.partition(begin)[2].partition(end)[0].strip()
    assert shown == render_markdown().strip(), (
        "put the output of `python -c 'from trainhouse.scheduler.core.state.transitions import render_markdown as r; print(r())'` "
        f"between {begin} and {end}"
    )
