"""This rank's process groups: the one that training uses, a small gloo one on which ranks agree, and those of a mesh.

Holds: every group has the session's timeout; those of a mesh have torch's own where torch has no `set_timeout`. A single rank needs no
group but for a mesh. A group that the script made itself is used as it is.
"""

import math
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainhouse.events.model.parallelism import DIMENSIONS, Parallelism
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.step_schedule import Wishes

DEFAULT_TIMEOUT_S = 600.0


class Gang:
    """The ranks of the job, seen from this one."""

    def __init__(self, context: Context, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.device = _device(context)
        self._rank = context.rank
        self._control: dist.ProcessGroup | None = None
        self._mine = False
        self._mesh: DeviceMesh | None = None
        self._backend = context.backend or _backend(self.device)
        self._timeout_s = timeout_s
        if context.world_size > 1:
            timeout = timedelta(seconds=timeout_s)
            if not dist.is_initialized():
                dist.init_process_group(self._backend, timeout=timeout)
                self._mine = True
            control = dist.new_group(backend="gloo", timeout=timeout)
            assert isinstance(control, dist.ProcessGroup)  # every rank is a member of it
            self._control = control

    @property
    def control(self) -> dist.ProcessGroup | None:
        """A gloo group of all ranks, for small agreements and for checkpoints; None for a single rank."""
        return self._control

    def mesh(self, layout: Parallelism) -> DeviceMesh:
        """The ranks in the dimensions of a layout. The first call makes a process group for each: all ranks call it. Blocks."""
        if self._mesh is None:
            if not dist.is_initialized():  # a single rank
                store = dist.HashStore()  # type: ignore[attr-defined]
                timeout = timedelta(seconds=self._timeout_s)
                dist.init_process_group(self._backend, store=store, rank=0, world_size=1, timeout=timeout)
                self._mine = True
            sizes = tuple(getattr(layout, name) for name in DIMENSIONS)
            self._mesh = init_device_mesh(self.device.type, sizes, mesh_dim_names=DIMENSIONS)
            self._limit(self._mesh)
        return self._mesh

    def _limit(self, mesh: DeviceMesh) -> None:
        """Sets the timeout of the groups that the mesh made; a dimension of all ranks may have the default group, which it did not make."""
        if hasattr(dist, "set_timeout"):
            for group in mesh.get_all_groups():
                if group is not dist.group.WORLD:
                    dist.set_timeout(timedelta(seconds=self._timeout_s), group)

    def agree(self, wishes: Wishes) -> Wishes:
        """The maximum of what all ranks wish. Blocks until all have called it."""
        if self._control is None:
            return wishes
        numbers = torch.tensor(wishes.numbers(), dtype=torch.float64)
        dist.all_reduce(numbers, dist.ReduceOp.MAX, group=self._control)
        return Wishes.of(numbers.tolist())

    def add(self, numbers: Sequence[float]) -> list[float]:
        """The sums over all ranks. Blocks until all have called it."""
        values = torch.tensor(numbers, dtype=torch.float64)
        if self._control is not None:
            dist.all_reduce(values, dist.ReduceOp.SUM, group=self._control)
        return list(values.tolist())

    def first(self, is_one: bool) -> int | None:
        """The lowest rank that is one, None if none is. Blocks until all have called it."""
        (lowest,) = self.least([float(self._rank) if is_one else math.inf])
        return None if math.isinf(lowest) else int(lowest)

    def least(self, numbers: Sequence[float]) -> list[float]:
        """The smallest of each over all ranks. Blocks until all have called it."""
        values = torch.tensor(numbers, dtype=torch.float64)
        if self._control is not None:
            dist.all_reduce(values, dist.ReduceOp.MIN, group=self._control)
        return list(values.tolist())

    def broadcast_from(self, rank: int, numbers: Sequence[float]) -> list[float]:
        """Gathers this rank's `numbers` on all ranks. Blocks until all have called it."""
        values = torch.tensor(numbers, dtype=torch.float64)
        if self._control is not None:
            dist.broadcast(values, src=rank, group=self._control)
        return list(values.tolist())

    def leave(self) -> None:
        """Take down the groups that this object made."""
        if self._mine and dist.is_initialized():
            dist.destroy_process_group()
        self._control = None
        self._mesh = None


def _device(context: Context) -> torch.device:
    if context.backend != "gloo" and torch.cuda.is_available():
        device = torch.device("cuda", context.local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        return device
    return torch.device("cpu")


def _backend(device: torch.device) -> str:
    return "nccl" if device.type == "cuda" else "gloo"
