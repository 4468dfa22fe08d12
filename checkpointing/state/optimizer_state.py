"""Optimizers of one rank as a part of the training state, by the fully qualified names of their parameters.

Saved are the keys of torch's `get_optimizer_state_dict(..., flatten_optimizer_state_dict=True)`: `state.<parameter>.<name>` and
`param_groups.<parameter>.<setting>`; `tied.<parameter>` names the parameter under whose name the state of a tied one is. Checkpoints of
before have the optimizer's own dictionary, by number: there `param_groups` is one entry, a list, and both are read.
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
        """Flat: what torch's function gives, but that it takes no step for it."""
        flat: dict[str, Any] = {}
        for optimizer in self._optimizers:
            own, parameters = optimizer.state_dict(), _parameters(optimizer)
            for number, state in own[_STATE].items():
                flat |= {f"{_STATE}.{self._name(parameters[number])}.{key}": value for key, value in state.items()}
            for group in own[_GROUPS]:
                settings = {key: value for key, value in group.items() if key not in _OF_GROUP}
                for number in group["params"]:
                    flat |= {f"{_GROUPS}.{self._name(parameters[number])}.{key}": value for key, value in settings.items()}
            for parameter in parameters:
                flat |= {f"{_TIED}.{alias}": self._name(parameter) for alias in self._names[parameter][1:]}
        return flat

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads either form."""
        if _by_number(state):
            self._only().load_state_dict(dict(state))
            return
        saved = _Saved(state)
        for optimizer in self._optimizers:
            optimizer.load_state_dict(self._numbered(optimizer, saved))

    def targets(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """What the parameters of this rank need; moments as their parameters are sharded."""
        if _by_number(saved):
            parameters = _parameters(self._only())
            if len(parameters) < sum(len(group["params"]) for group in saved[_GROUPS]):
                raise InvalidStateError("its optimizer has more parameters than this rank's, and names them by number")
            moments = {n: {k: _like(parameters[n], v) for k, v in state.items()} for n, state in saved[_STATE].items()}
            return {**saved, _STATE: moments}
        found = _Saved(saved)
        chosen = {key: value for key, value in saved.items() if key.startswith(f"{_TIED}.")}
        for optimizer in self._optimizers:
            names = [found.name_of(self._names[parameter]) for parameter in _parameters(optimizer)]
            _groups(optimizer, names, found)
            for parameter, name in zip(_parameters(optimizer), names, strict=True):
                chosen |= {f"{_STATE}.{name}.{key}": _like(parameter, value) for key, value in found.state.get(name, {}).items()}
                chosen |= {f"{_GROUPS}.{name}.{key}": value for key, value in found.settings[name].items()}
        return chosen

    def unsynced(self) -> Collection[str]:
        """None: moments are alike where their parameters are."""
        return ()

    def _name(self, parameter: torch.Tensor) -> str:
        return self._names[parameter][0]

    def _only(self) -> torch.optim.Optimizer:
        if len(self._optimizers) != 1:
            raise InvalidStateError(f"it holds one optimizer, by parameter number, and this rank has {len(self._optimizers)}")
        return self._optimizers[0]

    def _numbered(self, optimizer: torch.optim.Optimizer, saved: "_Saved") -> dict[str, Any]:
        """The optimizer's own dictionary of what was saved."""
        names = [saved.name_of(self._names[parameter]) for parameter in _parameters(optimizer)]
        state = {number: dict(saved.state[name]) for number, name in enumerate(names) if name in saved.state}
        return {_STATE: state, _GROUPS: _groups(optimizer, names, saved)}


class _Saved:
    """Flat keys by parameter."""

    def __init__(self, flat: Mapping[str, Any]) -> None:
        self.state: dict[str, dict[str, Any]] = {}
        self.settings: dict[str, dict[str, Any]] = {}
        self._tied: dict[str, str] = {}
        states: dict[str, Any] = {}
        for flat_key, value in flat.items():
            kind, _, rest = flat_key.partition(".")
            if kind == _TIED:
                self._tied[rest] = value
            elif kind == _STATE:
                states[rest] = value
            elif kind == _GROUPS:
                name, _, key = rest.rpartition(".")
                self.settings.setdefault(name, {})[key] = value
        for rest, value in states.items():
            name = self._owner(rest)
            self.state.setdefault(name, {})[rest.removeprefix(f"{name}.")] = value

    def _owner(self, rest: str) -> str:
        """The parameter whose state has a key; every parameter has settings."""
        name = rest.rpartition(".")[0]
        while name and name not in self.settings:
            name = name.rpartition(".")[0]
        return name

    def name_of(self, names: Sequence[str]) -> str:
        """The name under which a parameter was saved. Raises InvalidStateError."""
        for name in (*names, *(self._tied[name] for name in names if name in self._tied)):
            if name in self.settings:
                return name
        raise InvalidStateError(f"its optimizer knows no parameter {names[0]}")


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _groups(optimizer: torch.optim.Optimizer, names: Sequence[str], saved: _Saved) -> list[dict[str, Any]]:
    """The optimizer's groups with the settings that were saved. Raises InvalidStateError for one group of unlike settings."""
    groups = []
    for group in optimizer.state_dict()[_GROUPS]:
        of_group = {key: group[key] for key in _OF_GROUP if key in group}
        members = [names[number] for number in group["params"]]
        for member in members[1:]:
            if not _same(saved.settings[member], saved.settings[members[0]]):
                raise InvalidStateError(f"{members[0]} and {member} are in one group of the optimizer, and were saved with other settings")
        groups.append({**group, **(saved.settings[members[0]] if members else {}), **of_group})
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
