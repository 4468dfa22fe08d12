"""A checkpoint at least every ten minutes by default, and a warning where a job asks for checkpoints but tracks nothing."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.core_world import spec as spec_of
from tests.unit.workers.agent.test_agent_parts import gang
from tests.unit.workers.session.test_session_boundary import SavedInMemory, lines, session_of
from trainhouse.checkpointing.interval import IntervalBounds, Measured, advised_interval_s
from trainhouse.events.model.ids import Epoch
from trainhouse.events.model.spec import CheckpointPolicy, JobSpec
from trainhouse.projections.rows.lines.summary import summarize
from trainhouse.scheduler.core.intake.fingerprint import differing_fields, fingerprint
from trainhouse.workers.agent.core.agent_state import LocalAttempt, Running
from trainhouse.workers.agent.launch.unsaved import UnsavedWatch
from trainhouse.workers.launcher import AttemptPaths
from trainhouse.workers.session.step_schedule import interval_s
from trainhouse.workers.session.steps.untracked import EVENT, SETUP_S

DEAR = Measured(save_cost_s=1e5)


def test_the_default_is_ten_minutes() -> None:
    assert interval_s(CheckpointPolicy(), DEAR) == 600
    assert advised_interval_s(DEAR, IntervalBounds()) == 600


def test_it_counts_for_a_policy_of_steps_too() -> None:
    assert interval_s(CheckpointPolicy(every_steps=10), Measured()) == 600
    assert interval_s(CheckpointPolicy(every_steps=10, max_interval_s=60), Measured()) == 60


def test_what_the_spec_says_goes_first() -> None:
    assert interval_s(CheckpointPolicy(every_s=3600), Measured()) == 3600
    assert interval_s(CheckpointPolicy(min_interval_s=900), Measured(save_cost_s=1e-6)) == 900
    assert interval_s(CheckpointPolicy(max_interval_s=1800), DEAR) == 1800


def test_a_job_recorded_before_keeps_its_hash_and_is_still_the_same_job() -> None:
    recorded = spec_of(
        name="j", checkpoint={"every_steps": None, "every_s": None, "min_interval_s": 30.0, "max_interval_s": 1800.0, "keep_last": 3}
    )
    assert recorded.sha256() == "a7b1d9ceee3c4a2d00921d68cb387bee00b3a8982da14a2bacad33d09fc67bda"  # pragma: allowlist secret
    assert JobSpec.model_validate_json(recorded.model_dump_json()).sha256() == recorded.sha256()
    assert recorded.checkpoint.max_interval_s == 1800
    assert fingerprint(recorded) == fingerprint(spec_of(name="j"))
    assert differing_fields(fingerprint(recorded), spec_of(name="j", checkpoint={"keep_last": 4})) == ["checkpoint"]


@pytest.mark.parametrize(
    ("policy", "asked"),
    [({}, False), ({"max_interval_s": 1800}, False), ({"every_steps": 10}, True), ({"keep_last": 9}, True), ({"max_interval_s": 60}, True)],
)
def test_whether_a_spec_asks_for_checkpoints(policy: dict[str, Any], asked: bool) -> None:
    assert CheckpointPolicy.model_validate(policy).asked is asked


def told(folder: Path) -> list[dict[str, Any]]:
    return [line[2] for line in lines(folder, "e") if line[1] == EVENT]  # type: ignore[misc]


def test_a_session_that_tracks_nothing_is_warned_about_once_at_the_first_step_due(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = session_of(tmp_path, SavedInMemory(), every_steps=3)
    for step in session.steps(9):
        assert bool(told(tmp_path)) is (step >= 3)
    (only,) = told(tmp_path)
    assert only["step"] == 3 and "session.track(" in only["reason"]
    assert capsys.readouterr().err.count("session.track(") == 1


def test_it_is_by_the_clock_too_also_without_steps(tmp_path: Path) -> None:
    session = session_of(tmp_path, SavedInMemory(), every_s=50)
    session.log(loss=1.0)
    began_s = session._boundary.untracked.began_s or 0.0
    session._pulse.look(began_s + 49.9)
    assert told(tmp_path) == []
    session._pulse.look(began_s + 50)
    session._pulse.look(began_s + 60)
    assert len(told(tmp_path)) == 1


def test_what_is_loaded_before_training_does_not_count(tmp_path: Path) -> None:
    session = session_of(tmp_path, SavedInMemory(), every_s=50)
    opened_s = session._boundary.untracked.opened_s
    session._pulse.look(opened_s + SETUP_S - 0.1)
    assert told(tmp_path) == []
    session._pulse.look(opened_s + SETUP_S)
    assert len(told(tmp_path)) == 1


def test_who_tracks_or_does_not_ask_hears_nothing(tmp_path: Path) -> None:
    tracks = session_of(tmp_path, SavedInMemory(), every_steps=1)
    tracks.track(model=torch.nn.Linear(1, 1))
    list(tracks.steps(3))
    silent = session_of(tmp_path, SavedInMemory(), min_interval_s=30, max_interval_s=600)
    list(silent.steps(3))
    for session in (tracks, silent):
        session._pulse.look(1e9)
    assert told(tmp_path) == []


class TestNoSession:
    """The agent sees ranks that never opened a session."""

    @pytest.fixture
    def attempt(self) -> LocalAttempt:
        allocation = gang().model_copy(update={"spec": spec_of(checkpoint={"every_steps": 10}), "epoch": Epoch(1)})
        placement = next(p for p in allocation.placements if p.first_rank == 0)
        return LocalAttempt(allocation, placement, Running())

    def paths(self, folder: Path, attempt: LocalAttempt, started_s: float) -> AttemptPaths:
        paths = AttemptPaths.of(folder, attempt.key.job_id, attempt.key.epoch)
        pid = paths.rank(0).pid
        pid.parent.mkdir(parents=True)
        pid.write_text(json.dumps({"pid": 1}))
        os.utime(pid, (started_s, started_s))
        return paths

    def test_the_first_due_time_brings_one_warning(self, tmp_path: Path, attempt: LocalAttempt) -> None:
        paths = self.paths(tmp_path, attempt, 1_000)
        watch = UnsavedWatch(lambda key: paths)
        due_ms = 1_000_000 + round(attempt.allocation.spec.checkpoint.longest_s * 1000)
        assert watch.look([attempt], due_ms - 1) == []
        (event,) = watch.look([attempt], due_ms)
        assert event.job_id == attempt.key.job_id and "Session" in event.reason and "session" in summarize(event).lower()
        assert watch.look([attempt], due_ms + 1) == []
        watch.look([], due_ms + 2)
        assert not watch.warned

    def test_a_program_has_a_minute_to_open_its_session(self, tmp_path: Path, attempt: LocalAttempt) -> None:
        spec = spec_of(checkpoint={"every_s": 4})
        often = LocalAttempt(attempt.allocation.model_copy(update={"spec": spec}), attempt.placement, Running())
        paths = self.paths(tmp_path, often, 1_000)
        watch = UnsavedWatch(lambda key: paths)
        assert watch.look([often], 1_059_000) == [] and len(watch.look([often], 1_060_000)) == 1

    def test_a_session_is_left_to_tell_by_itself(self, tmp_path: Path, attempt: LocalAttempt) -> None:
        paths = self.paths(tmp_path, attempt, 1_000)
        paths.rank(0).spool.parent.mkdir(parents=True, exist_ok=True)
        paths.rank(0).spool.write_text("")
        assert UnsavedWatch(lambda key: paths).look([attempt], 10**12) == []

    def test_a_job_that_asks_for_nothing_is_left_alone(self, tmp_path: Path, attempt: LocalAttempt) -> None:
        paths = self.paths(tmp_path, attempt, 1_000)
        quiet = LocalAttempt(attempt.allocation.model_copy(update={"spec": spec_of()}), attempt.placement, Running())
        assert UnsavedWatch(lambda key: paths).look([quiet], 10**12) == []
