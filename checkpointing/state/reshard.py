"""Resharding of per-rank states when a gang restarts with another number of ranks or other shares of the data. Pure.

Holds: random generators go with their share of the data, from the lowest rank that read it to all that read it now; a share that there was
not before gets ones derived from the job's seed, the share and the step, the same on every try. A state that says it speaks of the whole
gang (`"scope": "gang"`) goes to every rank as it is, and so does rank 0's of one that it alone has (`"scope": "first"`). Anything else is
refused by name: nobody but the program knows what half of a rank's state, or two of them, would mean.
Never: sees model, optimizer or schedule; `torch.distributed.checkpoint` lays those out anew.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.state import rng

SCOPE, GANG, FIRST = "scope", "gang", "first"


def check(own: Mapping[str, Any], first: Mapping[str, Any], rank: int) -> None:
    """Checks that what old rank `rank` saved for itself carries over; `first` is what old rank 0 saved. Raises InvalidStateError, naming
    it."""
    if sorted(own) != sorted(first):
        raise InvalidStateError(f"rank {rank} saved {sorted(own)} of its own and rank 0 {sorted(first)}: ranks with different parts")
    for name, value in own.items():
        if _of_gang(value):
            if not _alike(value, first[name]):
                raise InvalidStateError(
                    f"the state of {name!r} says that it speaks of the whole gang, but rank {rank} and rank 0 saved different ones"
                )
        elif not _of_first(value) and not rng.is_state(value):
            raise InvalidStateError(
                f"the state of {name!r} is each rank's own and does not carry over; let its state_dict() count for the whole gang "
                f'and say so by the entry "{SCOPE}": "{GANG}"'
            )


def carried(first: Mapping[str, Any], mine: Mapping[str, Any] | None, seed: int, share: int, step: int) -> dict[str, Any]:
    """The own state of a new rank that reads `share`: `mine` is what an old rank of this share saved, None if there was none."""
    if mine is not None:
        return {name: first[name] if _of_gang(value) or _of_first(value) else value for name, value in mine.items()}
    return {name: value if _of_gang(value) or _of_first(value) else rng.derived(seed, share, step) for name, value in first.items()}


def _of_gang(value: object) -> bool:
    return isinstance(value, Mapping) and value.get(SCOPE) == GANG


def _of_first(value: object) -> bool:
    return isinstance(value, Mapping) and value.get(SCOPE) == FIRST


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return bool(one == other)
