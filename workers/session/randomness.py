"""Random state of every kind that training draws from: Python, numpy, torch, and each CUDA device in use.

Holds: `restore(capture())` makes all of them draw what they would have drawn. Every rank has its own.
"""

import random
from typing import Any

import numpy as np
import torch


def seed_all(seed: int, rank: int) -> None:
    """Seed all generators of this rank. torch gets the job's seed on every rank (so that models begin alike), the others rank by rank."""
    random.seed(f"{seed}/{rank}")
    np.random.seed((seed * 1_000_003 + rank) % 2**32)
    torch.manual_seed(seed)


def capture() -> dict[str, Any]:
    """The state of all generators, as tensors and plain values."""
    state: dict[str, Any] = {"python": random.getstate(), "numpy": np.random.get_state(legacy=False), "torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore(state: dict[str, Any]) -> None:
    """Put back what `capture` gave."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
