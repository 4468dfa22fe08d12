"""Callback for Lightning: `Trainer(callbacks=[TrainhousePlugin()])`.

Of Lightning's extension points a callback is the one that sees the Trainer, on every rank, between any two steps. A CheckpointIO is given
one rank's dict, at the times of ModelCheckpoint, and may not choose when; a strategy would forbid the user's own. Metrics come through a
logger that the callback adds, so they are those, and at the steps, that other loggers get.

Holds: a boundary is the moment before a batch is used, when the batch before ended with an optimizer's step, after its validation and logs:
within an accumulation of gradients there is none. Lightning's own checkpoints stay as they are set, and nothing is resumed from them.
"""

import os
import signal
import threading
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.loggers import Logger

from trainhouse.checkpointing.state import rng
from trainhouse.workers.session.errors import InvalidUseError
from trainhouse.workers.session.session import Session
from trainhouse.workers.trainers.followed_loop import EVALUATION_LIMIT_S, FollowedLoop, LoopSettings, check_layout, follow, warn_once
from trainhouse.workers.trainers.libraries import LIGHTNING, require
from trainhouse.workers.trainers.lightning_state import LightningProgress


class TrainhousePlugin(Callback):  # type: ignore[misc]
    """Saves, resumes and records a Trainer's fit as its job's session does; outside of Trainhouse it does nothing.

    `session`: one that the program has started; else the plugin starts it, so make it on all ranks, and early.
    """

    def __init__(
        self,
        *,
        save_every_steps: int | None = None,
        evaluation_limit_s: float = EVALUATION_LIMIT_S,
        session: Session | None = None,
    ) -> None:
        require(LIGHTNING)
        settings = LoopSettings(save_every_steps, evaluation_limit_s)
        self._loop = follow("TrainhousePlugin", session, settings, seeded=lambda: "PL_GLOBAL_SEED" in os.environ)
        self._on_sigterm = signal.getsignal(signal.SIGTERM)
        self._progress: LightningProgress | None = None
        self._steps = 0
        self._optimizer_steps = 0
        self._resumed = False

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Adds the logger, before Lightning asks for loggers."""
        if self._loop is not None and not any(isinstance(logger, SessionLogger) for logger in trainer.loggers):
            trainer.loggers = [*trainer.loggers, SessionLogger(self._loop, trainer.default_root_dir)]

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Restores model, optimizers and schedules once they are as training will have them. Blocks. Raises InvalidUseError."""
        if self._loop is None:
            return
        _check(self._loop, trainer)
        _advise(self._loop, trainer)
        self._progress = LightningProgress(trainer)
        schedules = [config.scheduler for config in trainer.lr_scheduler_configs]
        precision = trainer.precision_plugin
        self._steps = self._loop.track(
            model=trainer.model,
            optimizer=list(trainer.optimizers) or None,
            schedule=schedules or None,
            scaler=precision if precision.state_dict() else None,
            loader=self._progress,
        )
        self._optimizer_steps = trainer.global_step
        self._resumed = self._loop.randomness is not None
        if self._resumed:
            trainer.should_stop = self._progress.finished
            self._progress.make_loaders_as_then()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Goes to the place within the epoch, once loaders are made."""
        if self._loop is None or self._progress is None:
            return
        # Lightning's handler would begin a collective wherever the signal finds each rank; the session's waits for a boundary.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)
        if self._loop.randomness is not None:
            self._progress.go_to_position()
            rng.restore(self._loop.randomness)
            self._loop.randomness = None

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Notes the generators' states before the epoch's order of data is made."""
        if self._progress is not None:
            self._progress.epoch_begins()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Runs the boundary before a batch is used."""
        if self._loop is None or self._progress is None:
            return
        if self._resumed:
            self._progress.correct_count()
            self._resumed = False
        self._loop.begin(_total(trainer))
        self._loop.passed(self._steps)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Counts a step if an optimizer took one in this batch, and logs its loss."""
        if self._loop is None:
            return
        stepped, self._optimizer_steps = trainer.global_step != self._optimizer_steps, trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        self._loop.logs_loss = loss is not None
        if loss is not None and pl_module.automatic_optimization:
            loss = loss * trainer.accumulate_grad_batches  # Lightning has divided it
        if stepped and loss is not None and (self._steps + 1) % max(1, trainer.log_every_n_steps) == 0:
            self._loop.session.log(loss=loss)
        self._steps += stepped

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Announces a validation, during which no steps are to be expected."""
        if self._loop is not None:
            self._loop.evaluate()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Ends the announcement of a validation."""
        if self._loop is not None:
            self._loop.evaluated()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Saves the end of training."""
        if self._loop is not None and self._progress is not None:
            self._progress.finished = True
            self._loop.end(self._steps)


class SessionLogger(Logger):  # type: ignore[misc]
    """Metrics of the module as the session's, from Lightning's rank zero; `loss` is the plugin's, where `training_step` returns one.

    Name and version are empty, so that paths that Lightning makes of them are those of a Trainer without a logger.
    """

    def __init__(self, loop: FollowedLoop, folder: str) -> None:
        super().__init__()
        self._loop = loop
        self._folder = folder

    @property
    def save_dir(self) -> str:
        """The Trainer's `default_root_dir`."""
        return self._folder

    @property
    def name(self) -> str:
        """Part of paths: none."""
        return ""

    @property
    def version(self) -> str:
        """Part of paths: none."""
        return ""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Records them at the session's step."""
        if self._loop.session.rank == 0:
            self._loop.log({name: value for name, value in metrics.items() if name != "loss" or not self._loop.logs_loss})

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the job's spec has them."""


def _total(trainer: Any) -> int | None:
    """Steps that the fit will take, as Lightning estimates them; None if it has no end."""
    estimated = trainer.estimated_stepping_batches
    return None if estimated == float("inf") or estimated < 1 else int(estimated)


def _check(loop: FollowedLoop, trainer: Any) -> None:
    """Refuses what the session cannot follow. Raises InvalidUseError."""
    if trainer.ckpt_path is not None:
        raise InvalidUseError(
            "fit(ckpt_path=...): a job resumes from its own checkpoints; leave the argument out, and begin from others by "
            "`trainhouse checkpoint import` and `trainhouse submit --from`"
        )
    if trainer.world_size != loop.session.world_size:
        raise InvalidUseError(
            f"Trainer counts {trainer.world_size} processes, the job {loop.session.world_size} ranks: devices × num_nodes is the gang, "
            f"one device for each rank of a node"
        )
    check_layout(loop.session.parallelism, "Trainer", type(trainer.strategy).__name__ == "ModelParallelStrategy")
    if type(trainer.strategy).__name__ == "DeepSpeedStrategy":
        raise InvalidUseError("Trainer(strategy='deepspeed'): DeepSpeed keeps its state to itself; use 'ddp' or ModelParallelStrategy")
    if trainer.reload_dataloaders_every_n_epochs:
        raise InvalidUseError(
            "Trainer(reload_dataloaders_every_n_epochs=...): a restart cannot find its place in a loader made in between; set 0"
        )


def _advise(loop: FollowedLoop, trainer: Any) -> None:
    if trainer.checkpoint_callbacks:
        warn_once(
            loop,
            "Lightning writes checkpoints of its own, too: training waits for them, and nothing is resumed from them; "
            "Trainer(enable_checkpointing=False) leaves saving to the job",
        )
