"""What a rank tells of its life: its activity and waits, how long steps take, and the pulse that tells it whatever the program does."""

import json
import math
import threading
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.waiting import until
from tests.unit.workers.session.test_session_boundary import SavedInMemory, lines, session_of
from trainhouse.events import RankActivity
from trainhouse.workers.session import InvalidUseError
from trainhouse.workers.session.steps.activity import Activity
from trainhouse.workers.session.steps.liveness import Pulse
from trainhouse.workers.session.steps.progress import Progress
from trainhouse.workers.session.steps.steptimes import GROWTH, LEAST_MS, StepTimes
from trainhouse.workers.spool import SpoolFullError, SpoolWriter

STEPPING, WAITING, SAVING, BUSY = RankActivity.STEPPING, RankActivity.WAITING_FOR_DATA, RankActivity.SAVING, RankActivity.BUSY


@settings(max_examples=examples(100))
@given(st.lists(st.floats(LEAST_MS, 1e6), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_at_most_one_bucket_too_large(times_ms: list[float], share: float) -> None:
    found = StepTimes()
    for ms in times_ms:
        found.add(ms)
    counted = sorted(times_ms[1:] or times_ms)
    exact = counted[max(1, math.ceil(share * len(counted))) - 1]
    told = found.percentile_ms(share)
    assert told is not None and exact * (1 - 1e-9) <= told <= exact * GROWTH * (1 + 1e-9)
    assert found.longest_ms == max(times_ms) and found.count == len(times_ms) - 1


def test_the_first_step_is_the_longest_but_no_measure_for_the_others() -> None:
    times = StepTimes()
    assert times.percentile_ms(0.99) is None and times.longest_ms is None
    times.add(5_000.0)
    assert times.percentile_ms(0.99) == 5_000.0
    for _ in range(10):
        times.add(10.0)
    p99 = times.percentile_ms(0.99)
    assert p99 is not None and p99 < 10.3 and times.longest_ms == 5_000.0


def test_times_beyond_the_buckets_are_counted_in_the_last() -> None:
    times = StepTimes()
    for ms in (1.0, 0.0, 1e300):
        times.add(ms)
    assert times.percentile_ms(0.5) == LEAST_MS and times.count == 2


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.sampled_from([STEPPING, WAITING, SAVING, BUSY]), st.integers(0, 1000)), max_size=30))
def test_totals_are_those_of_a_simple_count(parts: list[tuple[RankActivity, int]]) -> None:
    activity, now, spent = Activity(), 0, dict.fromkeys(RankActivity, 0)
    for kind, seconds in parts:
        activity.begin(kind, float(now), now * 1000)
        now += seconds
        spent[kind] += seconds
        totals = activity.now.upto(float(now))
        assert (totals.data_wait_s, totals.save_stall_s, totals.busy_s) == (spent[WAITING], spent[SAVING], spent[BUSY])


def test_what_was_announced_goes_on_since_its_own_beginning() -> None:
    activity = Activity()
    activity.begin(BUSY, 1.0, 1_000, limit_s=60.0, name="evaluation")
    before = activity.begin(SAVING, 5.0, 5_000)
    assert activity.now.limit_s is None
    activity.resume(before, 6.0, 6_000)
    assert (activity.now.kind, activity.now.since_ms, activity.now.limit_s, activity.now.name) == (BUSY, 1_000, 60.0, "evaluation")
    assert activity.now.upto(7.0).busy_s == 5.0 and activity.now.upto(7.0).save_stall_s == 1.0


def test_saves_and_announced_phases_are_no_part_of_a_step() -> None:
    written: list[dict[str, object]] = []
    progress = Progress(0, lambda fields: written.append(dict(fields)))
    progress.begin(0, None, 0.0, 0)
    progress.stepped(1, 0.1, 100)
    before = progress.activity.begin(SAVING, 0.1, 100)
    progress.activity.resume(before, 9.1, 9_100)
    before = progress.activity.begin(BUSY, 9.2, 9_200, 60.0)
    progress.activity.resume(before, 19.2, 19_200)
    progress.stepped(2, 19.3, 19_300)
    progress.report(19.3, 19_300)
    assert written[-1]["longest_step_ms"] == pytest.approx(200.0) and written[-1]["step_time_p99_ms"] == pytest.approx(200.0, rel=0.02)


def test_a_session_tells_what_it_is_at(tmp_path: Path) -> None:
    session = session_of(tmp_path, SavedInMemory(), every_steps=2)
    session.track(model=torch.nn.Linear(1, 1))
    for step in session.steps(3):
        with session.data_wait():
            session._boundary.report()
        if step == 1:
            with session.busy("evaluation", limit_s=600), session.data_wait():
                pass
    session.close()
    told = [p[1] for p in lines(tmp_path, "p")]
    assert {"STEPPING", "WAITING_FOR_DATA", "SAVING", "BUSY"} <= {p["activity"] for p in told}  # type: ignore[index]
    assert told[-1]["activity"] == "DONE" and told[-1]["step"] == 3  # type: ignore[index]
    assert [p["activity_limit_s"] for p in told if p["activity"] == "BUSY"] == [600.0]  # type: ignore[index]
    with pytest.raises(InvalidUseError, match="limit_s"), session.busy("for ever", limit_s=math.inf):
        pass


def test_a_wait_shows_while_it_lasts(tmp_path: Path) -> None:
    session = session_of(tmp_path, SavedInMemory())
    for _ in session.steps(1):
        with session.data_wait():
            session._boundary.report()
            time.sleep(0.01)
            session._boundary.report()
    waited = [p[1]["data_wait_s"] for p in lines(tmp_path, "p") if p[1]["activity"] == "WAITING_FOR_DATA"]  # type: ignore[index, call-overload]
    assert waited[-1] - waited[0] >= 0.01


def test_the_pulse_beats_while_the_program_is_stuck_and_ends_with_the_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spool = SpoolWriter(tmp_path / "spool.jsonl")
    progress = Progress(0, spool.progress, spool.life)
    pulse = Pulse(progress, every_s=0.01)
    pulse.start()
    until(lambda: len(lines(tmp_path, "a")) > 3)
    progress.begin(0, None, time.monotonic(), 0)
    progress.activity.begin(BUSY, time.monotonic(), 1, limit_s=1.0, name="evaluation")
    until(lambda: len(lines(tmp_path, "p")) > 3)
    assert pulse.stop() and not [t for t in threading.enumerate() if t is pulse._beside._thread]
    assert capsys.readouterr().err == "'evaluation' was announced to take at most 1 s, and goes on\n"
    assert lines(tmp_path, "p")[-1][1]["pulse_at_ms"] > lines(tmp_path, "a")[0][1]["pulse_at_ms"]  # type: ignore[index, call-overload]


def test_a_pulse_that_runs_already_finds_the_session_whole(tmp_path: Path) -> None:
    class AtOnce(Pulse):
        """Its thread looks the moment it has what to look with."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "look":
                self.look(time.monotonic())

    spool = SpoolWriter(tmp_path / "spool.jsonl")
    pulse = AtOnce(Progress(0, spool.progress, spool.life))
    session = session_of(tmp_path, SavedInMemory(), pulse)
    assert list(session.steps(1)) == [0]


def test_a_full_spool_does_not_end_the_pulse(tmp_path: Path) -> None:
    beats: list[int] = []

    def full(fields: object) -> None:
        beats.append(1)
        raise SpoolFullError("full")

    pulse = Pulse(Progress(0, full, full), every_s=0.001)
    pulse.start()
    until(lambda: len(beats) > 3)
    assert pulse.stop()


def test_lines_of_two_threads_stay_whole_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "spool.jsonl"
    spool = SpoolWriter(path)
    pulse = Pulse(Progress(0, spool.progress, spool.life), every_s=0.0)
    pulse.start()
    for step in range(5_000):
        spool.metrics(step, step, {"loss": step / 3})
    assert pulse.stop()
    spool.progress({})
    found = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [line[1] for line in found if line[0] == "m"] == list(range(5_000))
    assert spool._size == path.stat().st_size
