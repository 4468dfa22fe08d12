"""Tracked state of a training program: model, optimizer, LR schedule and more (alike on all ranks, or sharded over them), loader and
random state (per rank).

Holds: tensors are named as in the model itself, without the name that DDP's wrapping would add, and moments by their parameters' names.
Never: talks to storage; lets an optimizer take a step.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch.distributed.fsdp import FullyShardedDataParallel

from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.state import rng
from trainhouse.checkpointing.state.model_state import ModelState
from trainhouse.checkpointing.state.optimizer_state import OptimizerState
from trainhouse.checkpointing.state.parameter_names import parameter_names
from trainhouse.workers.session.errors import InvalidUseError


@runtime_checkable
class Stateful(Protocol):
    """Anything with a state that can be taken and put back: a loader, a schedule."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any) -> Any: ...


Modules = torch.nn.Module | Sequence[torch.nn.Module]
Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer]
Statefuls = Stateful | Sequence[Stateful]
_NAMES = ("model", "optimizer", "schedule", "loader", "scaler", "ema")


@dataclass(frozen=True)
class Tracked:
    """The parts of a program that are saved; None: it has no such part."""

    model: Modules | None = None
    optimizer: Optimizers | None = None
    schedule: Statefuls | None = None
    loader: Stateful | None = None
    scaler: Stateful | None = None
    ema: Modules | None = None
    extra: Mapping[str, Stateful] = field(default_factory=dict)
    reads: Stateful | None = None
    """What the steps have read; of the session itself, and no part of the program's."""

    def __post_init__(self) -> None:
        parts = [(f"{name}=...", part) for name in _NAMES for part in _several(getattr(self, name))]
        parts += [(f"extra={{{name!r}: ...}}", part) for name, part in self.extra.items()]
        for place, part in parts:
            if not isinstance(part, Stateful):
                raise InvalidUseError(
                    f"track({place}): {type(part).__name__} has no state_dict/load_state_dict; add them to make it resumable"
                )
            if isinstance(part, torch.nn.Module) and any(isinstance(m, FullyShardedDataParallel) for m in part.modules()):
                raise InvalidUseError(
                    f"track({place}): FullyShardedDataParallel cannot be saved by shards; use torch's fully_shard (FSDP2)"
                )

    def __bool__(self) -> bool:
        return bool(self.extra) or any(getattr(self, name) is not None for name in _NAMES)

    @property
    def models(self) -> tuple[torch.nn.Module, ...]:
        """The modules of `model`: one, or this rank's pipeline stages."""
        return _several(self.model)

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """The optimizers, in their order."""
        return _several(self.optimizer)

    def tensors(self) -> list[torch.Tensor]:
        """Tensors of models, averages and optimizers, as they are now; not those of other Statefuls, which a save alone asks for."""
        modules = (*self.models, *_several(self.ema))
        moments = [value for o in self.optimizers for of_one in o.state.values() for value in of_one.values()]
        return [t for m in modules for t in (*m.parameters(), *m.buffers())] + [t for t in moments if isinstance(t, torch.Tensor)]

    def shared(self) -> dict[str, Any]:
        """Returns the state that is alike on all ranks (or sharded over them), as objects that give and take their state."""
        parts = {
            "model": None if self.model is None else ModelState(self.models),
            "optimizer": None if self.optimizer is None else self._optimizer_state(),
            "ema": None if self.ema is None else ModelState(_several(self.ema)),
        }
        extra = {f"extra.{name}": _module_state(part) for name, part in self.extra.items()}
        return {name: part for name, part in parts.items() if part is not None} | self.counters() | extra

    def counters(self) -> dict[str, Stateful]:
        """Returns the shared parts that are a few numbers, which a program may advance at any time within a step."""
        parts = {"schedule": Schedules(_several(self.schedule)) if self.schedule is not None else None, "scaler": self.scaler}
        return {name: part for name, part in parts.items() if part is not None}

    def of_this_rank(self) -> dict[str, Any]:
        """Returns the state that each rank has of its own, as values."""
        state: dict[str, Any] = {"randomness": rng.capture()}
        if self.loader is not None:
            state["loader"] = self.loader.state_dict()
        if self.reads is not None:
            state["data_reads"] = self.reads.state_dict()
        return state

    def put_back_own(self, state: dict[str, Any]) -> None:
        """Load what `of_this_rank` gave. Of an imported checkpoint nothing: loader and generators begin as seeded."""
        if not state:
            return
        if self.loader is not None:
            self.loader.load_state_dict(state["loader"])
        if self.reads is not None and "data_reads" in state:
            self.reads.load_state_dict(state["data_reads"])
        rng.restore(state["randomness"])

    def _optimizer_state(self) -> Stateful:
        """By parameter names; by number, as the optimizer itself, where the model does not name all of its parameters."""
        names = parameter_names(self.models)
        known = all(isinstance(o, torch.optim.Optimizer) and _names_all(o, names) for o in self.optimizers)
        if not known and len(self.optimizers) > 1:
            raise InvalidUseError("track(optimizer=[...]): a parameter of theirs is none of the tracked model's, so it has no name")
        return OptimizerState(self.optimizers, names) if known else self.optimizers[0]


class Schedules:
    """LR schedules: one as itself, several by their place. Restored into another number of them where all are alike, as with one
    optimizer for each pipeline stage."""

    def __init__(self, schedules: Sequence[Stateful]) -> None:
        self._schedules = schedules

    def state_dict(self) -> dict[str, Any]:
        """The state of the only one, or all by place."""
        states = [schedule.state_dict() for schedule in self._schedules]
        return dict(states[0]) if len(states) == 1 else {str(place): state for place, state in enumerate(states)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads either form. Raises InvalidStateError."""
        places = [str(place) for place in range(len(state))]
        saved = [state[place] for place in places] if set(state) == set(places) else [state]
        if len(saved) != len(self._schedules):
            if any(other != saved[0] for other in saved):
                raise InvalidStateError(f"it holds {len(saved)} schedules that differ, and this rank has {len(self._schedules)}")
            saved = saved[:1] * len(self._schedules)
        for schedule, of_it in zip(self._schedules, saved, strict=True):
            schedule.load_state_dict(copy.deepcopy(of_it))


def _several(part: Any) -> tuple[Any, ...]:
    """The parts of a list of parts, or the only one. A module that is a sequence of layers is one."""
    if part is None:
        return ()
    return tuple(part) if isinstance(part, list | tuple) else (part,)


def _module_state(part: Stateful) -> Any:
    return ModelState((part,)) if isinstance(part, torch.nn.Module) else part


def _names_all(optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, list[str]]) -> bool:
    return all(parameter in names for group in optimizer.param_groups for parameter in group["params"])
