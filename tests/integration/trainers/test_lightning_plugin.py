"""A real Lightning Trainer under a session of one process: it saves, resumes bit for bit, and what its module logs are metrics."""

from __future__ import annotations

import logging
import threading
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, EMAWeightAveraging

from tests.support.followed_runs import FollowedRuns, weights_of
from tests.support.waiting import until
from tests.unit.workers.session.test_session_boundary import ask
from trainhouse import workers
from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.events.model.parallelism import Parallelism
from trainhouse.events.model.training import Training
from trainhouse.workers import TrainhousePlugin
from trainhouse.workers.session import EXIT_STOPPED, InvalidUseError, Session, Stopped
from trainhouse.workers.trainers.followed_loop import check_layout, check_training
from trainhouse.workers.trainers.libraries import LIGHTNING, check

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Killed(BaseException):
    """The end of an attempt, wherever it is."""


class Kill(lightning.Callback):  # type: ignore[misc]
    """Ends the attempt within the batch after `batches` used ones."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def on_before_optimizer_step(self, trainer: Any, *args: Any) -> None:
        if trainer.fit_loop.epoch_loop.total_batch_idx >= self.batches:
            raise Killed


class Noisy(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Points, always the same."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(5)
        self._x = torch.randn(count, 6, generator=generator)

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._x[index], self._x[index].sum()


class Regression(lightning.LightningModule):  # type: ignore[misc]
    """Two layers with dropout; its loader's split is random, and `seen` is state of its own."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.Dropout(0.3), torch.nn.Linear(width, 1))
        self.seen = 0

    def loss(self, batch: Any) -> torch.Tensor:
        x, y = batch
        return (self.layers(x).squeeze(1) - y).square().mean()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.seen += 1
        self.log("train_loss", loss)
        self.log("mean_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.9), "interval": "step"},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["seen"] = self.seen

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.seen = checkpoint["seen"]

    def train_dataloader(self) -> Any:
        chosen, _ = torch.utils.data.random_split(Noisy(40), [26, 14])
        return torch.utils.data.DataLoader(chosen, batch_size=4, shuffle=True)  # 7 batches an epoch, the last one short


class Validated(Regression):
    """With a validation, whose loader draws from the generators as well."""

    def val_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(Noisy(8), batch_size=4)


class Manual(Regression):
    """Two optimizers, stepped by hand; no validation."""

    def __init__(self, width: int = 8) -> None:
        super().__init__(width)
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> None:
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            loss = self.loss(batch)
            self.manual_backward(loss)
            optimizer.step()
        self.log("train_loss", loss)
        self.seen += 1

    def configure_optimizers(self) -> Any:
        return [
            torch.optim.AdamW(self.layers[0].parameters(), lr=0.01),
            torch.optim.SGD(self.layers[2].parameters(), lr=0.01, momentum=0.9),
        ]


def fit(runs: FollowedRuns, *callbacks: Any, module: type[Regression] = Regression, seed: int = 3, width: int = 8, **settings: Any) -> Any:
    lightning.seed_everything(seed, verbose=False)
    model = module(width)
    plain = {"max_epochs": 3, "log_every_n_steps": 1, "logger": False, "enable_checkpointing": False, "accelerator": "cpu"}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": str(runs.folder)}
    trainer = lightning.Trainer(callbacks=list(callbacks), **(plain | quiet | settings))
    trainer.fit(model)
    return trainer


def ours(runs: FollowedRuns, every: int = 3) -> TrainhousePlugin:
    return TrainhousePlugin(session=runs.attempt(), save_every_steps=every)


def test_a_fit_goes_on_at_the_begin_of_an_epoch(whole: FollowedRuns, broken: FollowedRuns) -> None:
    through = fit(whole, ours(whole, 7), module=Validated)
    for batches in (8, 15):
        with pytest.raises(Killed):
            fit(broken, ours(broken, 7), Kill(batches), module=Validated)
    again = fit(broken, ours(broken, 7), module=Validated)
    assert broken.points(2) == whole.points(0)[14:]
    assert weights_of(again.lightning_module) == weights_of(through.lightning_module)


@pytest.mark.parametrize(
    ("module", "settings", "steps"),
    [
        (Regression, {}, 21),
        (Regression, {"accumulate_grad_batches": 2}, 12),
        (Validated, {"val_check_interval": 3}, 21),
        (Validated, {}, 21),
        (Validated, {"val_check_interval": 5, "check_val_every_n_epoch": None}, 21),
        (Manual, {}, 21),
        (Regression, {"max_epochs": -1, "max_steps": 17}, 17),
        (Regression, {"limit_train_batches": 5}, 15),
    ],
    ids=["plain", "accumulation", "validation", "validation of epochs", "validation across epochs", "by hand", "by steps", "limited"],
)
def test_an_interrupted_fit_ends_with_the_same_weights(
    whole: FollowedRuns, broken: FollowedRuns, module: type[Regression], settings: dict[str, Any], steps: int
) -> None:
    through = fit(whole, ours(whole), module=module, **settings)
    for batches, seed in ((8, 3), (11, 5), (13, 6)):  # the seed of a restart does not matter
        with pytest.raises(Killed):
            fit(broken, ours(broken), Kill(batches), module=module, seed=seed, **settings)
    again = fit(broken, ours(broken), module=module, seed=9, **settings)
    assert (again.global_step, again.current_epoch) == (through.global_step, through.current_epoch)
    assert again.fit_loop.epoch_loop._batches_that_stepped == through.fit_loop.epoch_loop._batches_that_stepped == steps
    assert weights_of(again.lightning_module) == weights_of(through.lightning_module)
    assert again.lightning_module.seen == through.lightning_module.seen
    assert set(whole.saved()) == set(broken.saved()) == {*range(3, steps, 3), steps}
    rest = broken.points(3, "train_loss")
    assert rest == [point for point in whole.points(0, "train_loss") if point[0] >= rest[0][0]] and rest[0][0] > 3
    if module is Validated:
        validated = broken.points(3, "val_loss")
        assert validated == whole.points(0, "val_loss")[-len(validated) :]


def test_it_computes_what_it_computes_without_trainhouse(whole: FollowedRuns, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.delenv("TRAINHOUSE_JOB_ID", raising=False)
    alone = fit(whole, TrainhousePlugin(), module=Validated)
    assert capfd.readouterr().err.count("TrainhousePlugin: this is no job of Trainhouse, so nothing is saved or recorded") == 1
    followed = fit(whole, ours(whole), module=Validated)
    assert weights_of(alone.lightning_module) == weights_of(followed.lightning_module)


class HoldUp(lightning.Callback):  # type: ignore[misc]
    """Asks for a save in the first step, which the store holds up until step 15."""

    def __init__(self, runs: FollowedRuns, session: Session) -> None:
        self.runs, self.session = runs, session

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        if trainer.global_step == 1:
            self.runs.store.hold()
            self.session.save()
        if trainer.global_step == 15:
            assert self.runs.saved() == [], "14 steps since the save, and it is on its way"
            until(lambda: self.runs.store.waiting > 0)
            self.runs.store.let_go()


def test_steps_go_on_while_a_save_is_uploaded(whole: FollowedRuns, in_processes: None) -> None:
    session = whole.attempt()
    fit(whole, TrainhousePlugin(session=session), HoldUp(whole, session))
    assert whole.saved() == [1, 21]


def test_a_notice_saves_and_stops_at_the_next_boundary(whole: FollowedRuns, broken: FollowedRuns) -> None:
    through = fit(whole, ours(whole), module=Validated)
    with pytest.raises(Killed):
        fit(broken, ours(broken), Kill(11), module=Validated)
    ask(broken.folder, then_stop=True)
    with pytest.raises(Stopped) as stopped:
        fit(broken, ours(broken), module=Validated)
    step = 10  # the first boundary after the restored step
    assert stopped.value.code == EXIT_STOPPED and broken.saved()[-1] == step
    (broken.folder / "request.json").unlink()
    again = fit(broken, ours(broken), module=Validated)
    assert weights_of(again.lightning_module) == weights_of(through.lightning_module)
    assert broken.points(2) == whole.points(0)[step:]


def test_what_the_module_logs_are_metrics_once_each(whole: FollowedRuns) -> None:
    fit(whole, ours(whole), module=Validated)
    assert [step for step, _ in whole.points(0, "train_loss")] == list(range(21))
    assert whole.points(0) == whole.points(0, "train_loss")
    assert [step for step, _ in whole.points(0, "val_loss")] == [6, 13, 20] == [step for step, _ in whole.points(0, "mean_loss")]


def test_a_fit_that_stopped_early_is_not_gone_on_with(whole: FollowedRuns) -> None:
    first = fit(whole, ours(whole), EarlyStopping("val_loss", min_delta=1000.0, patience=1), module=Validated)
    whole.close()
    assert first.global_step == 14 and whole.saved()[-1] == 14
    again = fit(whole, ours(whole), EarlyStopping("val_loss", min_delta=1000.0, patience=1), module=Validated)
    assert again.global_step == 14 and weights_of(again.lightning_module) == weights_of(first.lightning_module)
    assert whole.points(1, "train_loss") == []


def test_states_of_callbacks_come_back(broken: FollowedRuns) -> None:
    with pytest.raises(Killed):
        fit(broken, ours(broken), EarlyStopping("val_loss", min_delta=1000.0, patience=9), Kill(17), module=Validated)
    patience = EarlyStopping("val_loss", min_delta=1000.0, patience=9)
    with pytest.raises(Killed):
        fit(broken, ours(broken), patience, Kill(16), module=Validated)
    assert patience.wait_count == 1


def test_state_that_callbacks_add_to_checkpoints_comes_back(whole: FollowedRuns, broken: FollowedRuns) -> None:
    through = fit(whole, ours(whole), EMAWeightAveraging(decay=0.9))
    with pytest.raises(Killed):
        fit(broken, ours(broken), EMAWeightAveraging(decay=0.9), Kill(11))
    again = fit(broken, ours(broken), EMAWeightAveraging(decay=0.9))
    assert weights_of(again.lightning_module) == weights_of(through.lightning_module)


class Reading(Regression):
    """Reads Lightning's keys in its hooks."""

    def __init__(self, width: int = 8) -> None:
        super().__init__(width)
        self.save_hyperparameters()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["at"] = checkpoint["epoch"], checkpoint["global_step"]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        assert set(checkpoint["state_dict"]) == set(self.state_dict()) and checkpoint["hyper_parameters"] == {"width": 8}
        assert tuple(checkpoint["at"]) == (1, 9) == (checkpoint["epoch"], checkpoint["global_step"])


def test_hooks_of_the_module_find_lightnings_keys(broken: FollowedRuns) -> None:
    with pytest.raises(Killed):
        fit(broken, ours(broken), Kill(11), module=Reading)
    fit(broken, ours(broken), module=Reading)


def test_loss_is_that_of_training_step(whole: FollowedRuns) -> None:
    fit(whole, ours(whole), accumulate_grad_batches=4, max_epochs=1)
    logged = dict(whole.points(0, "train_loss"))
    assert [value for _, value in whole.points(0)] == pytest.approx([logged[step] for step, _ in whole.points(0)])


class LogsLoss(Manual):
    """Returns no loss, and logs it."""

    def training_step(self, batch: Any, index: int) -> None:
        super().training_step(batch, index)
        self.log("loss", 2.0)


def test_a_loss_that_only_the_module_logs_is_kept(whole: FollowedRuns) -> None:
    fit(whole, ours(whole), module=LogsLoss, max_epochs=1)
    assert [value for _, value in whole.points(0)] == [2.0] * 7


def test_paths_are_those_without_trainhouse(whole: FollowedRuns) -> None:
    trainer = fit(whole, ours(whole), max_epochs=1, enable_checkpointing=True)
    assert trainer.log_dir == str(whole.folder)
    assert [path.parent for path in whole.folder.rglob("*.ckpt")] == [whole.folder / "checkpoints"]


def test_a_fit_runs_outside_the_main_thread(whole: FollowedRuns) -> None:
    thread = threading.Thread(target=lambda: fit(whole, ours(whole), max_epochs=1))
    thread.start()
    thread.join()
    assert whole.saved()[-1] == 7


def test_another_module_is_refused_with_the_parameter(whole: FollowedRuns) -> None:
    fit(whole, ours(whole), max_epochs=1)
    with pytest.raises(InvalidStateError, match=r"layers\.0\.\w+ is \(8.*\) there and \(16.*\) here"):
        fit(whole, ours(whole), max_epochs=1, width=16)


def test_what_cannot_be_followed_is_refused(whole: FollowedRuns) -> None:
    trainer = fit(whole, ours(whole), max_epochs=1)
    trainer.save_checkpoint(whole.folder / "own.ckpt")
    plugin = ours(whole)
    with pytest.raises(InvalidUseError, match=r"fit\(ckpt_path=\.\.\.\): a job resumes from its own checkpoints"):
        lightning.Trainer(callbacks=[plugin], accelerator="cpu", logger=False, enable_progress_bar=False).fit(
            Regression(), ckpt_path=str(whole.folder / "own.ckpt")
        )
    with pytest.raises(InvalidUseError, match="reload_dataloaders_every_n_epochs"):
        fit(whole, ours(whole), reload_dataloaders_every_n_epochs=1)
    plugin = ours(whole)
    fit(whole, plugin, max_epochs=2)
    with pytest.raises(InvalidUseError, match="this process has trained before"):
        fit(whole, plugin, max_epochs=2)


def test_a_layout_that_would_train_as_replicas_is_refused() -> None:
    check_layout(Parallelism(dp=2, fsdp=2), "Trainer")
    check_layout(Parallelism(dp=2, tp=2), "Trainer", tensor_parallel=True)
    with pytest.raises(
        InvalidUseError, match=r"parallelism: tp = 2, pp = 2, but Trainer trains each rank as a replica.*by dp and fsdp alone"
    ):
        check_layout(Parallelism(tp=2, pp=2), "Trainer")
    with pytest.raises(InvalidUseError, match=r"parallelism: pp = 2, but Trainer"):
        check_layout(Parallelism(tp=2, pp=2), "Trainer", tensor_parallel=True)


def test_training_settings_that_the_trainer_would_not_carry_out_are_refused() -> None:
    check_training(Training(deterministic=True).at(2))
    for asked, name in (
        ({"precision": "bf16"}, "precision"),
        ({"accumulation": 2}, "accumulation"),
        ({"global_batch": 2, "micro_batch": 1}, "global"),
    ):
        with pytest.raises(InvalidUseError, match=f"training.{name}.*by its own settings; give it there"):
            check_training(Training.model_validate(asked).at(1))


def test_checkpoints_of_lightnings_own_are_left_and_said_once(whole: FollowedRuns, capfd: Any) -> None:
    fit(whole, ours(whole), max_epochs=1, enable_checkpointing=True)
    assert list(whole.folder.rglob("*.ckpt"))
    assert capfd.readouterr().err.count("Lightning writes checkpoints of its own, too") == 1


def test_a_version_that_is_not_known_is_refused() -> None:
    check(LIGHTNING, "2.6.6")
    for version in ("2.5.9", "1.9.5", "3.0.0"):
        with pytest.raises(
            InvalidUseError, match=rf"lightning {version} is installed, .* pip install '/path/of/the/clone\[lightning\]'"
        ) as refused:
            check(LIGHTNING, version)
        assert isinstance(refused.value, ImportError)


def test_all_names_of_workers_are_there_without_the_libraries() -> None:
    assert workers.__all__ == ["Audio", "Histogram", "Image", "Session", "Table", "Text"]
