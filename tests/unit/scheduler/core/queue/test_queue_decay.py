"""Fading use: whole numbers that follow the formula, whenever one asks."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from trainhouse.scheduler.core.queue.decay import STEPS, Track, advance, average, fade

STEP_MS = 1000
CHANGES = st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 64_000)), max_size=12)


@given(st.integers(0, 10**18), st.integers(0, 2000))
def test_sixteen_steps_halve(past: int, steps: int) -> None:
    assert fade(past, STEPS) == past // 2
    assert fade(past, steps + STEPS) == fade(past, steps) // 2
    assert fade(past, steps + 1) <= fade(past, steps)


@given(CHANGES, st.integers(0, 60_000))
def test_the_average_is_the_weighted_mean_of_whole_steps(changes: list[tuple[int, int]], later_ms: int) -> None:
    track, now_ms, spans = Track(), 0, []
    for wait_ms, held in changes:
        spans.append((now_ms, now_ms + wait_ms, track.held))
        now_ms += wait_ms
        track = advance(track, now_ms, STEP_MS)._replace(held=held)
    spans.append((now_ms, now_ms + later_ms, track.held))
    now_ms += later_ms
    assert abs(average(track, now_ms, STEP_MS) - reference(spans, now_ms)) <= 2


def reference(spans: list[tuple[int, int, int]], now_ms: int) -> Fraction:
    """The same by the definition, step by step."""
    factor = Fraction(2 ** (-1 / 16))
    last = now_ms // STEP_MS
    total = Fraction(0)
    for step in range(last):
        area = sum(held * max(0, min(end, (step + 1) * STEP_MS) - max(begin, step * STEP_MS)) for begin, end, held in spans)
        total += area * Fraction(float(factor ** (last - step)))
    return total / (STEP_MS * factor / (1 - factor))


@given(CHANGES, st.lists(st.integers(0, 100_000), max_size=5))
def test_telling_a_track_in_pieces_changes_it_by_rounding_only(changes: list[tuple[int, int]], reads_ms: list[int]) -> None:
    track = Track(held=5000)
    end_ms = 500_000
    pieces = track
    for read_ms in sorted(reads_ms):
        pieces = advance(pieces, read_ms, STEP_MS)
    assert abs(average(pieces, end_ms, STEP_MS) - average(track, end_ms, STEP_MS)) <= 1
    assert average(track, end_ms * 10, STEP_MS) in (4999, 5000)


def test_use_that_ended_fades_to_nothing_and_a_clock_that_goes_back_is_no_time() -> None:
    track = advance(Track(held=1000), 16_000, STEP_MS)._replace(held=0)
    seen = [average(track, t * 1000, STEP_MS) for t in range(16, 600)]
    assert seen == sorted(seen, reverse=True) and seen[0] > 490 and seen[-1] == 0
    assert advance(track, 3, STEP_MS) == track
