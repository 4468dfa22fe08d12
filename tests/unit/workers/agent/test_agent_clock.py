"""What an agent does regularly goes on whatever its clock is set to."""

import subprocess
from pathlib import Path

import orjson
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workers.agent.test_agent_life import Rank, progress
from trainhouse.events import ProgressReported
from trainhouse.events.wire.topics import CONTROL, PROGRESS
from trainhouse.workers.agent.core import AttemptKey
from trainhouse.workers.agent.launch.rank_watch import RankWatch
from trainhouse.workers.agent.periodic import due
from trainhouse.workers.agent.ship.shipper import POSITIONS, AttemptShipper
from trainhouse.workers.launcher import AttemptPaths
from trainhouse.workers.launcher.processes import write_process

TIMES = st.integers(-(10**13), 10**13)
KEY = AttemptKey("j", 0)
AHEAD_MS, BACK_MS = 9_000_000, 1_000_000


def test_what_is_regular_comes_once_in_its_time() -> None:
    assert [now for now in range(1_000, 3_000, 100) if due(2_000, now, 1_000)] == list(range(2_000, 3_000, 100))


@given(TIMES, TIMES, st.integers(1, 60_000))
def test_after_any_jump_of_the_clock_it_comes_within_its_time(done_ms: int, jumped_to_ms: int, every_ms: int) -> None:
    at_ms = done_ms + every_ms
    assert due(at_ms, jumped_to_ms, every_ms) or 0 < at_ms - jumped_to_ms <= every_ms


def test_a_rank_that_vanished_is_missed_though_the_clock_was_set_back(tmp_path: Path) -> None:
    watch, paths = RankWatch(), AttemptPaths(tmp_path)
    assert watch.gone(KEY, paths, 0, AHEAD_MS) is None
    assert watch.gone(KEY, paths, 0, BACK_MS) is None, "it may have ended just now"
    assert watch.gone(KEY, paths, 0, BACK_MS + 2_000) is not None


def test_an_attempt_is_swept_though_the_clock_was_set_back(tmp_path: Path) -> None:
    watch, paths = RankWatch(), AttemptPaths(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as keeper:
        write_process(paths.keeper, keeper.pid)
        assert not watch.swept(KEY, paths, AHEAD_MS)
        keeper.kill()
    assert watch.swept(KEY, paths, BACK_MS)


def test_progress_is_told_and_its_place_saved_though_the_clock_was_set_back(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    shipper, saved = AttemptShipper(AttemptPaths(tmp_path), {0: rank.shipper}), tmp_path / POSITIONS
    for now_ms, step, topic in ((AHEAD_MS, 8, CONTROL), (BACK_MS, 9, PROGRESS)):
        progress(rank, step=step)
        assert [e.step for e in rank.sent(topic, now_ms) if isinstance(e, ProgressReported)] == [step]
        shipper.save(now_ms)
        assert orjson.loads(saved.read_bytes())["0"]["spool"] == (tmp_path / "spool.jsonl").stat().st_size
