"""Journal time: what a step of a clock, a takeover, a pause and a real downtime make of it."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.scheduler.core.protocol.log_clock import SLEW, TOLERANCE_MS, LogTime, elapsed_ms

BEGIN_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
STEPS_MS = (HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS)
APPEND_S = 0.01


@dataclass
class World:
    """One owner that appends every so often; `true_s` since it began. Its clock and the brokers' may be off."""

    time: LogTime = field(default_factory=LogTime)
    true_s: float = 0.0
    own_off_ms: int = 0
    broker_off_ms: int = 0
    last_ms: int = 0

    def __post_init__(self) -> None:
        self.time.resume(0, 0, self.at(self.broker_off_ms), self.at(self.own_off_ms), self.true_s)

    def at(self, off_ms: int, later_s: float = 0.0) -> int:
        return BEGIN_MS + off_ms + round((self.true_s + later_s) * 1000)

    def run(self, for_s: float, every_s: float = 1.0) -> None:
        end_s = self.true_s + for_s
        while self.true_s < end_s:
            now_ms = self.time.now_ms(self.true_s)
            assert now_ms >= self.last_ms, "it never goes back"
            self.last_ms = now_ms
            self.time.observe(
                self.true_s, self.true_s + 2 * APPEND_S, self.at(self.broker_off_ms, APPEND_S), self.at(self.own_off_ms, 2 * APPEND_S)
            )
            self.true_s += every_s

    @property
    def error_ms(self) -> int:
        return self.time.now_ms(self.true_s) - self.at(0)


@pytest.mark.parametrize("step_ms", STEPS_MS)
@pytest.mark.parametrize("whose", ["own_off_ms", "broker_off_ms"])
def test_a_step_of_one_clock_moves_nothing_however_long_it_lasts(step_ms: int, whose: str) -> None:
    world = World()
    world.run(60)
    setattr(world, whose, step_ms)
    world.run(2 * 3600)
    assert abs(world.error_ms) <= 100
    assert world.time.off == ((True, False) if whose == "own_off_ms" else (False, True))
    setattr(world, whose, 0)
    world.run(60)
    assert abs(world.error_ms) <= 100 and world.time.off == (False, False)


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_where_both_clocks_step_time_runs_a_little_faster_or_slower_until_they_agree(step_ms: int) -> None:
    """One machine has both; or the steady clock stood still for long."""
    world = World()
    world.run(60)
    world.own_off_ms = world.broker_off_ms = step_ms
    world.run(600)
    assert 0 < abs(world.error_ms) <= 600_000 * SLEW + 100 and (world.error_ms > 0) == (step_ms > 0)
    world.run(2 * abs(step_ms) / 1000 / SLEW / 50, every_s=1.0)
    assert abs(world.error_ms) <= abs(step_ms) + 100


@given(st.lists(st.tuples(st.floats(0.02, 60), st.integers(-DAY_MS, DAY_MS), st.integers(-DAY_MS, DAY_MS)), max_size=30))
def test_whatever_the_clocks_do_it_goes_on_at_nearly_its_pace(steps: list[tuple[float, int, int]]) -> None:
    world = World()
    for for_s, world.own_off_ms, world.broker_off_ms in steps:
        before_ms, begin_s = world.time.now_ms(world.true_s), world.true_s
        world.run(for_s)
        passed_ms = (world.true_s - begin_s) * 1000
        went_ms = world.time.now_ms(world.true_s) - before_ms
        assert (1 - SLEW) * passed_ms - 100 <= went_ms <= (1 + SLEW) * passed_ms + 100


@given(
    st.integers(0, 10 * DAY_MS),
    st.integers(-100, 100),
    st.sampled_from((0, *STEPS_MS)),
    st.booleans(),
)
def test_a_process_that_just_started_takes_the_time_that_passed(down_ms: int, jitter_ms: int, step_ms: int, brokers: bool) -> None:
    """One of the two clocks stepped meanwhile: nothing comes early, and nothing later than the partition was down."""
    timed_ms = BEGIN_MS
    claimed_ms = timed_ms + down_ms + (step_ms if brokers else 0)
    clock_ms = timed_ms + down_ms + jitter_ms + (0 if brokers else step_ms)
    found_ms = elapsed_ms(timed_ms, claimed_ms, clock_ms)
    assert max(0, down_ms - abs(step_ms)) - 100 <= found_ms <= down_ms + TOLERANCE_MS
    if not step_ms or step_ms > 0:
        assert abs(found_ms - down_ms) <= 100
    if down_ms + step_ms < -TOLERANCE_MS:
        assert abs(found_ms - down_ms) <= 100, "a clock that says that time went back does not count"


def test_three_hours_down_are_three_hours_and_an_unknown_append_time_leaves_the_own_clock() -> None:
    time = LogTime()
    time.follow(BEGIN_MS, 5.0, live=False)
    time.resume(BEGIN_MS, BEGIN_MS + 40, BEGIN_MS + 40 + 3 * HOUR_MS, BEGIN_MS + 50 + 3 * HOUR_MS, 6.0)
    assert time.now_ms(6.0) == BEGIN_MS + 3 * HOUR_MS and time.now_ms(7.5) == BEGIN_MS + 3 * HOUR_MS + 1500
    assert elapsed_ms(BEGIN_MS, -1, BEGIN_MS + 7) == 7


def test_a_journal_that_begins_takes_the_logs_time() -> None:
    for claimed_ms, expected_ms in ((BEGIN_MS, BEGIN_MS), (-1, BEGIN_MS + DAY_MS)):
        time = LogTime()
        time.resume(0, 0, claimed_ms, BEGIN_MS + DAY_MS, 3.0)
        assert time.now_ms(3.0) == expected_ms


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_stand_by_that_followed_asks_no_wall_clock(step_ms: int) -> None:
    time = LogTime()
    for second in range(20):
        time.follow(BEGIN_MS + second * 1000, second + 0.03, live=True)
    time.resume(BEGIN_MS + 19_000, BEGIN_MS + 19_000, BEGIN_MS + 22_000 + step_ms, BEGIN_MS + 22_000 + step_ms, 22.0)
    assert abs(time.now_ms(22.0) - BEGIN_MS - 22_000) <= 50


def test_a_stand_by_that_was_stopped_reads_what_it_missed_and_is_right_at_once() -> None:
    """Its steady clock went on; records that it reads late say too little, and are no reason to go back."""
    time = LogTime()
    time.follow(BEGIN_MS, 0.01, live=True)
    for second in range(1, 1800):
        time.follow(BEGIN_MS + second * 1000, 3600.0, live=True)
    assert abs(time.now_ms(3600.0) - BEGIN_MS - 3_600_000) <= 3_600_000 * SLEW
