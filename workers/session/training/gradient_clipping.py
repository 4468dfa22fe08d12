"""Norm of all gradients over any mesh, and their clipping by it.

Holds: a gradient that several ranks hold alike counts once. One sum over ranks for each dimension of a mesh over which gradients are
sharded, and one over pipeline stages, however many gradients there are. All ranks get the same norm, which is not finite
if any of them has such a gradient.
Never: waits for a device.
"""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

Groups = dict[tuple[DeviceMesh | None, tuple[int, ...]], list[Tensor]]


def parameters_of(optimizers: Iterable[torch.optim.Optimizer]) -> list[Tensor]:
    """Parameters that have a gradient, in the optimizers' order."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    return [parameter for group in groups for parameter in group["params"] if parameter.grad is not None]


def global_norm(parameters: Sequence[Tensor], device: torch.device, stages: dist.ProcessGroup | None) -> Tensor:
    """2-norm of the gradients; `stages`: the ranks of a pipeline. Collective over all ranks that hold a part; does not wait."""
    square = torch.zeros((), device=device)
    for (mesh, sharded), gradients in _by_place(parameters).items():
        of_place = nn.utils.get_total_norm(gradients).to(square) ** 2
        for dimension in sharded:
            assert mesh is not None
            dist.all_reduce(of_place, group=mesh.get_group(dimension))
        square = square + of_place
    if stages is not None:
        dist.all_reduce(square, group=stages)
    return square.sqrt()


def scale(parameters: Sequence[Tensor], factor: Tensor) -> None:
    """Multiplies all gradients."""
    gradients = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in parameters if p.grad is not None]
    if gradients:
        torch._foreach_mul_(gradients, factor)


def _by_place(parameters: Sequence[Tensor]) -> Groups:
    """Local gradients by their mesh and the dimensions of it over which they are sharded."""
    groups: Groups = {}
    for parameter in parameters:
        gradient = parameter.grad
        if isinstance(gradient, DTensor):
            assert isinstance(parameter, DTensor)
            if gradient.placements != parameter.placements:  # a sum that is still to be made
                parameter.grad = gradient = gradient.redistribute(placements=parameter.placements)
            sharded = tuple(d for d, placement in enumerate(gradient.placements) if not placement.is_replicate())
            groups.setdefault((gradient.device_mesh, sharded), []).append(gradient.to_local())
        elif gradient is not None:
            groups.setdefault((None, ()), []).append(gradient)
    return groups
