"""Random tensors, meshes and placements on gloo processes: what one layout saves, any other restores, element for element."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor

from tests.support.gloo_gang import Groups, serving_gang
from tests.support.profiles import examples
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings

pytestmark = pytest.mark.timeout(600)
MESHES = ((1,), (2,), (3,), (4,), (2, 2), (1, 4), (4, 1), (1, 3))
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
# A dimension of a tensor that a dimension of the mesh shards; None: all of its ranks hold the same.
Placed = tuple[int | None, ...]


@dataclass(frozen=True)
class Case:
    """A state, and how the ranks hold it before and after. `before`, `after`: by tensor, for each dimension of the mesh."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    old: tuple[int, ...]
    new: tuple[int, ...]
    before: tuple[Placed, ...]
    after: tuple[Placed, ...]


@st.composite
def cases(draw: Any) -> Case:
    """States with empty tensors, scalars and sizes that no mesh divides."""
    shapes = draw(st.lists(st.lists(st.sampled_from((0, 1, 2, 3, 5, 8, 13)), max_size=3).map(tuple), min_size=1, max_size=4))
    old, new = draw(st.sampled_from(MESHES)), draw(st.sampled_from(MESHES))
    dtypes = tuple(draw(st.sampled_from(DTYPES)) for _ in shapes)

    def placed(shape: tuple[int, ...], mesh: tuple[int, ...]) -> Placed:
        return tuple(draw(st.sampled_from((None, *range(len(shape))))) for _ in mesh)

    before, after = (tuple(placed(shape, mesh) for shape in shapes) for mesh in (old, new))
    return Case(tuple(shapes), dtypes, old, new, before, after)


@functools.cache
def mesh_of(shape: tuple[int, ...]) -> DeviceMesh:
    """The first ranks as a mesh of this shape: one for all cases, since each makes groups, and a group has threads that stay."""
    return DeviceMesh("cpu", torch.arange(prod(shape)).reshape(shape))


def value(case: Case, at: int) -> Tensor:
    """The whole of a tensor: no two elements alike, where the type has room for that."""
    return (torch.arange(prod(case.shapes[at])) * 7 % 251 + at).reshape(case.shapes[at]).to(case.dtypes[at])


def placements(placed: Placed) -> list[Placement]:
    """As torch has them."""
    return [Replicate() if dimension is None else Shard(dimension) for dimension in placed]


def held(case: Case, mesh: DeviceMesh, placed: tuple[Placed, ...], whole: Callable[[int], Tensor]) -> dict[str, DTensor]:
    """The state as this rank holds it."""
    # No message between the ranks: all of them have the whole.
    return {str(at): distribute_tensor(whole(at), mesh, placements(one), src_data_rank=None) for at, one in enumerate(placed)}


def across(store: Any, groups: Groups, example: tuple[str, Case]) -> dict[Any, Any]:
    """Saves in one layout and restores in another; returns which tensors of this rank are not as they should be."""
    job, case = example
    wrong: dict[Any, Any] = {}
    old, new = mesh_of(case.old), mesh_of(case.new)
    if (group := groups[prod(case.old)]) is not None:
        Checkpointer(CheckpointerSettings(job, 1, 0, "spec"), store, group).save(
            held(case, old, case.before, lambda at: value(case, at)), {}, 1, 1.0
        )
    dist.barrier()
    if (group := groups[prod(case.new)]) is not None:
        state: dict[str, Any] = held(case, new, case.after, lambda at: torch.zeros_like(value(case, at)))
        report = Checkpointer(CheckpointerSettings(job, 2, 1, "spec"), store, group).restore(state, lambda _: None)
        assert report.step == 1
        for name, expected in held(case, new, case.after, lambda at: value(case, at)).items():
            if not torch.equal(state[name].to_local(), expected.to_local()):
                wrong[name] = (state[name].to_local().tolist(), expected.to_local().tolist())
    dist.barrier()
    return wrong


class Gang:
    """Four processes that take cases one after the other; others after a case that one of them did not survive."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._open = ExitStack()
        self._ask: Any = None
        self._asked = 0

    def __call__(self, case: Case) -> list[dict[Any, Any]]:
        if self._ask is None:
            self._ask = self._open.enter_context(serving_gang(across, self._folders.mktemp("gang"), __name__))
        self._asked += 1
        ask, self._ask = self._ask, None
        answer: list[dict[Any, Any]] = ask((f"random-{self._asked}", case))
        self._ask = ask
        return answer

    def close(self) -> None:
        """Ends the processes."""
        self._open.close()


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    """Processes for all cases of a run."""
    found = Gang(tmp_path_factory)
    try:
        yield found
    finally:
        found.close()


@settings(max_examples=examples(50))
@given(case=cases())
def test_any_layout_restores_in_any_other(gang: Gang, case: Case) -> None:
    assert gang(case) == [{}] * 4
