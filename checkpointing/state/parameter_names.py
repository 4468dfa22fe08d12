"""Fully qualified names of parameters: as the model itself names them, without what DDP and torch.compile put around it."""

from collections.abc import Iterable, Sequence

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

COMPILED = "_orig_mod."


def clean_names(module: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """Returns by name within `module` the name without wrappers."""
    wrapped = [f"{path}." if path else "" for path, inner in module.named_modules() if isinstance(inner, DistributedDataParallel)]
    return {name: _clean(name, wrapped) for name in names}


def parameter_names(modules: Sequence[nn.Module]) -> dict[torch.Tensor, list[str]]:
    """Returns all names of each parameter; a tied one has several."""
    names: dict[torch.Tensor, list[str]] = {}
    for module in modules:
        found = list(module.named_parameters(remove_duplicate=False))
        clean = clean_names(module, [name for name, _ in found])
        for name, parameter in found:
            if clean[name] not in names.setdefault(parameter, []):
                names[parameter].append(clean[name])
    return names


def _clean(name: str, wrapped: Sequence[str]) -> str:
    for path in sorted(wrapped, key=len, reverse=True):
        if name.startswith(f"{path}module."):
            name = path + name.removeprefix(f"{path}module.")
    return name.replace(COMPILED, "")
