"""Parts of a program that can be tracked, in one process: optimizers by parameter names, averages, scalers, schedules, anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.state.optimizer_state import OptimizerState
from trainhouse.checkpointing.state.parameter_names import parameter_names
from trainhouse.workers.session.errors import InvalidUseError
from trainhouse.workers.session.saving.tracked_state import Tracked

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


class Tied(nn.Module):
    """Two names for one tensor, a frozen one, and one that no step uses."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.embedding, self.norm, self.head = nn.Linear(4, 4, bias=False), nn.LayerNorm(4), nn.Linear(4, 4, bias=False)
        self.spare = nn.Parameter(torch.randn(3))
        self.norm.bias.requires_grad_(False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embedding(x)))  # type: ignore[no-any-return]


class Counter:
    """A Stateful of the program's own."""

    def __init__(self, seen: int) -> None:
        self.seen = seen

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def step(model: nn.Module, *optimizers: torch.optim.Optimizer, scaler: torch.amp.GradScaler | None = None) -> None:
    loss = model(torch.arange(8.0).reshape(2, 4) / 8).square().mean()
    (scaler.scale(loss) if scaler is not None else loss).backward()
    for optimizer in optimizers:
        scaler.step(optimizer) if scaler is not None else optimizer.step()
        optimizer.zero_grad()
    if scaler is not None:
        scaler.update()


def adam(model: nn.Module, **settings: Any) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), **{"lr": 1e-2, **settings})


def save(objects: MemoryObjectStore, state: dict[str, Any]) -> None:
    Checkpointer(CheckpointerSettings("j1", 1, 0, "spec"), objects).save(state, Tracked().of_this_rank(), 3, 1.0)


def restore(objects: MemoryObjectStore, tracked: Tracked) -> int:
    report = Checkpointer(CheckpointerSettings("j1", 2, 1, "spec"), objects).restore(tracked.shared(), tracked.put_back_own)
    return report.step


def same(one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> bool:
    """Whether both go on alike."""
    mine, theirs = one.state_dict(), other.state_dict()
    alike = all(torch.equal(v, theirs["state"][n][k]) for n, state in mine["state"].items() for k, v in state.items())
    return alike and mine["state"].keys() == theirs["state"].keys() and mine["param_groups"] == theirs["param_groups"]


def test_the_keys_are_those_of_torch() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    optimizer = torch.optim.AdamW([{"params": model[0].parameters(), "weight_decay": 0.3}, {"params": model[1].parameters()}])
    step(model, optimizer)
    ours = flatten_state_dict(OptimizerState([optimizer], parameter_names([model])).state_dict())[0]
    theirs = get_optimizer_state_dict(model, optimizer, options=FLAT)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(v, theirs[k]) if isinstance(v, torch.Tensor) else v == theirs[k] for k, v in ours.items())
    again = torch.optim.AdamW([{"params": model[0].parameters()}, {"params": model[1].parameters()}])
    set_optimizer_state_dict(model, again, ours, options=FLAT)
    assert same(optimizer, again)


def test_a_fresh_optimizer_is_saved_and_restored_without_a_step() -> None:
    model, objects = Tied(), MemoryObjectStore()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    steps: list[int] = []
    optimizer.register_step_pre_hook(lambda *_: steps.append(1))
    save(objects, Tracked(model, optimizer).shared())
    restore(objects, Tracked(model, optimizer))
    assert optimizer.state_dict()["state"] == {} and steps == []


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adafactor, torch.optim.RMSprop, torch.optim.Adagrad])
def test_every_optimizer_goes_on_as_it_was(kind: type[torch.optim.Optimizer]) -> None:
    model, objects = Tied(), MemoryObjectStore()
    optimizer = kind(model.parameters(), lr=0.05)  # type: ignore[call-arg]
    step(model, optimizer)
    save(objects, Tracked(model, optimizer).shared())
    again = Tied()
    fresh = kind(again.parameters(), lr=0.9)  # type: ignore[call-arg]
    assert restore(objects, Tracked(again, fresh)) == 3
    assert same(optimizer, fresh)
    step(model, optimizer), step(again, fresh)
    assert same(optimizer, fresh) and all(map(torch.equal, model.parameters(), again.parameters()))


def test_an_optimizer_saved_by_number_is_still_restored() -> None:
    model, objects = Tied(), MemoryObjectStore()
    optimizer = adam(model)
    step(model, optimizer)
    save(objects, {"model": model, "optimizer": optimizer})  # as sessions did before: the optimizer's own dictionary
    again = Tied()
    fresh = adam(again, lr=0.9)
    assert restore(objects, Tracked(again, fresh)) == 3
    assert same(optimizer, fresh) and torch.equal(model.spare, again.spare)


def test_a_tied_tensor_finds_its_moments_where_it_is_not_tied() -> None:
    model, objects = Tied(), MemoryObjectStore()
    optimizer = adam(model)
    step(model, optimizer)
    save(objects, Tracked(model, optimizer).shared())
    apart = Tied(tied=False)  # as on two pipeline stages
    fresh = adam(apart)
    restore(objects, Tracked(apart, fresh))
    for weight in (apart.embedding.weight, apart.head.weight):
        assert torch.equal(weight, model.head.weight)
        assert torch.equal(fresh.state[weight]["exp_avg"], optimizer.state[model.head.weight]["exp_avg"])


def test_several_optimizers_schedules_a_scaler_an_average_and_parts_of_the_programs_own() -> None:
    def program(seen: int) -> Any:
        model = Tied()
        optimizers = [torch.optim.SGD([model.embedding.weight], lr=0.1, momentum=0.9), torch.optim.AdamW([model.norm.weight, model.spare])]
        schedules = [torch.optim.lr_scheduler.StepLR(o, 1, 0.5 + n / 10) for n, o in enumerate(optimizers)]
        return (
            model,
            optimizers,
            schedules,
            torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=1),
            AveragedModel(model),
            Counter(seen),
        )

    def one_step(parts: Any) -> None:
        model, optimizers, schedules, scaler, ema, _ = parts
        step(model, *optimizers, scaler=scaler)
        for schedule in schedules:
            schedule.step()
        ema.update_parameters(model)

    def tracked(parts: Any) -> Tracked:
        model, optimizers, schedules, scaler, ema, counter = parts
        return Tracked(model, optimizers, schedules, scaler=scaler, ema=ema, extra={"counter": counter, "probe": nn.Linear(2, 2)})

    objects, first, second = MemoryObjectStore(), program(5), program(0)
    one_step(first)
    save(objects, tracked(first).shared())
    restore(objects, tracked(second))
    assert second[5].seen == 5 and second[3].state_dict() == first[3].state_dict() and second[3].get_scale() == 128.0
    one_step(first), one_step(second)
    assert all(map(same, first[1], second[1])) and [s.get_last_lr() for s in first[2]] == [s.get_last_lr() for s in second[2]]
    assert all(map(torch.equal, first[4].state_dict().values(), second[4].state_dict().values())) and first[4].n_averaged == 2
    assert second[3].state_dict() == first[3].state_dict()


def test_a_checkpoint_of_another_model_is_refused_by_name() -> None:
    objects = MemoryObjectStore()
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    save(objects, Tracked(model, adam(model)).shared())
    for other, says in (
        (nn.Sequential(nn.Linear(4, 4)), r"holds model.1\\.weight, model.1\\.bias, which no rank of this gang has"),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), r"1.weight is \(2, 4\) there and \(3, 4\) here"),
        (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(2, 2)), "holds no 2.bias, 2.weight"),
    ):
        with pytest.raises(InvalidStateError, match=f"step 3 of j1 does not fit: .*{says}"):
            restore(objects, Tracked(other, None))
    groups = [{"params": [model[0].weight], "lr": 0.1}, {"params": [model[0].bias, model[1].weight, model[1].bias], "lr": 0.2}]
    grouped, before = MemoryObjectStore(), model[0].weight.clone()
    save(grouped, Tracked(model, torch.optim.SGD(groups)).shared())
    with torch.no_grad():
        model[0].weight += 1
    with pytest.raises(InvalidStateError, match=r"0\.weight and 0\.bias are in one group of the optimizer"):
        restore(grouped, Tracked(model, torch.optim.SGD(model.parameters())))
    assert torch.equal(model[0].weight, before + 1), "nothing was put back"
    with pytest.raises(InvalidStateError, match=r"its optimizer knows no parameter more"):
        model.register_parameter("more", nn.Parameter(torch.ones(1)))
        OptimizerState([adam(model)], parameter_names([model])).targets(
            {"state": {}, "param_groups": {"0.weight": {"lr": 0.1}}, "tied": {}}
        )


def test_schedules_restore_into_another_number_if_they_are_alike() -> None:
    def schedules(factors: tuple[float, ...]) -> list[Any]:
        made = [torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.ones(1)], lr=1.0), 1, factor) for factor in factors]
        for schedule in made:
            schedule.optimizer.step(), schedule.step()
        return made

    alike = Tracked(schedule=schedules((0.5, 0.5))).shared()["schedule"].state_dict()
    one, three = schedules((0.1,)), schedules((0.1, 0.2, 0.3))
    for restored in (one, three):
        Tracked(schedule=restored if len(restored) > 1 else restored[0]).shared()["schedule"].load_state_dict(alike)
        assert [schedule.get_last_lr() for schedule in restored] == [[0.5]] * len(restored)
    unlike = Tracked(schedule=schedules((0.5, 0.4))).shared()["schedule"].state_dict()
    with pytest.raises(InvalidStateError, match="it holds 2 schedules that differ, and this rank has 1"):
        Tracked(schedule=one[0]).shared()["schedule"].load_state_dict(unlike)


def test_wrapped_models_are_saved_under_their_own_names(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        inner = nn.Linear(2, 2)
        both = nn.ModuleDict({"generator": DistributedDataParallel(inner), "critic": torch.compile(nn.Linear(2, 1))})  # type: ignore[dict-item]
        names = {name for found in parameter_names([both]).values() for name in found}
        assert names == {"generator.weight", "generator.bias", "critic.weight", "critic.bias"}
        objects = MemoryObjectStore()
        save(objects, Tracked(both, adam(both)).shared())
        plain = nn.ModuleDict({"generator": nn.Linear(2, 2), "critic": nn.Linear(2, 1)})
        restore(objects, Tracked(plain, adam(plain)))
        assert torch.equal(plain["generator"].weight, inner.weight)  # type: ignore[arg-type]
        before, compiled = MemoryObjectStore(), torch.compile(nn.Linear(2, 2))
        save(before, {"model": compiled})  # as sessions did before: with the name that compiling puts before
        restore(before, Tracked(inner, None))
        assert torch.equal(inner.weight, compiled.weight)
        with pytest.raises(InvalidUseError, match="use torch's fully_shard"):
            Tracked(FullyShardedDataParallel(nn.Linear(2, 2), device_id=torch.device("cpu")))
    finally:
        dist.destroy_process_group()


def test_an_optimizer_of_other_parameters_is_saved_by_number() -> None:
    model, more, objects = nn.Linear(2, 2), nn.Parameter(torch.ones(1)), MemoryObjectStore()
    optimizer = torch.optim.SGD([*model.parameters(), more], lr=0.1)
    assert Tracked(model, optimizer).shared()["optimizer"] is optimizer
    save(objects, Tracked(model, optimizer).shared())
    assert restore(objects, Tracked(model, torch.optim.SGD([*model.parameters(), more], lr=0.5))) == 3
    with pytest.raises(InvalidUseError, match="has no name"):
        Tracked(model, [optimizer, optimizer]).shared()
