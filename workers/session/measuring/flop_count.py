"""FLOPs of a step, counted by torch's own counter on one step of each shape of the model's input, by precision of the products.

Holds: a shape is counted once, MAX_SHAPES of them at most. A step with an operation that torch has no formula for (cuDNN's RNNs, custom and
Triton operations) leaves its shape unknown; products of a matrix and a vector count as nothing. What activation checkpoints compute again
counts; forward passes of a model in evaluation mode do not.
Never: counts a model that is compiled (the counter would run it uncompiled), or one whose operations are on DTensors (it would count them
as if each rank computed all of them). A compiled function within the step cannot be seen here, so programs ask for the count.
"""

import re
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from trainhouse.workers.session.measuring.device_peaks import Precision
from trainhouse.workers.session.steps.worktime import inside_of

Shapes = tuple[tuple[int, ...], ...]
ByPrecision = Mapping[Precision | None, float]
MAX_SHAPES = 4
MAX_MISSES = 2
"""Of counts for one shape that met a step of another."""
MAX_DISTURBED = 8
_UNCOUNTED = re.compile(r"_rnn|mm($|_)|attention|convolution|mkldnn_linear|^_trilinear$|^_cdist_")
_FREE_NAMESPACES = frozenset({"aten", "prim", "prims", "c10d", "_c10d_functional", "c10d_functional", "fsdp", "profiler"})


class _SafeCounter(FlopCounterMode):
    """Counter that never breaks the step that it counts."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(display=False, skip_unsupported=True)  # otherwise a Triton kernel is counted and does not run
        self.failed = False
        self.by_precision: Counter[Precision | None] = Counter()
        self._model = model

    def _count_flops(self, func_packet: Any, out: Any, args: Any, kwargs: Any) -> Any:
        if not self._model.training:
            return out
        try:
            if func_packet not in self.flop_registry:
                self.failed = self.failed or _is_uncounted(func_packet)
                return out
            counts = self.flop_counts["Global"]
            before = counts[func_packet]
            super()._count_flops(func_packet, out, args, kwargs)  # type: ignore[no-untyped-call]
            self.by_precision[_precision(func_packet, args)] += counts[func_packet] - before
        except Exception:  # a formula that does not know these arguments: the operation itself is done
            self.failed = True
        return out


class FlopCount:
    """Counts of one model. All calls come from the training thread, `begin` and `end` in pairs."""

    def __init__(self) -> None:
        self._known: dict[Shapes, ByPrecision | None] = {}
        self._misses: Counter[Shapes] = Counter()
        self._disturbed = 0
        self._counter: _SafeCounter | None = None
        self._model: torch.nn.Module | None = None

    def watch(self, model: torch.nn.Module) -> None:
        """Sets the model that is to be counted."""
        self._model = None if _is_compiled(model) or _computes_sharded(model) else inside_of(model)

    @property
    def counting(self) -> bool:
        """Whether a count is under way."""
        return self._counter is not None

    def lacks(self, shapes: Shapes) -> bool:
        """Returns whether a step of these shapes is still to be counted."""
        if self._model is None or not shapes or self._disturbed >= MAX_DISTURBED:
            return False
        return shapes not in self._known and len(self._known) < MAX_SHAPES and self._misses[shapes] < MAX_MISSES

    def of(self, shapes: Shapes) -> ByPrecision | None:
        """Returns the FLOPs of a step of these shapes; None if they are not known."""
        return self._known.get(shapes)

    def begin(self) -> None:
        """Counts from here on."""
        if self._model is None:
            raise ValueError("there is no model to count")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            counter = _SafeCounter(self._model)
        counter.__enter__()  # type: ignore[no-untyped-call]
        self._counter = counter

    def end(self) -> ByPrecision | None:
        """Ends the count; the FLOPs since `begin`, or None if not all could be counted."""
        counter, self._counter = self._counter, None
        if counter is None:
            return None
        counter.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        unknown = counter.failed or bool(counter.get_unsupported_ops())
        flops = sum(counter.by_precision.values())
        return None if unknown or flops <= 0 or flops != counter.get_total_flops() else dict(counter.by_precision)

    def keep(self, shapes: Shapes, flops: ByPrecision | None) -> None:
        """Keeps the FLOPs of a step of these shapes."""
        if shapes:
            self._known[shapes] = flops

    def missed(self, shapes: Shapes) -> None:
        """The step that was counted for these shapes had others; after MAX_MISSES they stay unknown."""
        self._misses[shapes] += 1

    def disturbed(self) -> None:
        """The step that was counted did more than a step; after MAX_DISTURBED of them no other is counted."""
        self._disturbed += 1


def _is_uncounted(operation: Any) -> bool:
    """True for an operation without a formula whose FLOPs are no trifle, or may be none."""
    namespace, _, name = str(getattr(operation, "_qualified_op_name", "")).partition("::")
    return namespace not in _FREE_NAMESPACES or (namespace == "aten" and _UNCOUNTED.search(name) is not None)


def _precision(operation: Any, args: Any) -> Precision | None:
    """Precision in which a device computes this product: that of its input, or as torch is set for fp32."""
    dtype = next((x.dtype for x in args if isinstance(x, torch.Tensor) and x.is_floating_point()), None)
    if dtype is torch.float32:
        convolves = "convolution" in str(operation)
        backend = torch.backends.cudnn.conv if convolves else torch.backends.cuda.matmul  # type: ignore[attr-defined]
        return "tf32" if backend.fp32_precision == "tf32" else "fp32"
    named: dict[torch.dtype | None, Precision] = {torch.bfloat16: "bf16", torch.float16: "fp16"}
    return named.get(dtype)


def _is_compiled(model: torch.nn.Module) -> bool:
    return any(type(m).__name__ == "OptimizedModule" or getattr(m, "_compiled_call_impl", None) is not None for m in model.modules())


def _computes_sharded(model: torch.nn.Module) -> bool:
    """True under tensor parallelism; FSDP2 alone gathers plain tensors before it computes."""
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    meshes = [p.device_mesh for p in model.parameters() if isinstance(p, DTensor)]
    gathered = any(isinstance(m, FSDPModule) for m in model.modules())
    names = {name for mesh in meshes for name in (mesh.mesh_dim_names or (("tp",) if mesh.ndim > 1 else ()))}
    return bool(meshes) and not (gathered and "tp" not in names)
