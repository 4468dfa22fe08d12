"""Callback for Hugging Face's Trainer: `Trainer(..., callbacks=[TrainhouseCallback()])`.

Trainer gives its callbacks the model, the optimizer and the schedule, but not itself, and it decides where its loop begins before it calls
the first of them. So three of its methods are wrapped, for Trainers that have this callback: what it prepared is restored in place,
finished epochs are passed over, and Trainer's own code skips the batches of the one in the middle.

Holds: a boundary is the moment before the first batch of a step is used, or before an epoch's loader begins, after evaluation and logs
of the step before. Trainer's own checkpoints stay as they are set, and nothing is resumed from them.
"""

import functools
import inspect
from typing import Any

from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import has_length

from trainhouse.checkpointing.state import rng
from trainhouse.workers.session.errors import InvalidUseError
from trainhouse.workers.session.session import Session
from trainhouse.workers.trainers.followed_loop import EVALUATION_LIMIT_S, FollowedLoop, LoopSettings, check_layout, follow, warn_once
from trainhouse.workers.trainers.libraries import ACCELERATE, TRANSFORMERS, require, way_out
from trainhouse.workers.trainers.trainer_state import TrainerProgress

_RESUMED = "the job's newest checkpoint"
_WRAPPED = {
    "_prepare_for_training": {"max_steps", "train_dataloader", "resume_from_checkpoint"},
    "_run_epoch": {
        "epoch",
        "train_dataloader",
        "num_update_steps_per_epoch",
        "resume_from_checkpoint",
        "epochs_trained",
        "steps_trained_in_current_epoch",
    },
    "_load_rng_state": {"checkpoint"},
}


class TrainhouseCallback(TrainerCallback):  # type: ignore[misc]
    """Saves, resumes and records a Trainer's run as its job's session does; outside of Trainhouse it does nothing.

    `session`: one that the program has started; else the callback starts it, so make it on all ranks, and early.
    """

    def __init__(
        self,
        *,
        save_every_steps: int | None = None,
        evaluation_limit_s: float = EVALUATION_LIMIT_S,
        session: Session | None = None,
    ) -> None:
        require(TRANSFORMERS, ACCELERATE)
        _wrap(Trainer)
        settings = LoopSettings(save_every_steps, evaluation_limit_s)
        self._loop = follow("TrainhouseCallback", session, settings, seeded=lambda: True)  # Trainer seeds, by its own `seed`
        self._progress: TrainerProgress | None = None

    def prepared(self, trainer: Any, model: Any) -> None:
        """Restores model, optimizer and schedule once they are as training will have them. Blocks. Raises InvalidUseError."""
        if self._loop is None:
            return
        _check(self._loop, trainer)
        _advise(self._loop, trainer.args)
        trainer.args.logging_nan_inf_filter = False  # it would hide a loss that diverged
        trainer.args.restore_callback_states_from_checkpoint = True  # or a restart would stop at another step than an uninterrupted run
        self._progress = TrainerProgress(trainer)
        self._loop.track(
            model=model,
            optimizer=getattr(trainer.optimizer, "optimizer", trainer.optimizer),
            schedule=trainer.lr_scheduler,
            scaler=getattr(trainer.accelerator, "scaler", None),
            loader=self._progress,
        )

    def epoch(self, trainer: Any, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Arguments with which Trainer is to run this epoch; None: nothing of it is left."""
        if self._loop is None or self._progress is None:
            return arguments
        state, loader = trainer.state, arguments["train_dataloader"]
        if self._loop.randomness is None:
            self._progress.epoch_begins(arguments["epoch"], loader)
            return arguments
        if state.global_step >= state.max_steps or self._progress.finished:
            trainer.control.should_training_stop = True
            return None
        at, within = divmod(state.global_step, arguments["num_update_steps_per_epoch"])
        if not has_length(loader):
            at, within = self._progress.position(state.global_step)
        if arguments["epoch"] < at:
            return None
        if trainer.args.ignore_data_skip:
            within = 0
        self._progress.order_as_then(loader)
        skipped = within * trainer.args.gradient_accumulation_steps
        return arguments | {"resume_from_checkpoint": _RESUMED, "epochs_trained": at, "steps_trained_in_current_epoch": skipped}

    def restore_randomness(self) -> None:
        """Restores the generators, after Trainer has skipped the batches that were used."""
        if self._loop is not None and self._loop.randomness is not None:
            rng.restore(self._loop.randomness)
            self._loop.randomness = None

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Runs a boundary before the epoch's loader begins; `epoch_begins` first, as its save is of the new epoch."""
        if self._loop is not None:
            if self._progress is not None and self._loop.randomness is None:
                self._progress.epoch_begins(None, kwargs.get("train_dataloader"))
            self._loop.passed(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Runs a boundary before the first batch of a step is used."""
        if self._loop is not None:
            self._loop.begin(state.max_steps)
            self._loop.passed(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Saves the end of training."""
        if self._loop is not None and self._progress is not None:
            self._progress.finished = True
            self._loop.end(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Records Trainer's own logs, which are alike on all ranks."""
        if self._loop is not None and self._loop.session.rank == 0:
            self._loop.log(logs or {})

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Announces an evaluation or a prediction at its first batch."""
        if self._loop is not None:
            self._loop.evaluate()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ends the announcement of an evaluation."""
        if self._loop is not None:
            self._loop.evaluated()

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
        """Ends the announcement of a prediction."""
        if self._loop is not None:
            self._loop.evaluated()


def _check(loop: FollowedLoop, trainer: Any) -> None:
    """Refuses what the session cannot follow. Raises InvalidUseError."""
    args, session = trainer.args, loop.session
    if trainer.state.global_step:
        raise InvalidUseError(
            "train(resume_from_checkpoint=...): a job resumes from its own checkpoints; leave the argument out, and begin from others by "
            "`trainhouse checkpoint import` and `trainhouse submit --from`"
        )
    config = trainer.accelerator.parallelism_config
    check_layout(session.parallelism, "Trainer", config is not None and config.tp_enabled)
    if trainer.is_deepspeed_enabled:
        raise InvalidUseError("TrainingArguments(deepspeed=...): DeepSpeed keeps its state to itself; use DDP or FSDP2 (fsdp_version 2)")
    if args.auto_find_batch_size:
        raise InvalidUseError(
            "TrainingArguments(auto_find_batch_size=True) trains anew with other batches: name a per_device_train_batch_size"
        )
    if args.enable_jit_checkpoint:
        raise InvalidUseError(
            "TrainingArguments(enable_jit_checkpoint=True) takes SIGTERM for its own checkpoints: leave it out; the job saves when stopped"
        )
    if args.n_gpu > 1:
        raise InvalidUseError(f"Trainer sees {args.n_gpu} devices in one process: submit with --gang {args.n_gpu}, a rank for each")
    if args.world_size != session.world_size:
        raise InvalidUseError(
            f"Trainer counts {args.world_size} processes, the job {session.world_size} ranks: let accelerate's settings be"
        )


def _advise(loop: FollowedLoop, args: Any) -> None:
    if args.save_strategy != "no":
        strategy = str(getattr(args.save_strategy, "value", args.save_strategy))
        warn_once(
            loop,
            f"Trainer writes checkpoints of its own, too (save_strategy={strategy!r}): training waits for them, and nothing is resumed "
            f"from them" + ("" if args.load_best_model_at_end else "; save_strategy='no' leaves saving to the job"),
        )


def _of(trainer: Any) -> TrainhouseCallback | None:
    """The callback of ours that a Trainer has."""
    return next((callback for callback in trainer.callback_handler.callbacks if isinstance(callback, TrainhouseCallback)), None)


def _wrap(trainer_class: Any) -> None:
    """Wraps the methods, once. Raises InvalidUseError if they are not what they were."""
    if hasattr(trainer_class, "_followed_by_trainhouse"):
        return
    for name, parameters in _WRAPPED.items():
        if not parameters <= set(inspect.signature(getattr(trainer_class, name, lambda: None)).parameters):
            raise InvalidUseError(
                f"transformers' {trainer_class.__name__}.{name} is not the one that TrainhouseCallback knows: {way_out(TRANSFORMERS)}"
            )
    prepare, run_epoch, load_rng_state = (getattr(trainer_class, name) for name in _WRAPPED)

    @functools.wraps(prepare)
    def prepare_for_training(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = prepare(self, *args, **kwargs)
        if (callback := _of(self)) is not None:
            callback.prepared(self, made[0])
        return made

    @functools.wraps(run_epoch)
    def run_what_is_left(self: Any, **kwargs: Any) -> None:
        callback = _of(self)
        arguments = kwargs if callback is None else callback.epoch(self, kwargs)
        if arguments is not None:
            run_epoch(self, **arguments)

    @functools.wraps(load_rng_state)
    def load_randomness(self: Any, checkpoint: Any) -> None:
        callback = _of(self)
        if checkpoint is _RESUMED and callback is not None:
            callback.restore_randomness()
        else:
            load_rng_state(self, checkpoint)

    for name, wrapper in zip(_WRAPPED, (prepare_for_training, run_what_is_left, load_randomness), strict=True):
        setattr(trainer_class, name, wrapper)
    trainer_class._followed_by_trainhouse = True
