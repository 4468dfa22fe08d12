"""State of a Hugging Face Trainer that is neither model, optimizer nor schedule: step, epoch, best metric, logs, callbacks.

Holds: the same on all ranks, so it serves any number of them; the generators of an epoch's order of data are rank 0's. Cheap enough for
each step: logs are encoded when there are new ones.
Never: holds times, which differ between ranks, or more than MAX_LOGS logs.
"""

import json
import os
import sys
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers.trainer_callback import ExportableState

from trainhouse.checkpointing.state import rng
from trainhouse.workers.trainers.followed_loop import number_of

MAX_LOGS = 1000
_FIELDS = ("global_step", "epoch", "num_input_tokens_seen", "total_flos", "best_metric", "best_global_step", "best_model_checkpoint")
_TIMES = ("_runtime", "_per_second")


class TrainerProgress:
    """The state of one Trainer. `finished`: training had ended when it was saved."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._logs = (0, "[]")
        self._epoch = (0, 0)
        self._order: dict[str, Any] | None = None
        self.finished = False

    def epoch_begins(self, number: int | None, loader: Any) -> None:
        """Notes the place where an epoch begins, before its loader is asked for the order of data. All ranks call it.

        `number` None: that of the next epoch.
        """
        begun = self._trainer.state.global_step
        if number is None:
            number = self._epoch[0] + 1 if begun else 0
        self._epoch = (number, begun)
        randomness = {name: state for name, state in rng.capture().items() if name != "device"} | {"cuda": []}
        order = [{"randomness": randomness, "generators": [generator.get_state() for generator in _generators(loader)]}]
        broadcast_object_list(order)  # ranks may have drawn different numbers, but the order is one for all, and so is what is saved
        self._order = order[0]

    def position(self, step: int) -> tuple[int, int]:
        """The epoch of a step and the steps within it, for data without a length."""
        number, begun = self._epoch
        return number, step - begun

    def order_as_then(self, loader: Any) -> None:
        """Puts the generators back to where the order of the restored step's epoch was drawn from them."""
        if self._order is None:
            return
        rng.restore(self._order["randomness"])
        for generator, state in zip(_generators(loader), self._order["generators"], strict=False):
            generator.set_state(state)

    def state_dict(self) -> dict[str, Any]:
        """Numbers, texts and the generators' states."""
        state = self._trainer.state
        return {
            "scope": "gang",
            "fields": json.dumps({name: getattr(state, name) for name in _FIELDS}),
            "logs": self._encoded_logs(state.log_history),
            "callbacks": json.dumps(self._callbacks()),
            "finished": self.finished,
            "epoch": list(self._epoch),
            "order": self._order,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Loads what `state_dict` gave, callbacks too."""
        state = self._trainer.state
        for name, value in json.loads(saved["fields"]).items():
            setattr(state, name, value)
        if state.best_model_checkpoint is not None and not os.path.isdir(state.best_model_checkpoint):
            if state.is_world_process_zero and self._trainer.args.load_best_model_at_end:
                print(
                    f"trainhouse: the best checkpoint so far, {state.best_model_checkpoint}, is not there any more: "
                    f"load_best_model_at_end knows those from here on; give output_dir a folder that restarts share",
                    file=sys.stderr,
                    flush=True,
                )
            state.best_model_checkpoint = None  # as Trainer does when it resumes
        state.log_history = json.loads(saved["logs"])
        state.stateful_callbacks = json.loads(saved["callbacks"])
        self._trainer._load_callback_state()
        self.finished = saved["finished"]
        number, begun = saved["epoch"]
        self._epoch, self._order = (number, begun), saved["order"]

    def _callbacks(self) -> dict[str, Any]:
        """Under the names, and in the form, of Trainer's own checkpoints."""
        states: dict[str, Any] = {}
        for callback in [*self._trainer.callback_handler.callbacks, self._trainer.control]:
            if isinstance(callback, ExportableState):
                states.setdefault(type(callback).__name__, []).append(callback.state())
        return {name: several if len(several) > 1 else several[0] for name, several in states.items()}

    def _encoded_logs(self, logs: list[dict[str, Any]]) -> str:
        if self._logs[0] != len(logs):
            plain = [
                {k: _plain(v) for k, v in entry.items() if not k.endswith(_TIMES) and _plain(v) is not None} for entry in logs[-MAX_LOGS:]
            ]
            self._logs = (len(logs), json.dumps(plain))
        return self._logs[1]


def _generators(loader: Any) -> list[torch.Generator]:
    """Generators of a loader's own, of its samplers and of their samplers, from which it draws an order."""
    found: list[torch.Generator] = []
    parts = [loader]
    seen: set[int] = set()
    while parts:
        part = parts.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(generator := getattr(part, "generator", None), torch.Generator) and not any(generator is one for one in found):
            found.append(generator)
        parts += [getattr(part, name, None) for name in ("base_dataloader", "batch_sampler", "sampler")]
    return found


def _plain(value: Any) -> Any:
    """The value as JSON has it; None if it cannot."""
    if (number := number_of(value)) is not None:
        return number
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return None
    return value
