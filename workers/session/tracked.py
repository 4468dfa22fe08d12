"""What a checkpoint holds of a training program: model, optimizer, LR schedule (alike on all ranks), loader and random state (per rank).

Holds: tensors are named by the model's own parameter names, without DDP's wrapping, so that any number of ranks can read them.
Never: talks to storage.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from trainhouse.workers.session import randomness
from trainhouse.workers.session.errors import InvalidUse


@runtime_checkable
class Stateful(Protocol):
    """Anything with a state that can be taken and put back: a loader, a schedule."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


@dataclass(frozen=True)
class Tracked:
    """The parts of a program that are saved; None: it has no such part."""

    model: torch.nn.Module | None = None
    optimizer: torch.optim.Optimizer | None = None
    schedule: Stateful | None = None
    loader: Stateful | None = None

    def __post_init__(self) -> None:
        if self.optimizer is not None and self.model is None:
            raise InvalidUse("track(optimizer=...) needs model=... too: the optimizer's state is saved under the model's parameter names")
        for name in ("schedule", "loader"):
            part = getattr(self, name)
            if part is not None and not isinstance(part, Stateful):
                raise InvalidUse(
                    f"track({name}=...): {type(part).__name__} has no state_dict/load_state_dict; add them to make it resumable"
                )

    def __bool__(self) -> bool:
        return any(part is not None for part in (self.model, self.optimizer, self.schedule, self.loader))

    def shared(self) -> dict[str, Any]:
        """What is alike on all ranks. On a fresh optimizer this makes its state; call `restore` or train before `shared`."""
        state: dict[str, Any] = {}
        if self.model is not None:
            state["model"] = get_model_state_dict(self.model)
        if self.model is not None and self.optimizer is not None:
            state["optimizer"] = get_optimizer_state_dict(self.model, self.optimizer)
        if self.schedule is not None:
            state["schedule"] = self.schedule.state_dict()
        return state

    def of_this_rank(self) -> dict[str, Any]:
        """What every rank has of its own."""
        state: dict[str, Any] = {"randomness": randomness.capture()}
        if self.loader is not None:
            state["loader"] = self.loader.state_dict()
        return state

    def put_back(self, shared: dict[str, Any], own: dict[str, Any] | None) -> None:
        """Load both; `own` is None when there is none for this rank."""
        if self.model is not None:
            set_model_state_dict(self.model, shared["model"])
        if self.model is not None and self.optimizer is not None:
            set_optimizer_state_dict(self.model, self.optimizer, shared["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(shared["schedule"])
        if own is None:
            return
        if self.loader is not None:
            self.loader.load_state_dict(own["loader"])
        randomness.restore(own["randomness"])
