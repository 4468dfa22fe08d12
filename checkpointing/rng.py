"""The state of every random generator of a process: python, numpy, torch, and torch's on each device.

Holds: after `restore(capture())` every one of them goes on exactly as if nothing had been between.
"""

import random
from typing import Any

import numpy as np
import torch


def capture() -> dict[str, Any]:
    """All states, as plain values and tensors."""
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (str(kind), torch.from_numpy(np.asarray(keys).astype(np.int64)), int(position), int(has_gauss), float(cached)),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if _uses_cuda() else [],
    }


def restore(state: dict[str, Any]) -> None:
    """Sets them all. Devices that are not there any more are passed over."""
    version, inner, gauss = state["python"]
    random.setstate((version, tuple(inner), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available():
        for device, device_state in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(device_state, device)


def _uses_cuda() -> bool:
    """Whether this process has begun to use devices: asking one for its state would begin it."""
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
