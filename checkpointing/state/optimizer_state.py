"""Optimizers of one rank as a part of the training state, by the fully qualified names of their parameters.

Saved are `state`, `param_groups` and `tied`, each by parameter: joined by dots, the keys are those of torch's `get_optimizer_state_dict`
with `flatten_optimizer_state_dict=True`; `tied` names the parameter under whose name the state of a tied one is. Checkpoints of before
have the optimizer's own dictionary, by number: there `param_groups` is a list, and both are read.
Holds: no optimizer takes a step, so that neither a scaler, a schedule nor a hook moves; torch's own functions take one to make moments.
A fresh optimizer gets moments that are sharded as its parameters are. A group without parameters keeps its settings.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate

from trainhouse.checkpointing.errors import InvalidStateError

_STATE, _GROUPS, _TIED = "state", "param_groups", "tied"
# Settings of a group that name its parameters: those of the live optimizer stay.
_OF_GROUP = ("params", "param_names")


class OptimizerState:
    """State of one or several optimizers. `names`: all names of each parameter of theirs."""

    strict = False

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], names: Mapping[torch.Tensor, Sequence[str]]) -> None:
        self._optimizers = optimizers
        self._names = names

    def state_dict(self) -> dict[str, Any]:
        """By parameter; no step is taken for it. Parameters of one group share one dictionary of settings."""
        saved: dict[str, dict[str, Any]] = {_STATE: {}, _GROUPS: {}, _TIED: {}}
        for optimizer in self._optimizers:
            own = optimizer.state_dict()
            names = [self._names[parameter] for parameter in _parameters(optimizer)]
            saved[_STATE] |= {names[number][0]: state for number, state in own[_STATE].items()}
            for group in own[_GROUPS]:
                settings = {key: value for key, value in group.items() if key not in _OF_GROUP}
                saved[_GROUPS] |= {names[number][0]: settings for number in group["params"]}
            saved[_TIED] |= {alias: first for first, *aliases in names for alias in aliases}
        return saved

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads either form."""
        if _by_number(state):
            self._only().load_state_dict(dict(state))
            return
        for optimizer in self._optimizers:
            names = self._saved_names(optimizer, state)
            moments = {number: dict(state[_STATE][name]) for number, name in enumerate(names) if name in state[_STATE]}
            optimizer.load_state_dict({_STATE: moments, _GROUPS: _groups(optimizer, names, state[_GROUPS])})

    def targets(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """Chooses the state of this rank's parameters; moments are sharded as these."""
        if _by_number(saved):
            parameters = _parameters(self._only())
            if len(parameters) < sum(len(group["params"]) for group in saved[_GROUPS]):
                raise InvalidStateError("its optimizer has more parameters than this rank's, and names them by number")
            moments = {n: {k: _like(parameters[n], v) for k, v in state.items()} for n, state in saved[_STATE].items()}
            return {**saved, _STATE: moments}
        chosen: dict[str, Any] = {_STATE: {}, _GROUPS: {}, _TIED: saved[_TIED]}
        for optimizer in self._optimizers:
            names = self._saved_names(optimizer, saved)
            _groups(optimizer, names, saved[_GROUPS])
            chosen[_GROUPS] |= {name: saved[_GROUPS][name] for name in names}
            for parameter, name in zip(_parameters(optimizer), names, strict=True):
                if name in saved[_STATE]:
                    chosen[_STATE][name] = {key: _like(parameter, value) for key, value in saved[_STATE][name].items()}
        return chosen

    def unsynced(self) -> Collection[str]:
        """None: moments are alike where their parameters are."""
        return ()

    def _saved_names(self, optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> list[str]:
        """Names under which its parameters were saved, in their order. Raises InvalidStateError."""
        found = []
        for parameter in _parameters(optimizer):
            names = self._names[parameter]
            either = (*names, *(saved[_TIED][name] for name in names if name in saved[_TIED]))
            known = next((name for name in either if name in saved[_GROUPS]), None)
            if known is None:
                raise InvalidStateError(f"its optimizer knows no parameter {names[0]}")
            found.append(known)
        return found

    def _only(self) -> torch.optim.Optimizer:
        if len(self._optimizers) != 1:
            raise InvalidStateError(f"it holds one optimizer, by parameter number, and this rank has {len(self._optimizers)}")
        return self._optimizers[0]


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _groups(optimizer: torch.optim.Optimizer, names: Sequence[str], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The optimizer's groups with the settings that were saved. Raises InvalidStateError for one group of unlike settings."""
    groups = []
    for group in optimizer.state_dict()[_GROUPS]:
        of_group = {key: group[key] for key in _OF_GROUP if key in group}
        first, *others = [names[number] for number in group["params"]] or [None]
        for other in others:
            if not _same(settings[other], settings[first]):
                raise InvalidStateError(f"{first} and {other} are in one group of the optimizer, and were saved with other settings")
        groups.append({**group, **(settings[first] if first is not None else {}), **of_group})
    return groups


def _by_number(state: Mapping[str, Any]) -> bool:
    return isinstance(state.get(_GROUPS), list)


def _like(parameter: torch.Tensor, saved: Any) -> Any:
    """A target for one value of a parameter's state: sharded as the parameter, whole on each rank if it has another shape."""
    if not isinstance(saved, torch.Tensor) or not isinstance(parameter, DTensor) or saved.dim() == 0:
        return saved
    if saved.shape == parameter.shape:
        return torch.zeros_like(parameter, dtype=saved.dtype, requires_grad=False)
    whole = torch.zeros(saved.shape, dtype=saved.dtype, device=parameter.device)
    return DTensor.from_local(whole, parameter.device_mesh, [Replicate()] * parameter.device_mesh.ndim, run_check=False)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())


def _equal(one: Any, other: Any) -> bool:
    """Equal values; tensors without memory are taken for equal."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.is_meta or other.is_meta or torch.equal(one, other)
    return bool(one == other)
