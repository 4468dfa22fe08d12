"""Run times learned from finished jobs."""

from hypothesis import given
from hypothesis import strategies as st

from trainhouse.scheduler.core.queue.estimates import MAX_KIN, Estimates
from trainhouse.scheduler.core.queue.histogram import BUCKETS, Histogram, bucket_of

KIN = st.lists(st.sampled_from("ab"), max_size=3).map(tuple)
LEARNED = st.lists(st.tuples(KIN, st.integers(1, 10**9)), max_size=60)


def test_nothing_is_expected_before_anything_is_known() -> None:
    assert Estimates().expected(("a",)) is None


def test_a_kin_that_is_known_well_is_believed_and_an_unknown_one_is_like_its_parent() -> None:
    e = Estimates()
    for _ in range(100):
        e.learn(("vision", "ann"), 1_000)
        e.learn(("vision", "bob"), 100_000)
    ann, bob, new = (e.expected(("vision", who)) for who in ("ann", "bob", "eve"))
    assert ann is not None and ann < 5_000
    assert bob is not None and bob > 90_000
    assert new is not None and 45_000 < new < 55_000


def test_who_outlives_the_short_ones_is_expected_to_be_long() -> None:
    e = Estimates()
    for _ in range(99):
        e.learn(("a",), 1_000)
    e.learn(("a",), 1_000_000)
    at_start, later = e.expected(("a",)), e.expected(("a",), 10_000)
    assert at_start is not None and 10_000 < at_start < 12_000
    assert later is not None and later > 900_000


def test_beyond_all_that_is_known_the_estimate_doubles() -> None:
    e = Estimates()
    e.learn(("a",), 1_000)
    assert e.expected((), 50_000) == 50_000


@given(st.integers(0, 2**45), st.integers(0, 2**45))
def test_buckets_are_in_the_order_of_run_times(a: int, b: int) -> None:
    low, high = sorted((a, b))
    assert 0 <= bucket_of(low) <= bucket_of(high) < BUCKETS


@given(st.integers(4, 2**38))
def test_a_bucket_is_at_most_a_quarter_wide(run_ms: int) -> None:
    assert bucket_of(run_ms + run_ms // 4 + 1) > bucket_of(run_ms)


@given(LEARNED, KIN, st.integers(0, 10**9))
def test_rows_hold_all_that_is_known(learned: list[tuple[tuple[str, ...], int]], kin: tuple[str, ...], ran_ms: int) -> None:
    e = Estimates()
    for each, run_ms in learned:
        e.learn(each, run_ms)
    again = Estimates.from_rows(e.rows())
    assert again.rows() == e.rows()
    assert again.expected(kin, ran_ms) == e.expected(kin, ran_ms)


@given(LEARNED, LEARNED)
def test_a_fork_learns_apart(first: list[tuple[tuple[str, ...], int]], then: list[tuple[tuple[str, ...], int]]) -> None:
    e = Estimates()
    for each, run_ms in first:
        e.learn(each, run_ms)
    before = e.rows()
    other = e.fork()
    for each, run_ms in then:
        other.learn(each, run_ms)
    assert e.rows() == before
    for each, run_ms in then:
        e.learn(each, run_ms)
    assert e.rows() == other.rows()


def test_memory_is_bounded() -> None:
    e = Estimates()
    for n in range(3 * MAX_KIN):
        e.learn((f"k{n}",), 1_000 + n)
    assert len(e.rows()) <= MAX_KIN
    assert e.expected(()) is not None
    assert e.expected((f"k{3 * MAX_KIN - 1}",)) is not None


def test_old_cases_fade() -> None:
    h = Histogram()
    for _ in range(100):
        h = h.plus(1_000, 64)
    assert h.count < 64 + 1
    assert h.beyond(0, 0)[1] == h.count * 1_000
