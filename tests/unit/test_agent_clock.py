"""What an agent does regularly goes on whatever its clock is set to."""

from hypothesis import given
from hypothesis import strategies as st

from trainhouse.workers.agent.agent import due

TIMES = st.integers(-(10**13), 10**13)


def test_what_is_regular_comes_once_in_its_time() -> None:
    assert [now for now in range(1_000, 3_000, 100) if due(2_000, now, 1_000)] == list(range(2_000, 3_000, 100))


@given(TIMES, TIMES, st.integers(1, 60_000))
def test_after_any_jump_of_the_clock_it_comes_within_its_time(done_ms: int, jumped_to_ms: int, every_ms: int) -> None:
    at_ms = done_ms + every_ms
    assert due(at_ms, jumped_to_ms, every_ms) or 0 < at_ms - jumped_to_ms <= every_ms
