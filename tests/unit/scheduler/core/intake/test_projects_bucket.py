"""Laws of the bucket: never more than was given, never less than was asked for slowly, whatever the clock does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainhouse.scheduler.core.intake.bucket import MINUTE_MS, STEP_MS, Bucket, Rate, left, take, wait_s

rates = st.builds(lambda n, b, s: Rate(n, b, s), st.integers(1, 5_000), st.integers(1, 5_000), st.integers(1, 64))
gaps = st.lists(st.integers(-5_000, 120_000), max_size=60)


@given(rates, gaps)
def test_no_span_lets_more_through_than_a_burst_and_what_its_time_refills(rate: Rate, steps: list[int]) -> None:
    bucket, now_ms, taken = None, 1_000_000, []
    for step in steps:
        now_ms += step
        after = take(rate, bucket, now_ms)
        if after is not None:
            bucket = after
            taken.append(bucket.at_ms)
    for first, begin in enumerate(taken):
        for last in range(first, len(taken)):
            span_ms = taken[last] - begin
            assert (last - first + 1) * rate.unit <= rate.burst * rate.unit + span_ms * rate.per_minute


@given(rates, st.integers(0, 10**7), st.integers(0, 10**9))
def test_who_waits_as_long_as_told_gets_one(rate: Rate, level: int, at_ms: int) -> None:
    bucket = Bucket(level, at_ms)
    again_s = wait_s(rate, bucket, at_ms)
    assert take(rate, bucket, at_ms + again_s * 1000) is not None
    assert (again_s == 0) == (left(rate, bucket, at_ms) > 0) == (take(rate, bucket, at_ms) is not None)


@given(rates, st.integers(0, 10**9))
def test_who_asks_slower_than_the_rate_is_never_refused(rate: Rate, begin_ms: int) -> None:
    bucket, gap_ms = None, -(-MINUTE_MS * rate.shares // rate.per_minute)
    for turn in range(50):
        bucket = take(rate, bucket, begin_ms + turn * gap_ms)
        assert bucket is not None


@given(rates, st.integers(0, 10**9), st.integers(1, STEP_MS))
def test_a_clock_that_goes_back_a_little_refills_nothing(rate: Rate, at_ms: int, back_ms: int) -> None:
    bucket: Bucket | None = Bucket(0, at_ms)
    assert take(rate, bucket, at_ms - back_ms) is None
    assert left(rate, bucket, at_ms - back_ms) == 0


def taken(rate: Rate, bucket: Bucket | None, begin_ms: int, span_ms: int) -> tuple[Bucket | None, int]:
    """The bucket after somebody asked every half second, and how often that was granted."""
    count = 0
    for now_ms in range(begin_ms, begin_ms + span_ms, 500):
        after = take(rate, bucket, now_ms)
        if after is not None:
            bucket, count = after, count + 1
    return bucket, count


@given(st.builds(Rate, st.integers(1, 100), st.integers(2, 50)), st.integers(STEP_MS + 200_000, 86_400_000), st.booleans())
def test_a_clock_that_is_set_starves_nobody_and_gives_one_burst_at_most(rate: Rate, step_ms: int, back_first: bool) -> None:
    now_ms, bucket = 10**9, Bucket(0, 10**9)
    bucket, _ = taken(rate, bucket, now_ms, 10_000)
    most = rate.burst + rate.per_minute + 1
    for by_ms in (-step_ms, step_ms) if back_first else (step_ms, -step_ms):
        now_ms += by_ms
        bucket, count = taken(rate, bucket, now_ms, MINUTE_MS)
        assert rate.per_minute <= count + 1 and count <= most, "as before, but for one burst"
        assert left(rate, bucket, now_ms + MINUTE_MS) <= rate.burst
        assert wait_s(rate, bucket, now_ms + MINUTE_MS) <= MINUTE_MS // 1000
        now_ms += MINUTE_MS
