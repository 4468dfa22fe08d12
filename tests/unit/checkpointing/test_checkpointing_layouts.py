"""Checkpoints in every layout, on gloo processes: saved in one, restored into another, and refused where the ranks disagree."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.support.gloo_gang import Groups, run_gang
from trainhouse.checkpointing.chain.commits import read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.workers.session.saving.tracked_state import Tracked


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, width: int) -> None:
    """Takes one step, so that there are moments."""
    model(torch.arange(2.0 * width).reshape(2, width) / 10).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def stage_of(rank: int, group: dist.ProcessGroup, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Two ranks that hold other modules, as pipeline stages do: `first` of 6 → 5 on rank 0, `second` of 5 → 3 on rank 1."""
    torch.manual_seed(seed)
    layers = {"first": nn.Linear(6, 5), "second": nn.Linear(5, 3)}
    name = "first" if rank == 0 else "second"
    model = nn.Sequential(OrderedDict({name: layers[name]}))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def values_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[list[float]]:
    """All weights and moments."""
    moments = [v for state in optimizer.state.values() for v in state.values()]
    return [t.detach().reshape(-1).tolist() for t in [*model.parameters(), *moments]]


def different_modules(store: Any, group: dist.ProcessGroup) -> dict[str, Any]:
    """Saves and restores two ranks that track different modules."""
    rank = dist.get_rank(group)
    model, optimizer = stage_of(rank, group, 1)
    trained(model, optimizer, 6 if rank == 0 else 5)
    tracked = Tracked(model, optimizer)
    Checkpointer(CheckpointerSettings("modules", 1, 0, "spec"), store, group).save(tracked.shared(), tracked.of_this_rank(), 1, 1.0)
    manifest = read_entry(store, "modules", 1)
    assert isinstance(manifest, Manifest)
    again, fresh = stage_of(rank, group, 2)
    tracked = Tracked(again, fresh)
    Checkpointer(CheckpointerSettings("modules", 2, 1, "spec"), store, group).restore(tracked.shared(), tracked.put_back_own)
    return {"saved": values_of(model, optimizer), "restored": values_of(again, fresh), "names": sorted(manifest.tensors)}


def disagreeing(store: Any, group: dist.ProcessGroup, job: str, state: dict[str, Any]) -> str:
    """Returns the error of a save of ranks that cannot both be right."""
    try:
        Checkpointer(CheckpointerSettings(job, 1, 0, "spec"), store, group).save(state, {}, 1, 1.0)
    except CheckpointError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def in_each_process(store: Any, groups: Groups) -> dict[Any, Any]:
    """Everything that the tests ask for, in one of the four processes."""
    said: dict[Any, Any] = {}
    rank, two = dist.get_rank(), groups[2]
    if two is not None:
        said["different modules"] = different_modules(store, two)
        said["shapes"] = disagreeing(store, two, "shapes", {"model": nn.Linear(3 + rank, 2)})
        torch.manual_seed(rank)
        said["values"] = disagreeing(store, two, "values", {"model": nn.Linear(3, 2)})
        said["numbers"] = disagreeing(store, two, "numbers", {"w": torch.ones(2), "schedule": {"lrs": [0.1, 0.2 + rank]}})
        said["kinds"] = disagreeing(store, two, "kinds", {"w": torch.ones(2) if rank else 7})
    return said


@pytest.fixture(scope="module")
def gangs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    """What each of the four processes saw."""
    return run_gang(in_each_process, tmp_path_factory.mktemp("gangs"), __name__)


def test_ranks_that_track_different_modules_are_saved_whole(gangs: list[dict[Any, Any]]) -> None:
    for said in (rank["different modules"] for rank in gangs[:2]):
        assert said["restored"] == said["saved"]
        assert [sum(f"{name}\\.weight" in tensor for tensor in said["names"]) for name in ("first", "second")] == [4, 4], said["names"]


@pytest.mark.parametrize(
    ("scenario", "says"),
    [
        ("shapes", "model.weight: torch.float32 (2, 3) on rank 0, torch.float32 (2, 4) on rank 1"),
        ("values", "model.bias, model.weight: rank 1 holds other values than rank 0"),
        ("numbers", "schedule.lrs.[1]: 0.2 on rank 0, 1.2 on rank 1"),
        ("kinds", "w: 7 on rank 0, a tensor on rank 1"),
    ],
)
def test_ranks_that_disagree_about_one_key_are_refused_by_name(gangs: list[dict[Any, Any]], scenario: str, says: str) -> None:
    for said in gangs[:2]:
        assert said[scenario].startswith(f"InvalidStateError: {says};"), said[scenario]
