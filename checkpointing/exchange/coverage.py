"""Whether the pieces of a tensor fill it exactly once, as torch judges it."""

from torch.distributed.checkpoint.default_planner import _validate_global_plan
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan


def misfit(name: str, tensor: TensorStorageMetadata) -> str | None:
    """Returns what is wrong with its pieces, None if they lie within it and cover it without overlap. Pure."""
    dims = len(tensor.size)
    for chunk in tensor.chunks:
        if not len(chunk.offsets) == len(chunk.sizes) == dims:
            return f"a piece {tuple(chunk.sizes)} at {tuple(chunk.offsets)} is none of a tensor of {tuple(tensor.size)}"
    if not dims and len(tensor.chunks) != 1:
        return f"a scalar cannot have {len(tensor.chunks)} pieces"
    # Of one plan alone, torch does not compare volumes.
    problems = _validate_global_plan([SavePlan([]), SavePlan([])], Metadata({name: tensor}))
    return problems[0] if problems else None
