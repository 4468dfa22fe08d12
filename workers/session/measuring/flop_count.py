"""FLOPs of a step, counted by torch's own counter on one step of each shape of the model's input.

Holds: a shape is counted once, MAX_SHAPES of them at most. An operation whose FLOPs torch cannot count leaves the shape unknown.
Never: counts a model that is compiled (the counter would run it uncompiled), or one whose operations are on DTensors (it would count them
as if each rank computed all of them).
"""

import warnings
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

Shapes = tuple[tuple[int, ...], ...]
MAX_SHAPES = 4


class _SafeCounter(FlopCounterMode):
    """Counter that never breaks the step that it counts."""

    failed = False

    def _count_flops(self, func_packet: Any, out: Any, args: Any, kwargs: Any) -> Any:
        try:
            return super()._count_flops(func_packet, out, args, kwargs)  # type: ignore[no-untyped-call]
        except Exception:  # a formula that does not know these arguments: the operation itself is done
            self.failed = True
            return out


class FlopCount:
    """Counts of one model. All calls come from the training thread, `begin` and `end` in pairs."""

    def __init__(self) -> None:
        self._known: dict[Shapes, float | None] = {}
        self._counter: _SafeCounter | None = None
        self.possible = False

    def watch(self, model: torch.nn.Module) -> None:
        """Sets the model that is to be counted."""
        self.possible = not _is_compiled(model) and not _computes_sharded(model)

    def lacks(self, shapes: Shapes) -> bool:
        """Returns whether a step of these shapes is still to be counted."""
        return self.possible and bool(shapes) and shapes not in self._known and len(self._known) < MAX_SHAPES

    def of(self, shapes: Shapes) -> float | None:
        """Returns the FLOPs of a step of these shapes; None if they are not known."""
        return self._known.get(shapes)

    def begin(self) -> None:
        """Counts from here on."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._counter = _SafeCounter(display=False)
        self._counter.__enter__()  # type: ignore[no-untyped-call]

    def end(self) -> float | None:
        """Ends the count; the FLOPs since `begin`, or None if not all could be counted."""
        counter, self._counter = self._counter, None
        if counter is None:
            return None
        counter.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        flops = float(counter.get_total_flops())
        return None if counter.failed or flops <= 0 else flops

    def keep(self, shapes: Shapes, flops: float | None) -> None:
        """Keeps the FLOPs of a step of these shapes."""
        if shapes:
            self._known[shapes] = flops


def _is_compiled(model: torch.nn.Module) -> bool:
    return any(type(m).__name__ == "OptimizedModule" or getattr(m, "_compiled_call_impl", None) is not None for m in model.modules())


def _computes_sharded(model: torch.nn.Module) -> bool:
    """True under tensor parallelism; FSDP2 alone gathers plain tensors before it computes."""
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    sharded = [p for p in model.parameters() if isinstance(p, DTensor)]
    gathered = any(isinstance(m, FSDPModule) for m in model.modules())
    return bool(sharded) and not (gathered and all(p.device_mesh.ndim == 1 for p in sharded))
