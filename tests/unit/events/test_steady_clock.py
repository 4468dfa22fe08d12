"""Clocks of agents: a step of the machine's moves no deadline of an agent, of a rank's last save, or of a node that goes away."""

from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.events import CheckpointRequested, NodeNoticed
from trainhouse.events.runtime.clock import SLEW, SteadyWall, steady_s
from trainhouse.scheduler.core.handlers.verdicts import _left_ms
from trainhouse.workers.agent.follower import in_own_time
from trainhouse.workers.agent.launch.rank_sessions import ask_session
from trainhouse.workers.launcher import AttemptPaths
from trainhouse.workers.session.steps.agent_requests import RequestFile

HOUR_MS = 3_600_000
STEPS_MS = (HOUR_MS, -HOUR_MS, 24 * HOUR_MS, -24 * HOUR_MS)
NOW_MS = 1_800_000_000_000


@dataclass
class Machine:
    """Its two clocks."""

    steady: float = 100.0
    off_ms: int = 0

    def wall_ms(self) -> int:
        return NOW_MS + self.off_ms + round(self.steady * 1000)

    def steady_s(self) -> float:
        return self.steady


@given(st.lists(st.tuples(st.integers(-24 * HOUR_MS, 24 * HOUR_MS), st.floats(0, 120)), max_size=30))
def test_whatever_is_set_it_goes_on_at_nearly_its_pace_and_never_back(steps: list[tuple[int, float]]) -> None:
    machine = Machine()
    clock = SteadyWall(machine.wall_ms, machine.steady_s)
    assert clock() == machine.wall_ms()
    for off_ms, for_s in steps:
        before_ms, machine.off_ms = clock(), off_ms
        assert clock() - before_ms <= 1
        machine.steady += for_s
        assert (1 - SLEW) * for_s * 1000 - 2 <= clock() - before_ms <= (1 + SLEW) * for_s * 1000 + 2


def test_it_comes_back_to_the_wall_clock() -> None:
    machine = Machine()
    clock = SteadyWall(machine.wall_ms, machine.steady_s)
    machine.off_ms = HOUR_MS
    for _ in range(22 * 3600):
        machine.steady += 1
        clock()
    assert abs(clock() - machine.wall_ms()) <= 1


def request(deadline_ms: int) -> CheckpointRequested:
    return CheckpointRequested(
        job_id="j", attempt=0, epoch=0, pool="default", node_ids=("n1",), reason="drain", deadline_ms=deadline_ms, then_stop=True
    )


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_request_to_save_keeps_its_time_whatever_clock_the_agent_has(step_ms: int, tmp_path: Path) -> None:
    """A rank whose clock was an hour ahead took each request for too late, and left without saving."""
    agents_ms = NOW_MS + step_ms
    asked = in_own_time(request(NOW_MS + 30_000), NOW_MS, agents_ms)
    assert asked.deadline_ms - agents_ms == 30_000
    paths = AttemptPaths(tmp_path)
    begin_s = steady_s()
    ask_session(paths, asked, agents_ms)
    assert abs(orjson.loads(paths.request.read_bytes())["deadline_steady_s"] - begin_s - 30) < 5
    found = RequestFile(paths.request).pending()
    assert found is not None and found.then_stop
    for wall_ms in (NOW_MS, NOW_MS + step_ms, NOW_MS - step_ms):
        assert found.wants_save(wall_ms, begin_s + 29.9) and not found.wants_save(wall_ms, begin_s + 36)


def test_a_request_of_an_unknown_time_is_left_as_it_is() -> None:
    assert in_own_time(request(7), None, NOW_MS) == request(7)


@pytest.mark.parametrize("step_ms", (0, *STEPS_MS))
@pytest.mark.parametrize("own_words", [True, False])
def test_a_notice_gives_a_gang_the_time_that_there_is(step_ms: int, own_words: bool) -> None:
    """`own_words`: the agent's clock says when it goes; else a cloud says so, in true time."""
    at_ms = NOW_MS + step_ms
    deadline_ms = (at_ms if own_words else NOW_MS) + 60_000
    noticed = NodeNoticed(node_id="n", boot_id="b", incarnation="i", pool="default", source="file", deadline_ms=deadline_ms, at_ms=at_ms)
    assert 59_000 <= _left_ms(noticed, NOW_MS + 200) <= 60_000
