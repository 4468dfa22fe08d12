"""Estimate of the bytes that one rank stages of a state, from its own tensors alone. Pure.

Holds: no less than `balance` gives a rank where all ranks that hold a plain tensor share it, and little more.
"""

from collections.abc import Iterable

import torch
from torch.distributed.tensor import DTensor, Replicate

from trainhouse.checkpointing.staging.body_layout import ALIGN_BYTES
from trainhouse.checkpointing.state.balance import MAX_PIECE_BYTES

OTHER_BYTES = 4 * 2**20
"""For what is no tensor: generators, a loader, the skeleton."""


def share_bytes(tensors: Iterable[torch.Tensor], holders: int) -> int:
    """Bytes of this rank's share. `holders`: ranks that hold the same plain tensors, which each write some of them."""
    plain = shards = count = largest = 0
    for tensor in {id(t): t for t in tensors}.values():
        count += 1
        if isinstance(tensor, DTensor):
            local, replicas = tensor.to_local(), 1
            for place, size in zip(tensor.placements, tensor.device_mesh.shape, strict=True):
                replicas *= size if isinstance(place, Replicate) else 1
            size_bytes = local.numel() * local.element_size()
            shards += -(-size_bytes // replicas)
            largest = max(largest, size_bytes if replicas > 1 else 0)
        else:
            size_bytes = tensor.numel() * tensor.element_size()
            plain += size_bytes
            largest = max(largest, min(MAX_PIECE_BYTES, size_bytes) if holders > 1 else 0)
    return -(-plain // max(1, holders)) + shards + largest + count * ALIGN_BYTES + OTHER_BYTES
