"""State of a Hugging Face Trainer that is neither model, optimizer nor schedule: step, epoch, best metric, logs, callbacks.

Holds: the same on all ranks, so it serves any number of them; where data goes on follows from the step, by the Trainer's own rule. Cheap
enough for each step: logs are encoded once.
Never: holds times, which differ between ranks, or more than MAX_LOGS logs.
"""

import json
import os
from typing import Any

from transformers.trainer_callback import ExportableState

MAX_LOGS = 1000
_FIELDS = ("global_step", "epoch", "num_input_tokens_seen", "total_flos", "best_metric", "best_global_step", "best_model_checkpoint")
_TIMES = ("_runtime", "_per_second")


class TrainerProgress:
    """The state of one Trainer. `finished`: training had ended when it was saved."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._logs = (0, "[]")
        self.finished = False

    def state_dict(self) -> dict[str, Any]:
        """Numbers and texts only."""
        state = self._trainer.state
        return {
            "scope": "gang",
            "fields": json.dumps({name: getattr(state, name) for name in _FIELDS}),
            "logs": self._encoded_logs(state.log_history),
            "callbacks": json.dumps(self._callbacks()),
            "finished": self.finished,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Loads what `state_dict` gave, callbacks too."""
        state = self._trainer.state
        for name, value in json.loads(saved["fields"]).items():
            setattr(state, name, value)
        if state.best_model_checkpoint is not None and not os.path.isdir(state.best_model_checkpoint):
            state.best_model_checkpoint = None  # as Trainer does when it resumes
        state.log_history = json.loads(saved["logs"])
        state.stateful_callbacks = json.loads(saved["callbacks"])
        self._trainer._load_callback_state()
        self.finished = saved["finished"]

    def _callbacks(self) -> dict[str, Any]:
        """Under the names, and in the form, of Trainer's own checkpoints."""
        states: dict[str, Any] = {}
        for callback in [*self._trainer.callback_handler.callbacks, self._trainer.control]:
            if isinstance(callback, ExportableState):
                states.setdefault(type(callback).__name__, []).append(callback.state())
        return {name: several if len(several) > 1 else several[0] for name, several in states.items()}

    def _encoded_logs(self, logs: list[dict[str, Any]]) -> str:
        if self._logs[0] != len(logs):
            plain = [{k: v for k, v in entry.items() if not k.endswith(_TIMES)} for entry in logs[-MAX_LOGS:]]
            self._logs = (len(logs), json.dumps(plain))
        return self._logs[1]
