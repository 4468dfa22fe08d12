"""Tracked state of a training program: model, optimizer, LR schedule (alike on all ranks), loader and random state (per rank).

Holds: tensors are named as in the model itself, without the name that DDP's wrapping would add.
Never: talks to storage.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch.nn.parallel import DistributedDataParallel

from trainhouse.checkpointing.state import rng
from trainhouse.workers.session.errors import InvalidUseError


@runtime_checkable
class Stateful(Protocol):
    """Anything with a state that can be taken and put back: a loader, a schedule."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any) -> Any: ...


@dataclass(frozen=True)
class Tracked:
    """The parts of a program that are saved; None: it has no such part."""

    model: torch.nn.Module | None = None
    optimizer: torch.optim.Optimizer | None = None
    schedule: Stateful | None = None
    loader: Stateful | None = None

    def __post_init__(self) -> None:
        for name in ("model", "optimizer", "schedule", "loader"):
            part = getattr(self, name)
            if part is not None and not isinstance(part, Stateful):
                raise InvalidUseError(
                    f"track({name}=...): {type(part).__name__} has no state_dict/load_state_dict; add them to make it resumable"
                )

    def __bool__(self) -> bool:
        return any(part is not None for part in (self.model, self.optimizer, self.schedule, self.loader))

    def shared(self) -> dict[str, Any]:
        """Returns the state that is alike on all ranks (or sharded over them), as objects that give and take their state."""
        model = self.model.module if isinstance(self.model, DistributedDataParallel) else self.model
        parts = {"model": model, "optimizer": self.optimizer, "schedule": self.schedule}
        return {name: part for name, part in parts.items() if part is not None}

    def of_this_rank(self) -> dict[str, Any]:
        """Returns the state that each rank has of its own, as values."""
        state: dict[str, Any] = {"randomness": rng.capture()}
        if self.loader is not None:
            state["loader"] = self.loader.state_dict()
        return state

    def put_back_own(self, state: dict[str, Any]) -> None:
        """Load what `of_this_rank` gave."""
        if self.loader is not None:
            self.loader.load_state_dict(state["loader"])
        rng.restore(state["randomness"])
