"""Save and load planners of each rank, on top of torch's own.

Holds: a plain tensor that all ranks hold (as under DDP) is cut into pieces of rows and the pieces are shared evenly by bytes;
a sharded tensor (DTensor) is written as it is sharded. All ranks cut alike, since only shape, dtype and world size decide. Tensors whose
values may differ between ranks are written by the lowest rank that has them.
"""

import dataclasses
from collections.abc import Collection, Mapping

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType
from torch.distributed.tensor import DTensor

from trainhouse.checkpointing.state.balance import share, split_rows

Layouts = tuple[tuple[object, ...], ...]


class BalancedSavePlanner(DefaultSavePlanner):
    """Saves a flat dictionary of tensors. `unsynced`: those whose values may differ between ranks."""

    def __init__(self, world_size: int, unsynced: Collection[str] = ()) -> None:
        super().__init__(flatten_state_dict=False)
        self._world_size = world_size
        self._unsynced = unsynced

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        self.plan = dataclasses.replace(plan, items=[part for item in plan.items for part in self._cut(item)])
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        return super().create_global_plan(shared_plans(all_plans, self._unsynced))

    def lookup_object(self, index: MetadataIndex) -> torch.Tensor:
        """The rows that an index names: pieces of plain tensors are ours, the rest is torch's."""
        tensor = self.state_dict[index.fqn]
        if _is_plain(tensor) and index.offset:
            start = index.offset[0]
            rows = next(r for s, r in split_rows(tensor.shape, tensor.element_size(), self._world_size) if s == start)
            piece: torch.Tensor = tensor.narrow(0, start, rows)
            return piece
        found: torch.Tensor = super().lookup_object(index)
        return found

    def _cut(self, item: WriteItem) -> list[WriteItem]:
        data = item.tensor_data
        if item.type is not WriteItemType.TENSOR or data is None or not _is_plain(self.state_dict[item.index.fqn]):
            return [item]
        cuts = split_rows(data.size, data.properties.dtype.itemsize, self._world_size)
        if len(cuts) == 1:
            return [item]
        return [_rows(item, start, rows) for start, rows in cuts]


class StrictLoadPlanner(DefaultLoadPlanner):
    """Loads a flat dictionary of tensors; every one of them must be in the checkpoint."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, allow_partial_load=False)


def layouts_of(tensors: Mapping[str, torch.Tensor]) -> Layouts:
    """Returns all of these tensors that a plan depends on: equal ones, on each rank, have the same plan."""
    return tuple(
        (name, t.dtype, t.shape, type(t), (t.placements, t.device_mesh) if isinstance(t, DTensor) else None) for name, t in tensors.items()
    )


def shared_plans(plans: list[SavePlan], unsynced: Collection[str] = ()) -> list[SavePlan]:
    """The plans without what another rank writes; what is `unsynced` is the lowest rank's."""
    items: dict[MetadataIndex, WriteItem] = {}
    holders: dict[MetadataIndex, list[int]] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            items.setdefault(item.index, item)
            if item.index not in holders or item.index.fqn not in unsynced:
                holders.setdefault(item.index, []).append(rank)
    sizes = {index: item.tensor_storage_size() or 0 for index, item in items.items()}
    written_by = share(holders, sizes, {index: (index.fqn, tuple(index.offset or ())) for index in items})
    return [
        dataclasses.replace(plan, items=[item for item in plan.items if written_by[item.index] == rank]) for rank, plan in enumerate(plans)
    ]


def _is_plain(tensor: object) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _rows(item: WriteItem, start: int, rows: int) -> WriteItem:
    assert item.tensor_data is not None
    size = item.tensor_data.size
    offsets = torch.Size([start, *[0] * (len(size) - 1)])
    box = ChunkStorageMetadata(offsets=offsets, sizes=torch.Size([rows, *size[1:]]))
    return WriteItem(
        index=MetadataIndex(item.index.fqn, offsets),
        type=WriteItemType.SHARD,
        tensor_data=dataclasses.replace(item.tensor_data, chunk=box),
    )
