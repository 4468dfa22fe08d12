"""A loss that is no loss any more: who notices, what is not saved, and what is told."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.unit.workers.session.test_session_boundary import SavedInMemory, ask, lines
from trainhouse.checkpointing.chain.commits import read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.chain.retention import RetentionPolicy
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.events import Divergence, OnDivergence
from trainhouse.events.model.spec import CheckpointPolicy
from trainhouse.workers import Session
from trainhouse.workers.session import EXIT_DIVERGED, Context, Stopped
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import CommitSaver, Saver
from trainhouse.workers.session.steps.divergence import WARM_UP, LossWatch, describe, watch_for

NEVER = {"min_interval_s": 1000, "max_interval_s": 2000}


def watched(folder: Path, saver: Saver, divergence: Divergence | None = None, **policy: object) -> Session:
    context = Context(
        job_id="j",
        spool=folder / "spool.jsonl",
        request=folder / "request.json",
        policy=CheckpointPolicy.model_validate(NEVER | policy),
        divergence=divergence or Divergence(),
    )
    session = Session(context, Gang(context), open_sink(context), saver)
    session.track(model=torch.nn.Linear(1, 1))
    return session


def train(session: Session, losses: list[Any]) -> int:
    """Logs one loss a step, and returns the exit code."""
    try:
        for step in session.steps(len(losses)):
            session.log(loss=losses[step])
    except Stopped as stopped:
        assert isinstance(stopped.code, int)
        return stopped.code
    finally:
        session.close()
    return 0


def diverged(folder: Path) -> dict[str, Any]:
    (line,) = [e for e in lines(folder, "e") if e[1] == "LossDiverged"]
    assert isinstance(line[2], dict)
    return line[2]


class TestLossWatch:
    """The pure rule."""

    @given(st.lists(st.floats(-1e3, 1e3), max_size=60), st.sampled_from([math.nan, math.inf, -math.inf]))
    def test_what_is_no_finite_number_diverges_whenever_it_comes_and_for_good(self, losses: list[float], bad: float) -> None:
        watch = LossWatch()
        assert all(watch.saw(loss) for loss in losses) and not watch.diverged
        assert not watch.saw(bad) and watch.diverged and not watch.saw(1.0)

    @given(st.lists(st.floats(0.5, 2.0), min_size=WARM_UP, max_size=100), st.floats(1.5, 100))
    def test_an_explosion_is_measured_by_the_usual_size(self, losses: list[float], factor: float) -> None:
        watch = LossWatch(factor * 4)
        assert all(watch.saw(loss) for loss in losses)
        assert watch.usual is not None and min(losses) <= watch.usual <= max(losses)
        assert watch.saw(watch.usual * factor * 3.99) is True
        watch = LossWatch(factor)
        for _ in range(WARM_UP):
            watch.saw(-1.0)
        assert not watch.saw(-factor * 1.01)

    def test_the_first_losses_may_be_anything_and_zero_is_no_size(self) -> None:
        watch = LossWatch(2.0)
        assert all(watch.saw(loss) for loss in [1e-3, 1e9, *[0.0] * WARM_UP])
        zeros = LossWatch(2.0)
        assert all(zeros.saw(0.0) for _ in range(WARM_UP)) and zeros.saw(5.0)

    def test_nobody_watches_where_the_policy_says_so(self) -> None:
        assert watch_for(None) is None and watch_for(Divergence(action=OnDivergence.IGNORE)) is None
        assert watch_for(Divergence(action=OnDivergence.ROLLBACK)) is not None

    def test_a_person_learns_what_where_and_what_follows(self) -> None:
        assert describe(3, 70, math.nan, 2.5, 12).startswith("the loss diverged: nan on rank 3 after step 70. Training stops")
        text = describe(0, 7, 1e6, 2.5, None)
        assert "1e+06 on rank 0 after step 7, where about 2.5 is usual" in text and "no checkpoint is known to be good" in text


@pytest.mark.parametrize("bad", [math.nan, math.inf, torch.tensor(math.nan)], ids=["nan", "inf", "tensor"])
def test_a_diverged_state_is_never_saved(tmp_path: Path, bad: Any, capsys: pytest.CaptureFixture[str]) -> None:
    saver = SavedInMemory()
    assert train(watched(tmp_path, saver, every_steps=1), [1.0, 1.0, 1.0, bad, 1.0]) == EXIT_DIVERGED
    assert saver.steps == [1, 2, 3]
    found = diverged(tmp_path)
    assert (found["rank"], found["step"], found["good_commit"]) == (0, 4, 2), "the state of step 3 gave that loss"
    assert found["loss"] in ("nan", "inf")
    assert found["usual_loss"] == 1.0 and "the loss diverged" in capsys.readouterr().err
    assert lines(tmp_path, "p")[-1][1]["step"] == 4  # type: ignore[index, call-overload]


def test_neither_at_the_end_nor_when_asked(tmp_path: Path) -> None:
    saver = SavedInMemory()
    assert train(watched(tmp_path, saver), [1.0, math.nan]) == EXIT_DIVERGED and saver.steps == []
    (tmp_path / "asked").mkdir()
    ask(tmp_path / "asked", then_stop=True)
    assert train(watched(tmp_path / "asked", saver), [math.nan, 1.0]) == EXIT_DIVERGED and saver.steps == []


def test_an_explosion_ends_it_too_and_a_policy_can_ignore_all(tmp_path: Path) -> None:
    saver = SavedInMemory()
    losses = [1.0] * (WARM_UP + 1) + [50.0, 1.0]
    assert train(watched(tmp_path, saver, Divergence(explode_factor=10)), losses) == EXIT_DIVERGED
    assert diverged(tmp_path)["loss"] == "50"
    assert train(watched(tmp_path, saver), losses) == 0
    ignoring = watched(tmp_path, saver, Divergence(action=OnDivergence.IGNORE), every_steps=1)
    saver.steps.clear()
    assert train(ignoring, [1.0, math.nan, math.nan]) == 0 and saver.steps == [1, 2, 3]


def test_a_program_without_a_job_or_a_loss_is_not_watched(tmp_path: Path) -> None:
    context = Context(spool=tmp_path / "spool.jsonl", divergence=None)
    session = Session(context, Gang(context), open_sink(context), SavedInMemory())
    assert train(session, [1.0, math.nan, 1.0]) == 0
    other = watched(tmp_path, SavedInMemory())
    for _ in other.steps(3):
        other.log(accuracy=math.nan)


class TestGoodCommit:
    """Over a real chain in memory: what is proved, what is kept."""

    def saver(self, store: MemoryObjectStore, epoch: int = 0, keep_last: int = 1) -> CommitSaver:
        return CommitSaver(Checkpointer(CheckpointerSettings("j", epoch, epoch, "spec"), store), RetentionPolicy(keep_last), None)

    def test_a_checkpoint_is_good_once_training_went_on_from_it_and_is_kept_until_then(self, tmp_path: Path) -> None:
        store = MemoryObjectStore()
        saver = self.saver(store)
        assert train(watched(tmp_path, saver, every_steps=2), [1.0] * 6 + [math.nan]) == EXIT_DIVERGED
        assert diverged(tmp_path)["good_commit"] == 2, "commit 3 holds the state that gave the bad loss"
        kept = [n for n in range(4) if isinstance(read_entry(store, "j", n), Manifest)]
        assert kept == [2, 3]

    def test_what_an_attempt_began_from_counts_as_good(self, tmp_path: Path) -> None:
        store = MemoryObjectStore()
        (tmp_path / "first").mkdir()
        assert train(watched(tmp_path / "first", self.saver(store), every_steps=1), [1.0, 1.0]) == 0
        (tmp_path / "second").mkdir()
        again = watched(tmp_path / "second", self.saver(store, epoch=1))
        assert train(again, [1.0, 1.0, math.nan]) == EXIT_DIVERGED
        assert diverged(tmp_path / "second")["good_commit"] == 2

    def test_none_is_good_before_the_first(self, tmp_path: Path) -> None:
        assert train(watched(tmp_path, self.saver(MemoryObjectStore())), [math.nan]) == EXIT_DIVERGED
        assert diverged(tmp_path)["good_commit"] is None
