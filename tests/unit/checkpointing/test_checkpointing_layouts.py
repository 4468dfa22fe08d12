"""Checkpoints in every layout, on gloo processes: saved in one, restored into another, and refused where the ranks disagree."""

from __future__ import annotations

import pickle  # to count bytes
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.nn.parallel import DistributedDataParallel

from tests.support.gloo_gang import Groups, run_gang
from tests.support.parallel_layouts import Run, whole
from trainhouse.checkpointing import saver as saver_module
from trainhouse.checkpointing.chain.chunks import ChunkStore
from trainhouse.checkpointing.chain.commits import CommitChain, Writer, read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.collective import Ranks
from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.checkpointing.saver import Saver
from trainhouse.checkpointing.state.agreement import rank_state
from trainhouse.checkpointing.state.state_tree import take_apart, tensor_names, unpack
from trainhouse.workers.session.saving.tracked_state import Tracked

Layout = tuple[str, int]
BEFORE, AFTER = 3, 2
PAIRS: tuple[tuple[Layout, Layout], ...] = (
    *(((name, ranks), (name, ranks)) for name, ranks in (("ddp", 2), ("fsdp", 2), ("fsdp", 4), ("tp", 2), ("pp", 2))),
    (("ddp", 2), ("fsdp", 2)),
    (("ddp", 2), ("pp", 2)),
    (("fsdp", 2), ("fsdp", 4)),
    (("fsdp", 4), ("ddp", 2)),
    (("tp", 2), ("fsdp", 2)),
    (("fsdp", 4), ("tp", 2)),
    (("pp", 2), ("one", 1)),
    (("pp", 4), ("pp", 2)),
    (("pp", 2), ("fsdp", 4)),
    (("hsdp", 4), ("fsdp", 2)),
    (("fsdp", 2), ("2d", 4)),
    (("2d", 4), ("2d", 4)),
    (("2d", 4), ("pp", 2)),
)


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


def own_losses(store: Any, group: dist.ProcessGroup) -> dict[str, Any]:
    """Three saves of ranks that each step a schedule with a loss of their own, and the warnings of it."""

    def made(job_epoch: int) -> tuple[Any, Checkpointer, Tracked]:
        model = nn.Linear(2, 1)
        nn.init.ones_(model.weight), nn.init.zeros_(model.bias)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        at = Checkpointer(CheckpointerSettings("losses", job_epoch, job_epoch - 1, "spec"), store, group)
        return schedule, at, Tracked(model, optimizer, schedule)

    schedule, at, tracked = made(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            at.save(tracked.shared(), tracked.of_this_rank(), step, 1.0)
            schedule.step(0.7 - step / 100 + dist.get_rank(group) / 1000)
    again, at, tracked = made(2)
    report = at.restore(tracked.shared(), tracked.put_back_own)
    said = [str(warning.message) for warning in caught if "rank" in str(warning.message)]
    return {"warnings": said, "best": again.best, "step": report.step}


def exchanged(store: Any, group: dist.ProcessGroup) -> dict[str, Any]:
    """Bytes that reach a rank in collectives while four ranks of two pipeline stages agree, and those of one rank's state."""
    rank, taken = dist.get_rank(group), [0]

    def counted(collective: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: torch.Tensor, *arguments: Any, **named: Any) -> Any:
            taken[0] += tensor.numel() * tensor.element_size()
            return collective(tensor, *arguments, **named)

        return call

    def agree(state: dict[str, Any]) -> dict[str, Any]:
        chain = CommitChain(store, Writer("exchanged", 1, 0, "w"))
        saver = Saver(Ranks(group), ChunkStore(store, "exchanged"), chain, Writer("exchanged", 1, 0, "w"), 60.0)
        size = len(pickle.dumps(rank_state(take_apart(state), (), sampled=True)))
        with pytest.MonkeyPatch.context() as patch:
            for name in ("all_gather_single", "broadcast"):
                patch.setattr(distributed_c10d, name, counted(getattr(distributed_c10d, name)))
            taken[0] = 0
            _, _, agreed = saver._agreed(state, [{}])
            received = taken[0]
            patch.setattr(saver_module, "MAX_BROADCASTS", 1)
            _, _, gathered = saver._agreed(state, [{}])
        assert len(tensor_names(unpack(agreed.skeleton))) == 2000
        return {"bytes": received, "of one rank": size, "gathered alike": gathered == agreed}

    return agree({f"stage{rank // 2}.layer{n}": torch.ones(1) for n in range(1000)})


def across(store: Any, old: Layout, new: Layout, groups: Groups) -> dict[str, Any]:
    """Trains and saves in one layout and restores in another; in the same one both go on."""
    said: dict[str, Any] = {}
    job, group = "-".join(f"{layout}{ranks}" for layout, ranks in (old, new)), groups[old[1]]
    averages = {old[0], new[0]} <= {"ddp", "fsdp"}
    if group is not None:
        first = Run(old[0], group, 1, averages)
        first.train(0, BEFORE)
        tracked = first.tracked()
        Checkpointer(CheckpointerSettings(job, 1, 0, "spec"), store, group).save(tracked.shared(), tracked.of_this_rank(), BEFORE, 1.0)
        said["saved"] = first.values()
        if old == new:
            first.train(BEFORE, AFTER)
            said["went on"] = first.values()
    dist.barrier()
    group = groups[new[1]]
    if group is not None:
        second = Run(new[0], group, 99, averages)
        tracked = second.tracked()
        Checkpointer(CheckpointerSettings(job, 2, 1, "spec"), store, group).restore(tracked.shared(), tracked.put_back_own)
        said |= {"restored": second.values(), "optimizer steps": second.optimizer_steps}
        said["lrs"] = [schedule.get_last_lr() for schedule in second.schedules]
        second.train(BEFORE, AFTER)
        said["resumed"] = second.values()
    dist.barrier()
    return said


def by_number(store: Any, old: dist.ProcessGroup | None, new: dist.ProcessGroup | None) -> dict[str, Any]:
    """Saves a DDP training as sessions did before, by parameter number, and restores it sharded."""
    said: dict[str, Any] = {}
    if old is not None:
        first = Run("ddp", old, 1)
        first.train(0, BEFORE)
        state = {"model": first.models[0].module, "optimizer": first.optimizers[0], "schedule": first.schedules[0]}
        Checkpointer(CheckpointerSettings("numbers-old", 1, 0, "spec"), store, old).save(state, Tracked().of_this_rank(), BEFORE, 1.0)
        said["saved"] = first.values()
    dist.barrier()
    if new is not None:
        second = Run("fsdp", new, 99)
        tracked = second.tracked()
        Checkpointer(CheckpointerSettings("numbers-old", 2, 1, "spec"), store, new).restore(tracked.shared(), tracked.put_back_own)
        said["restored"] = second.values()
        second.train(BEFORE, AFTER)
    dist.barrier()
    return said


class Columns(torch.optim.Optimizer):
    """Steps by an average of squares for each column, as factored optimizers keep: smaller than the parameter, and whole on each rank."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            squares = parameter.grad.square().mean(0).redistribute(placements=[Replicate()])
            state = self.state[parameter]
            state["columns"] = 0.5 * state["columns"] + 0.5 * squares if "columns" in state else squares
            parameter.sub_(0.1 * parameter.grad / (state["columns"].sqrt() + 1e-3))


def factored(store: Any, group: dist.ProcessGroup) -> dict[str, Any]:
    """FSDP2 with an optimizer whose moments have other shapes than the parameters."""

    def made(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
        fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu"))
        return model, Columns(model.parameters(), {})

    def after_a_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[list[float]]:
        trained(model, optimizer, 6)
        return [whole(value) for value in model.state_dict().values()]

    model, optimizer = made(1)
    after_a_step(model, optimizer)
    tracked = Tracked(model, optimizer)
    Checkpointer(CheckpointerSettings("factored", 1, 0, "spec"), store, group).save(tracked.shared(), tracked.of_this_rank(), 1, 1.0)
    again, fresh = made(2)
    tracked = Tracked(again, fresh)
    Checkpointer(CheckpointerSettings("factored", 2, 1, "spec"), store, group).restore(tracked.shared(), tracked.put_back_own)
    return {"went on": after_a_step(model, optimizer), "resumed": after_a_step(again, fresh)}


def buffers(store: Any, group: dist.ProcessGroup) -> dict[str, Any]:
    """DDP with batch statistics, which differ between the ranks until rank 0's are sent to all at the next forward pass."""

    def made(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Tracked]:
        torch.manual_seed(seed)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return model, optimizer, Tracked(model, optimizer)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int) -> list[list[float]]:
        for step in range(first, first + 2):
            generator = torch.Generator().manual_seed(10 * step + dist.get_rank(group))
            model(torch.rand(4, 3, generator=generator)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [t.reshape(-1).tolist() for t in model.state_dict().values()]

    model, optimizer, tracked = made(1)
    saved = train(model, optimizer, 0)
    Checkpointer(CheckpointerSettings("buffers", 1, 0, "spec"), store, group).save(tracked.shared(), tracked.of_this_rank(), 2, 1.0)
    again, fresh, tracked = made(2)
    Checkpointer(CheckpointerSettings("buffers", 2, 1, "spec"), store, group).restore(tracked.shared(), tracked.put_back_own)
    restored = [t.reshape(-1).tolist() for t in again.state_dict().values()]
    return {"saved": saved, "restored": restored, "went on": train(model, optimizer, 2), "resumed": train(again, fresh, 2)}


def in_each_process(store: Any, groups: Groups) -> dict[Any, Any]:
    """Everything that the tests ask for, in one of the four processes."""
    said: dict[Any, Any] = {(old, new): across(store, old, new, groups) for old, new in PAIRS}
    rank, two = dist.get_rank(), groups[2]
    said["by number"] = by_number(store, two, groups[4])
    if two is not None:
        said["buffers"] = buffers(store, two)
        said["factored"] = factored(store, two)
        said["different modules"] = different_modules(store, two)
        said["shapes"] = disagreeing(store, two, "shapes", {"model": nn.Linear(3 + rank, 2)})
        torch.manual_seed(rank)
        said["values"] = disagreeing(store, two, "values", {"model": nn.Linear(3, 2)})
        said["own losses"] = own_losses(store, two)
        drifted = {"w": torch.tensor([1.0, torch.nan]) + rank * 1e-6, "c": torch.ones(2, 2, dtype=torch.complex64).t()}
        said["drifted"] = disagreeing(store, two, "drifted", drifted)
        said["kinds"] = disagreeing(store, two, "kinds", {"w": torch.ones(2) if rank else 7})
    said["exchanged"] = exchanged(store, dist.group.WORLD)  # type: ignore[arg-type]
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
        ("kinds", "w: 7 on rank 0, a tensor on rank 1"),
    ],
)
def test_ranks_that_disagree_about_one_key_are_refused_by_name(gangs: list[dict[Any, Any]], scenario: str, says: str) -> None:
    for said in gangs[:2]:
        assert said[scenario].startswith(f"InvalidStateError: {says};"), said[scenario]


def test_a_number_of_each_ranks_own_does_not_end_training(gangs: list[dict[Any, Any]]) -> None:
    lowest, other = (said["own losses"] for said in gangs[:2])
    assert [said["step"] for said in (lowest, other)] == [2, 2]
    assert [said["best"] for said in (lowest, other)] == [0.69, 0.69], "rank 0's of the last save"
    (warning,) = lowest["warnings"]
    assert warning.startswith("schedule.best: 0.7 on rank 0, 0.701 on rank 1; rank 0's is saved"), "once, for the first of two such saves"
    assert other["warnings"] == []


def test_ranks_exchange_one_state_for_each_that_differs(gangs: list[dict[Any, Any]]) -> None:
    for said in (rank["exchanged"] for rank in gangs):
        assert 2 * said["of one rank"] < said["bytes"] < 2.1 * said["of one rank"], "two stages, four ranks"
        assert said["gathered alike"], "as where too many differ to be sent one after the other"


def test_ranks_on_other_devices_may_round_otherwise(gangs: list[dict[Any, Any]]) -> None:
    assert [said["drifted"] for said in gangs[:2]] == ["no error", "no error"]


def merged(ranks: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    """What all ranks hold together, by name; ranks that hold the same hold it alike."""
    found: dict[str, list[float]] = {}
    for values in ranks:
        for name, value in values.items():
            assert found.setdefault(name, value) == value, name
    return found


@pytest.mark.parametrize(("old", "new"), PAIRS, ids=lambda layout: f"{layout[0]}{layout[1]}")
def test_weights_and_moments_are_the_same_in_any_layout(gangs: list[dict[Any, Any]], old: Layout, new: Layout) -> None:
    said = [rank[old, new] for rank in gangs]
    saved, restored = (merged([rank[what] for rank in said if what in rank]) for what in ("saved", "restored"))
    assert restored == saved
    assert sum("exp_avg_sq" in name for name in saved) == 7, "all but the frozen and the unused one"
    assert any(name.startswith("ema ") for name in saved) == ({old[0], new[0]} <= {"ddp", "fsdp"})
    assert all(value == [1.0] for name, value in restored.items() if name.endswith("sharded")), "moments are sharded as their parameters"
    for rank in said[: new[1]]:
        assert rank["optimizer steps"] == 0
        assert all(lrs == pytest.approx([0.7e-2, 0.7e-2, 1.4e-2]) for lrs in rank["lrs"])
        assert rank["resumed"] != rank["restored"], "training goes on"
        if old == new:
            assert rank["resumed"] == rank["went on"], "bit for bit as without the restore"


def test_a_checkpoint_by_parameter_number_restores_sharded(gangs: list[dict[Any, Any]]) -> None:
    said = [rank["by number"] for rank in gangs]
    assert all(rank["restored"] == said[0]["saved"] for rank in said)


def test_batch_statistics_of_ddp_are_rank_0s(gangs: list[dict[Any, Any]]) -> None:
    said = [rank["buffers"] for rank in gangs[:2]]
    assert said[0]["saved"] != said[1]["saved"], "each rank has statistics of its own samples"
    assert all(rank["restored"] == said[0]["saved"] for rank in said)
    assert all(rank["resumed"] == rank["went on"] for rank in said)


def test_moments_of_another_shape_than_their_parameter_go_on(gangs: list[dict[Any, Any]]) -> None:
    assert all(rank["factored"]["resumed"] == rank["factored"]["went on"] for rank in gangs[:2])
