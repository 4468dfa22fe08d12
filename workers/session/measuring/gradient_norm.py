"""Norm of all gradients as an optimizer gets them: after clipping, if the program clips.

Holds: measured at most every EVERY_S, and so seldom that it takes less than a 500th of the time. On a device it is copied beside the
stream and read once it is there. Unknown for several optimizers, sparse gradients, and parameters that are sharded.
Never: asks other ranks.
"""

import time
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from trainhouse.workers.session.steps.worktime import Clock

EVERY_S = 10.0
_REST = 500.0


class GradientNorm:
    """Newest norm of one optimizer's gradients."""

    def __init__(self) -> None:
        self.wanted = False
        self._due_at = 0.0
        self._copied: tuple[torch.Tensor, Any, Any] | None = None

    def measure(self, optimizer: torch.optim.Optimizer, clock: Clock) -> None:
        """Measures if it is time."""
        began = time.monotonic()
        if not self.wanted or began < self._due_at:
            return
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not gradients or any(isinstance(g, DTensor) or g.is_sparse for g in gradients):
            self._due_at = began + EVERY_S
            return
        before = clock.mark()
        if before is None:
            return
        with torch.no_grad():
            norm = torch.nn.utils.get_total_norm(gradients)
            scale = getattr(optimizer, "grad_scale", None)  # set by GradScaler where the optimizer itself unscales (fused)
            if scale is not None:
                norm = norm / scale.to(norm.device)
            kept = torch.empty((), dtype=norm.dtype, device="cpu", pin_memory=norm.is_cuda)
            kept.copy_(norm, non_blocking=True)
        self._copied = (kept, before, clock.mark())
        took_s = time.monotonic() - began
        self._due_at = began + max(EVERY_S, took_s * _REST)

    def taken(self, clock: Clock) -> float | None:
        """Takes the newest norm; None if there is none, or it is not there yet."""
        if self._copied is None:
            return None
        kept, before, after = self._copied
        if after is None or clock.between_ms(before, after) is None:
            return None
        self._copied = None
        return float(kept)
