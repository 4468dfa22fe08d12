"""Model of one rank, or its pipeline stages, as a part of the training state.

Holds: tensors are named as in the model itself; sharded ones (DTensor) are read as they are sharded here. Buffers that are not sharded are
the lowest rank's, as under DDP, where the others get them at the next forward pass.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.state.parameter_names import COMPILED, clean_names
from trainhouse.checkpointing.state.state_tree import some_of


class ModelState:
    """State of one or several modules; their names must differ."""

    strict = True

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._modules = modules

    def state_dict(self) -> dict[str, Any]:
        """All of them in one dictionary."""
        merged: dict[str, Any] = OrderedDict()
        for module in self._modules:
            state = module.state_dict()
            for name, clean in clean_names(module, state).items():
                if clean in merged:
                    raise InvalidStateError(
                        f"two of the modules of one rank have a tensor {clean}: name layers by their place in the model"
                    )
                merged[clean] = state[name]
        return merged

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Distributes the values over the modules."""
        values = _by_clean_name(state)
        for module in self._modules:
            module.load_state_dict({name: values[clean] for name, clean in clean_names(module, module.state_dict()).items()})

    def targets(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """New tensors, sharded as the live ones are: these change only once all that was read is known to be sound."""
        names = {_cleaned(name): name for name in saved}
        live = self.state_dict()
        missing = sorted(live.keys() - names.keys())
        if missing:
            raise InvalidStateError(f"it holds no {some_of(missing)}")
        return {names[name]: _target(name, value, saved[names[name]]) for name, value in live.items()}

    def unsynced(self) -> Collection[str]:
        """Buffers that are plain tensors."""
        found = [(module, [name for name, t in module.named_buffers() if type(t) is torch.Tensor]) for module in self._modules]
        return {clean for module, names in found for clean in clean_names(module, names).values()}


def _cleaned(name: str) -> str:
    """A name saved before names were cleaned of `torch.compile`."""
    return name.replace(COMPILED, "")


def _by_clean_name(state: Mapping[str, Any]) -> dict[str, Any]:
    return {_cleaned(name): value for name, value in state.items()}


def _target(name: str, live: Any, saved: Any) -> Any:
    if not isinstance(live, torch.Tensor) or not isinstance(saved, torch.Tensor):
        return saved
    if live.shape != saved.shape:
        raise InvalidStateError(f"{name} is {tuple(saved.shape)} there and {tuple(live.shape)} here")
    return torch.empty_like(live, dtype=saved.dtype, requires_grad=False) if isinstance(live, DTensor) else saved
