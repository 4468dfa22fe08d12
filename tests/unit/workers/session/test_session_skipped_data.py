"""A bad sample ends the attempt; the next one leaves out the steps that read it, and all later ones do, at any number of ranks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workers.session.test_session_data_reads import KeptState, history, reports
from trainhouse.events import Divergence, OnDivergence, SkippedData
from trainhouse.events.model.skipped_data import dump_skipped, load_skipped
from trainhouse.events.model.spec import CheckpointPolicy
from trainhouse.workers import Session
from trainhouse.workers.session import Context, Stopped
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.steps.divergence import LossWatch, skipped_steps

SKIP = Divergence(action=OnDivergence.SKIP_DATA)
BATCH, SAMPLES = 4, 100
NEVER = {"min_interval_s": 1000, "max_interval_s": 2000}


class OwnLoader:
    """A loader of the program's own."""

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: object) -> None:
        pass


def run(
    folder: Path, epoch: int, saver: KeptState, bad: int | None, skip: tuple[SkippedData, ...] = (), own: bool = False, **more: Any
) -> dict[int, list[int]]:
    """One attempt of 20 steps; its loss is no number where the step has sample `bad`. Returns the samples of each step."""
    folder.mkdir()
    context = Context(
        job_id="j", attempt=epoch - 1, epoch=epoch, seed=3, spool=folder / "spool.jsonl", request=folder / "request.json",
        policy=CheckpointPolicy.model_validate(NEVER), divergence=more.pop("divergence", SKIP), skip_data=skip,
    )  # fmt: skip
    session = Session(context, Gang(context), open_sink(context), saver)
    loader, validation = session.loader(range(SAMPLES), batch=BATCH, collate=list), session.loader(range(SAMPLES), batch=1, collate=list)
    session.track(model=torch.nn.Linear(1, 1), loader=OwnLoader() if own else loader)
    used = {}
    every, ahead = more.pop("log_every", 1), more.pop("ahead", 0)
    try:
        for step in session.steps(20, save_every_steps=5):
            used[step] = next(loader)
            next(validation)
            spoiled = bad is not None and any(bad in used.get(s, ()) for s in range(max(0, step - 19), step + 1 - ahead))
            if step % every == every - 1:
                session.log(loss=math.nan if spoiled else 1.0)
    except Stopped:
        pass
    finally:
        session.close()
    return used


def reported(folder: Path) -> tuple[SkippedData, ...]:
    """Data of the steps that did it, as the scheduler would hand them to the next attempt."""
    [event] = [line for line in map(json.loads, (folder / "spool.jsonl").read_text().splitlines()) if line[:2] == ["e", "LossDiverged"]]
    data = tuple(SkippedData.model_validate(each) for each in event[2]["data"])
    return load_skipped(dump_skipped(data))


def test_the_next_attempt_goes_on_past_a_bad_sample_and_a_later_one_does_too(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 1, KeptState(), None)
    bad = whole[12][1]
    saver = KeptState()
    first = run(tmp_path / "1", 1, saver, bad)
    assert max(first) == 12 and saver.restored == 10
    data = reported(tmp_path / "1")
    about = {"loader": 0, "epoch": 1, "first_step": 11, "end_step": 13, "first_position": 44, "end_position": 52}
    assert [d.model_dump() for d in data] == [about | {"reason": "the loss was nan"}], "not those of the validation's loader"
    second = run(tmp_path / "2", 2, saver, bad, data)
    assert second == {10: whole[10], **{step: whole[step + 2] for step in range(11, 18)}, **{s: second[s] for s in (18, 19)}}
    assert saver.restored == 20 and saver.state is not None and saver.state["loader"]["skipped"] == [[44, 52]]
    told = [event for event in reports(tmp_path / "2", 2) if event.loader == 0]
    assert [event.skipped for event in told if event.skipped] == [data]
    assert history(told)[10] == (40, 4) and history(told)[11] == (52, 4)
    resumed = KeptState(saver.state, 5)  # as a checkpoint from before it, by a job that knows nothing of it
    assert resumed.state is not None
    resumed.state["loader"] |= {"position": 20}
    assert run(tmp_path / "3", 3, resumed, bad) == {step: whole[step if step < 11 else step + 2] for step in range(5, 18)} | {
        s: second[s] for s in (18, 19)
    }


def test_a_job_without_a_checkpoint_begins_anew_and_leaves_them_out(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 1, KeptState(), None)
    run(tmp_path / "1", 1, KeptState(), whole[0][0])
    data = reported(tmp_path / "1")
    assert [(d.first_step, d.first_position, d.end_position) for d in data] == [(0, 0, 4)]
    assert run(tmp_path / "2", 2, KeptState(), whole[0][0], data)[0] == whole[1]


@pytest.mark.parametrize(("rule", "more", "steps"), [
    ({"skip_steps": 1}, {}, (12, 13)),
    ({"skip_steps": 5}, {}, (8, 13)),
    ({}, {"log_every": 4}, (12, 16)),
    ({}, {"ahead": 1}, (12, 14)),
])  # fmt: skip
def test_the_steps_up_to_the_bad_one_are_left_out(tmp_path: Path, rule: Any, more: Any, steps: tuple[int, int]) -> None:
    """Also all since the last loss that was logged, and the step before, whose update may have spoiled the next loss."""
    bad = run(tmp_path / "whole", 1, KeptState(), None)[12][1]
    run(tmp_path / "1", 1, KeptState(), bad, divergence=Divergence(action=OnDivergence.SKIP_DATA, **rule), **more)
    [data] = reported(tmp_path / "1")
    assert (data.first_step, data.end_step) == steps
    assert (data.first_position, data.end_position) == (steps[0] * BATCH, steps[1] * BATCH)


def test_a_loader_of_the_programs_own_cannot_leave_out_data(tmp_path: Path) -> None:
    bad = run(tmp_path / "whole", 1, KeptState(), None)[12][1]
    run(tmp_path / "1", 1, KeptState(), bad, own=True)
    assert reported(tmp_path / "1") == ()


def test_other_actions_report_no_data(tmp_path: Path) -> None:
    bad = run(tmp_path / "whole", 1, KeptState(), None)[12][1]
    run(tmp_path / "1", 1, KeptState(), bad, divergence=Divergence(action=OnDivergence.ROLLBACK))
    assert '"data"' not in (tmp_path / "1" / "spool.jsonl").read_text()


@given(st.integers(0, 50), st.integers(1, 10), st.integers(1, 10))
def test_a_watch_knows_the_steps_since_the_last_sound_loss(begin: int, sound: int, silent: int) -> None:
    watch = LossWatch()
    watch.begin(begin)
    for step in range(begin, begin + sound):
        assert watch.saw(1.0, step)
    assert not watch.saw(math.nan, begin + sound + silent - 1) and not watch.saw(math.nan, 999)
    assert watch.bad_steps == (begin + sound, begin + sound + silent - 1)
    assert skipped_steps(SKIP, *watch.bad_steps) == (min(begin + sound, max(0, begin + sound + silent - 2)), begin + sound + silent)
