"""A real Trainer under a session of one process: it saves, resumes bit for bit, and its logs are metrics."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import EarlyStoppingCallback, GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

from tests.support.followed_runs import FollowedRuns, weights_of
from tests.support.waiting import until
from tests.unit.workers.session.test_session_boundary import ask
from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.workers import TrainhouseCallback
from trainhouse.workers.session import EXIT_STOPPED, Context, InvalidUseError, Session, Stopped
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import Unsaved
from trainhouse.workers.trainers.libraries import TRANSFORMERS, check


class Killed(BaseException):
    """The end of an attempt, wherever it is."""


class Kill(TrainerCallback):  # type: ignore[misc]
    """Ends the attempt within the step after `step` finished ones."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            raise Killed


UNDISPATCHED = {"accelerator_config": {"dispatch_batches": False}}


class Tokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random sentences, always the same."""

    def __init__(self, count: int) -> None:
        self._tokens = torch.randint(0, 32, (count, 8), generator=torch.Generator().manual_seed(3))

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._tokens[index], "labels": self._tokens[index]}


def trainer(
    folder: Path,
    *callbacks: TrainerCallback,
    width: int = 16,
    evaluates: bool = False,
    data: Any = None,
    kind: Any = Trainer,
    **arguments: Any,
) -> Trainer:
    set_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=width, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=1))
    wanted: dict[str, Any] = {
        "num_train_epochs": 3,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 7,
    }
    return kind(
        model=model,
        args=TrainingArguments(output_dir=str(folder / "out"), **(wanted | arguments)),
        train_dataset=data or Tokens(26),  # 7 batches an epoch, the last one short
        eval_dataset=Tokens(8) if evaluates else None,
        callbacks=list(callbacks),
    )


def ours(runs: FollowedRuns, every: int = 3) -> TrainhouseCallback:
    return TrainhouseCallback(session=runs.attempt(), save_every_steps=every)


def disturbed(runs: FollowedRuns, *steps: int, **arguments: Any) -> Trainer:
    """Attempts that end at `steps`, and a last one that does not."""
    for step in steps:
        with pytest.raises(Killed):
            trainer(runs.folder, ours(runs), Kill(step), **arguments).train()
    last = trainer(runs.folder, ours(runs), **arguments)
    last.train()
    return last


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"gradient_accumulation_steps": 2},
        {"evaluates": True, "eval_strategy": "steps", "eval_steps": 3},
        {"evaluates": True, "eval_strategy": "epoch"},
        {"max_steps": 17, "lr_scheduler_type": "cosine", "warmup_steps": 2},
        {"dataloader_num_workers": 1},
    ],
    ids=["plain", "accumulation", "evaluation", "evaluation of epochs", "by steps", "workers"],
)
def test_an_interrupted_run_ends_with_the_same_weights(whole: FollowedRuns, broken: FollowedRuns, arguments: dict[str, Any]) -> None:
    through = trainer(whole.folder, ours(whole), **arguments)
    through.train()
    again = disturbed(broken, 2, 5, 9, **arguments)
    assert again.state.global_step == through.state.global_step and again.state.epoch == through.state.epoch
    assert weights_of(again.model) == weights_of(through.model)
    assert again.lr_scheduler.state_dict() == through.lr_scheduler.state_dict()
    rest = broken.points(broken.epoch - 1)
    assert rest == [point for point in whole.points(0) if point[0] >= rest[0][0]] and rest[0][0] > 3
    assert set(whole.saved()) == set(broken.saved()) == {*range(3, through.state.global_step, 3), through.state.global_step}


class Again(torch.utils.data.IterableDataset[Any]):
    """A stream of 7 batches, in another order each time."""

    def __iter__(self) -> Any:
        tokens = Tokens(26)
        return (tokens[place] for place in torch.randperm(26).tolist())


class Weighted(Trainer):  # type: ignore[misc]
    """Draws from torch's own generator at the begin of an epoch."""

    def _get_train_sampler(self, *args: Any) -> Any:
        return torch.utils.data.WeightedRandomSampler(torch.ones(26), 26)


class Generated(Trainer):  # type: ignore[misc]
    """Draws from a generator of the sampler's own, on from the epoch before."""

    def _get_train_sampler(self, *args: Any) -> Any:
        return torch.utils.data.WeightedRandomSampler(torch.ones(26), 26, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("every", [3, 7])
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Weighted, {}),
        (Generated, {}),
        (Trainer, {"train_sampling_strategy": "group_by_length"}),
        (Trainer, {"data": Again(), "max_steps": 17, **UNDISPATCHED}),
        (Trainer, {"accelerator_config": {"use_seedable_sampler": False}}),
    ],
    ids=["weighted", "own generator", "by length", "stream", "not seedable"],
)
def test_data_go_on_in_any_order(whole: FollowedRuns, broken: FollowedRuns, kind: Any, arguments: dict[str, Any], every: int) -> None:
    through = trainer(whole.folder, ours(whole, every), kind=kind, **arguments)
    through.train()
    for step in (8, 11, 15):
        with pytest.raises(Killed):
            trainer(broken.folder, ours(broken, every), Kill(step), kind=kind, **arguments).train()
    again = trainer(broken.folder, ours(broken, every), kind=kind, **arguments)
    again.train()
    rest = broken.points(3)
    assert rest == [point for point in whole.points(0) if point[0] >= rest[0][0]] and rest[0][0] > 3
    assert weights_of(again.model) == weights_of(through.model) and again.state.epoch == through.state.epoch


def test_a_run_goes_on_at_the_begin_of_an_epoch(whole: FollowedRuns, broken: FollowedRuns) -> None:
    more = {"evaluates": True, "eval_strategy": "epoch"}
    through = trainer(whole.folder, ours(whole, 7), **more)
    through.train()
    for step in (8, 15):
        with pytest.raises(Killed):
            trainer(broken.folder, ours(broken, 7), Kill(step), **more).train()
    again = trainer(broken.folder, ours(broken, 7), **more)
    again.train()
    assert broken.points(2) == whole.points(0)[14:] and weights_of(again.model) == weights_of(through.model)


def test_it_computes_what_it_computes_without_trainhouse(whole: FollowedRuns, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.delenv("TRAINHOUSE_JOB_ID", raising=False)
    alone = trainer(whole.folder / "alone", TrainhouseCallback())
    alone.train()
    assert capfd.readouterr().err.count("TrainhouseCallback: this is no job of Trainhouse, so nothing is saved or recorded") == 1
    followed = trainer(whole.folder, ours(whole))
    followed.train()
    assert weights_of(alone.model) == weights_of(followed.model)


class HoldUp(TrainerCallback):  # type: ignore[misc]
    """Asks for a save in the first step, which the store holds up until step 15."""

    def __init__(self, runs: FollowedRuns, session: Session) -> None:
        self.runs, self.session = runs, session

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 1:
            self.runs.store.hold()
            self.session.save()
        if state.global_step == 15:
            assert self.runs.saved() == [], "14 steps since the save, and it is on its way"
            until(lambda: self.runs.store.waiting > 0)
            self.runs.store.let_go()


def test_steps_go_on_while_a_save_is_uploaded(whole: FollowedRuns, in_processes: None) -> None:
    session = whole.attempt()
    trainer(whole.folder, TrainhouseCallback(session=session), HoldUp(whole, session)).train()
    assert whole.saved() == [1, 21]


def test_a_notice_saves_and_stops_at_the_next_boundary(whole: FollowedRuns, broken: FollowedRuns) -> None:
    through = trainer(whole.folder, ours(whole))
    through.train()
    with pytest.raises(Killed):
        trainer(broken.folder, ours(broken), Kill(11)).train()
    ask(broken.folder, then_stop=True)
    with pytest.raises(Stopped) as stopped:
        trainer(broken.folder, ours(broken)).train()
    step = 10  # the first boundary after the restored step
    assert stopped.value.code == EXIT_STOPPED and broken.saved()[-1] == step
    (broken.folder / "request.json").unlink()
    again = trainer(broken.folder, ours(broken))
    again.train()
    assert weights_of(again.model) == weights_of(through.model) and broken.points(2) == whole.points(0)[step:]


def test_logs_are_metrics_once_each(whole: FollowedRuns) -> None:
    done = trainer(whole.folder, ours(whole), evaluates=True, eval_strategy="epoch")
    done.train()
    logged = [entry for entry in done.state.log_history if "loss" in entry]
    assert whole.points(0) == [(entry["step"] - 1, entry["loss"]) for entry in logged] and len(logged) == 21
    assert [step for step, _ in whole.points(0, "learning_rate")] == list(range(21))
    assert [step for step, _ in whole.points(0, "eval_loss")] == [6, 13, 20]
    assert len(whole.points(0, "train_loss")) == 1


def test_a_run_that_stopped_early_is_not_gone_on_with(whole: FollowedRuns) -> None:
    def patient() -> EarlyStoppingCallback:
        return EarlyStoppingCallback(early_stopping_patience=1, early_stopping_threshold=100.0)

    more = {"evaluates": True, "eval_strategy": "epoch", "metric_for_best_model": "eval_loss", "greater_is_better": False}
    first = trainer(whole.folder, ours(whole), patient(), **more)
    first.train()
    whole.close()
    assert first.state.global_step == 14 and whole.saved()[-1] == 14
    again = trainer(whole.folder, ours(whole), patient(), **more)
    again.train()
    assert again.state.global_step == 14 and weights_of(again.model) == weights_of(first.model)
    assert whole.points(1) == []


def test_states_of_callbacks_come_back(broken: FollowedRuns) -> None:
    more = {"evaluates": True, "eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "eval_loss", "greater_is_better": False}
    with pytest.raises(Killed):
        trainer(broken.folder, ours(broken), EarlyStoppingCallback(50, 100.0), Kill(7), **more).train()
    again = trainer(broken.folder, ours(broken), EarlyStoppingCallback(50, 100.0), Kill(6), **more)
    with pytest.raises(Killed):
        again.train()
    (patience,) = [c for c in again.callback_handler.callbacks if isinstance(c, EarlyStoppingCallback)]
    assert patience.early_stopping_patience_counter == 2 and [e["step"] for e in again.state.log_history if "eval_loss" in e] == [2, 4, 6]


def test_another_model_is_refused_with_the_parameter(whole: FollowedRuns) -> None:
    trainer(whole.folder, ours(whole), max_steps=3).train()
    with pytest.raises(InvalidStateError, match=r"transformer\.wte\.weight is \(32, 16\) there and \(32, 32\) here"):
        trainer(whole.folder, ours(whole), max_steps=3, width=32).train()


def test_what_cannot_be_followed_is_refused(whole: FollowedRuns, tmp_path: Path) -> None:
    trainer(tmp_path, save_strategy="steps", save_steps=2, max_steps=2).train()
    with pytest.raises(InvalidUseError, match=r"train\(resume_from_checkpoint=\.\.\.\): a job resumes from its own checkpoints"):
        trainer(whole.folder, ours(whole), max_steps=4).train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    with pytest.raises(InvalidUseError, match="auto_find_batch_size"):
        trainer(whole.folder, ours(whole), auto_find_batch_size=True).train()
    with pytest.raises(InvalidUseError, match="enable_jit_checkpoint"):
        trainer(whole.folder, ours(whole), enable_jit_checkpoint=True).train()
    callback = ours(whole)
    trainer(whole.folder, callback, max_steps=1).train()
    with pytest.raises(InvalidUseError, match="this process has trained before"):
        trainer(whole.folder, callback, max_steps=1).train()


def test_a_second_training_in_one_process_is_refused(whole: FollowedRuns) -> None:
    context = Context(job_id="j", spool=whole.spool(9))
    sessions = [Session(context, Gang(context), open_sink(context), Unsaved()) for _ in range(2)]
    trainer(whole.folder, TrainhouseCallback(session=sessions[0]), max_steps=1).train()
    with pytest.raises(InvalidUseError, match="this process has trained before"):
        trainer(whole.folder, TrainhouseCallback(session=sessions[1]), max_steps=1).train()
    for session in sessions:
        session.close()


class StopWithin(TrainerCallback):  # type: ignore[misc]
    """Ends training within the accumulation after the first step."""

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = state.global_step == 1


@pytest.mark.parametrize("every", [1, 1000])
def test_the_end_is_saved_where_its_boundary_has_run(whole: FollowedRuns, every: int) -> None:
    for attempt in range(2):
        done = trainer(whole.folder, ours(whole, every), StopWithin(), gradient_accumulation_steps=4)
        done.train()
        assert done.state.global_step == 1 and whole.saved()[-1:] == [1]
        assert len(whole.points(attempt, "train_loss")) == 1
        whole.close()
    assert whole.points(1) == [], "it is finished"


def test_a_stream_that_ends_early_is_saved_at_its_end(whole: FollowedRuns) -> None:
    once = iter([Tokens(26)[place] for place in range(26)])

    class Once(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return once

    done = trainer(whole.folder, ours(whole, 1000), data=Once(), max_steps=100, **UNDISPATCHED, gradient_accumulation_steps=4)
    done.train()
    assert done.state.global_step == 1 and whole.saved() == [1]


def test_logs_of_tensors_and_arrays_are_numbers(whole: FollowedRuns) -> None:
    class Logging(Trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
            loss = model(**inputs).loss
            self.log({"tensor": loss.detach(), "array": np.float32(2.5), "several": torch.ones(2), "text": "a"})
            return loss

    trainer(whole.folder, ours(whole, 1), kind=Logging, max_steps=2).train()
    assert whole.saved() == [1, 2]
    assert [value for _, value in whole.points(0, "array")] == [2.5, 2.5] and len(whole.points(0, "tensor")) == 2


def test_an_evaluation_that_raised_is_over_at_the_next_step(whole: FollowedRuns) -> None:
    session = whole.attempt()
    kinds = []

    class Failing(Trainer):  # type: ignore[misc]
        def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
            super().evaluation_loop(*args, **kwargs)
            raise RuntimeError("a metric failed")

        def evaluate(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().evaluate(*args, **kwargs)
            except RuntimeError:
                return {}

        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            kinds.append(session._progress.activity.now.kind)
            return super().training_step(*args, **kwargs)

    more = {"evaluates": True, "eval_strategy": "steps", "eval_steps": 1, "max_steps": 3}
    trainer(whole.folder, TrainhouseCallback(session=session), kind=Failing, **more).train()
    assert len(set(kinds)) == 1, kinds


def test_checkpoints_of_the_trainers_own_are_left_and_said_once(whole: FollowedRuns, capfd: Any) -> None:
    trainer(whole.folder, ours(whole), save_strategy="steps", save_steps=2, max_steps=4).train()
    assert (whole.folder / "out" / "checkpoint-4").is_dir()
    assert capfd.readouterr().err.count("Trainer writes checkpoints of its own, too (save_strategy='steps')") == 1


def test_a_best_checkpoint_that_is_gone_is_named(whole: FollowedRuns, capfd: Any) -> None:
    more: dict[str, Any] = {"evaluates": True, "eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    with pytest.raises(Killed):
        trainer(whole.folder, ours(whole), Kill(17), **more).train()
    shutil.rmtree(whole.folder / "out")
    trainer(whole.folder, ours(whole), **more).train()
    printed = capfd.readouterr().err
    assert printed.count("the best checkpoint so far, ") == 1 and "save_strategy='no'" not in printed


def test_a_loss_that_is_no_number_reaches_the_session(whole: FollowedRuns) -> None:
    session: Session = whole.attempt()
    diverging = trainer(whole.folder, TrainhouseCallback(session=session), max_steps=2)
    diverging.compute_loss_func = lambda outputs, labels, num_items_in_batch=None: outputs.logits.sum() * float("nan")
    diverging.train()
    assert len(whole.points(0)) == 2 and all(math.isnan(float(loss)) for _, loss in whole.points(0))


def test_a_version_that_is_not_known_is_refused() -> None:
    check(TRANSFORMERS, "5.17.0")
    for version in ("4.57.1", "5.13.0", "6.0.0rc1"):
        with pytest.raises(
            InvalidUseError, match=rf"transformers {version} is installed, .* pip install '/path/of/the/clone\[transformers\]'"
        ):
            check(TRANSFORMERS, version)
