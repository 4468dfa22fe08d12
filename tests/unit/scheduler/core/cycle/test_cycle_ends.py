"""Expected ends are what they would be if each were worked out anew, whatever came, left or was asked before."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.shapes import simple
from trainhouse.scheduler.core.cluster.shape import Part
from trainhouse.scheduler.core.cycle.release_forecast import Ends, likely_end_ms
from trainhouse.scheduler.core.queue.entries import Running, Waiting

GANG = st.tuples(st.integers(0, 40_000), st.none() | st.integers(0, 60_000), st.none() | st.integers(0, 60_000))
"""(start, how long it is expected to run, when it is to leave)"""
STEPS = st.lists(st.tuples(st.integers(0, 9), GANG | st.none(), st.integers(-500, 20_000)), max_size=40)
"""(gang, what is known of it from now on: None, it left; how much later the next question is)"""


def running(number: int, gang: tuple[int, int | None, int | None]) -> Running:
    start_ms, run_ms, leaving_ms = gang
    job = Waiting(f"j{number}", number, "a", 50, simple("main", 1), 0, 0)
    return Running(job, (Part(0, 1),), start_ms, None if run_ms is None else start_ms + run_ms, start_ms, leaving_ms)


def anew(known: dict[str, Running], now_ms: int) -> list[tuple[int, str]]:
    return sorted((likely_end_ms(r, now_ms), job_id) for job_id, r in known.items())


@given(STEPS, st.lists(st.integers(0, 400_000), max_size=3))
def test_ends_are_those_that_each_gang_has_now(
    steps: list[tuple[int, tuple[int, int | None, int | None] | None, int]], more: list[int]
) -> None:
    ends, known, now_ms = Ends(), dict[str, Running](), 0
    for number, gang, later_ms in steps:
        old = known.pop(f"j{number}", None)
        if old is not None:
            ends.drop(old)
        if gang is not None:
            known[f"j{number}"] = new = running(number, gang)
            ends.put(new)
        now_ms = max(0, now_ms + later_ms)
        assert list(ends.after(now_ms, known)) == anew(known, now_ms)
    beside = [(now_ms + 1 + ms, "") for ms in more]
    assert list(ends.after(now_ms, known, beside)) == sorted([*anew(known, now_ms), *beside])


@given(st.lists(GANG, max_size=8), st.integers(0, 100_000), st.integers(0, 100_000))
def test_a_fork_is_asked_apart(gangs: list[tuple[int, int | None, int | None]], now_ms: int, later_ms: int) -> None:
    ends, known = Ends(), {f"j{n}": running(n, gang) for n, gang in enumerate(gangs)}
    for each in known.values():
        ends.put(each)
    assert list(ends.after(now_ms, known)) == anew(known, now_ms)
    fork = ends.fork()
    assert list(fork.after(now_ms + later_ms, known)) == anew(known, now_ms + later_ms)
    for each in known.values():
        fork.drop(each)
    assert list(fork.after(now_ms, {})) == []
    assert list(ends.after(now_ms, known)) == anew(known, now_ms)
