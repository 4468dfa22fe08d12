"""The state of every random generator of a process: python, numpy, torch, and torch's on each device.

Holds: after `restore(capture())` every one of them goes on exactly as if nothing had been between, also where the process has another
device than before.
"""

import hashlib
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def capture() -> dict[str, Any]:
    """All states, as plain values and tensors."""
    devices = {"cuda": torch.cuda.get_rng_state_all(), "device": torch.cuda.current_device()} if _uses_cuda() else {"cuda": []}
    return {
        "python": random.getstate(),
        "numpy": _numpy_values(np.random.get_state(legacy=True)),
        "torch": torch.get_rng_state(),
        **devices,
    }


def derived(seed: int, share: int, step: int) -> dict[str, Any]:
    """As `capture`, of generators that nobody has drawn from: their seed follows from the arguments alone."""
    number = int.from_bytes(hashlib.sha256(f"{seed}/{share}/{step}".encode()).digest()[:8])
    on_device = torch.Generator("cuda").manual_seed(number).get_state() if _uses_cuda() else None
    return {
        "python": random.Random(number).getstate(),  # nosec B311  # a training seed, no secret rests on it
        "numpy": _numpy_values(np.random.RandomState(number % 2**32).get_state(legacy=True)),
        "torch": torch.Generator().manual_seed(number).get_state(),
        **({"cuda": []} if on_device is None else {"cuda": [on_device], "device": 0}),
    }


def is_state(value: object) -> bool:
    """Returns whether it is what `capture` gives."""
    return isinstance(value, Mapping) and value.keys() - {"device"} == {"python", "numpy", "torch", "cuda"}


def restore(state: dict[str, Any]) -> None:
    """Sets them all. The present device goes on where the one of then was; others that are not there any more are passed over."""
    version, inner, gauss = state["python"]
    random.setstate((version, tuple(inner), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available():
        for device, device_state in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(device_state, device)
        if state["cuda"] and "device" in state:
            torch.cuda.set_rng_state(state["cuda"][state["device"]], torch.cuda.current_device())


def _numpy_values(state: Any) -> tuple[str, torch.Tensor, int, int, float]:
    """numpy's state as plain values and a tensor."""
    kind, keys, position, has_gauss, cached = state
    return (str(kind), torch.from_numpy(np.asarray(keys).astype(np.int64)), int(position), int(has_gauss), float(cached))


def _uses_cuda() -> bool:
    """Returns whether this process has begun to use devices: asking one for its state would begin it."""
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
