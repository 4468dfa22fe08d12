"""One small model in every parallel layout on gloo ranks: data parallel, sharded, tensor parallel, and pipeline stages.

Holds: names of layers are the same in all layouts. It has rows that do not divide by the ranks (some have none of them), a frozen tensor,
one that no step uses, and an optimizer with two groups and an empty one.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from trainhouse.workers.session.saving.tracked_state import Tracked

WIDTHS = (7, 10, 5, 3, 1)
BATCH = 8


class Net(nn.Module):
    """Some of the layers of a chain, under the names that they have in the whole."""

    def __init__(self, layers: Sequence[int] = range(len(WIDTHS) - 1)) -> None:
        super().__init__()
        every = {str(n): nn.Linear(WIDTHS[n], WIDTHS[n + 1]) for n in range(len(WIDTHS) - 1)}
        self.layers = nn.ModuleDict({str(n): every[str(n)] for n in layers})
        if 0 in layers:
            self.spare = nn.Parameter(torch.randn(4))
        if 1 in layers:
            every["1"].bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers.values():
            x = torch.tanh(layer(x))
        return x


class Run:
    """A training in one layout. `models`: what this rank holds of it."""

    def __init__(self, layout: str, group: dist.ProcessGroup, seed: int, averages: bool = False) -> None:
        self.layout, self.group, self.averages = layout, group, averages
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        torch.manual_seed(seed)
        self.pipeline: ScheduleInterleaved1F1B | None = None
        self.ema: AveragedModel | None = None
        self.models = self._made()
        self.optimizers = [self._optimizer(model) for model in self.models]
        self.schedules = [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.7) for optimizer in self.optimizers]
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=2) if layout in ("one", "ddp") else None
        self.optimizer_steps = 0
        for optimizer in self.optimizers:
            optimizer.register_step_pre_hook(self._stepping)

    def tracked(self) -> Tracked:
        many = len(self.models) > 1
        model, optimizer = (self.models, self.optimizers) if many else (self.models[0], self.optimizers[0])
        schedule = self.schedules if many else self.schedules[0]
        return Tracked(model, optimizer, schedule, ema=self.ema)

    def train(self, first: int, steps: int) -> None:
        for step in range(first, first + steps):
            x = torch.rand(BATCH, WIDTHS[0], generator=torch.Generator().manual_seed(step))
            self._backward(x)
            for optimizer, schedule in zip(self.optimizers, self.schedules, strict=True):
                if self.scaler is not None:
                    self.scaler.step(optimizer)
                    self.scaler.update()
                else:
                    optimizer.step()
                optimizer.zero_grad()
                schedule.step()
            if self.ema is not None:
                self.ema.update_parameters(self._inner(self.models[0]))

    def values(self) -> dict[str, list[float]]:
        """All weights, moments and learning rates that this rank holds, whole, by name. Collective."""
        names = {parameter: name for model in self.models for name, parameter in self._inner(model).named_parameters()}
        found = {name: whole(parameter) for parameter, name in names.items()}
        for optimizer in self.optimizers:
            for parameter in [p for group in optimizer.param_groups for p in group["params"]]:
                state = optimizer.state.get(parameter, {})
                found |= {f"{names[parameter]} {key}": whole(value) for key, value in state.items()}
                found[f"{names[parameter]} sharded"] = [
                    float(all(type(v) is type(parameter.data) for k, v in state.items() if k != "step"))
                ]
            found |= {f"{names[p]} lr": [group["lr"]] for group in optimizer.param_groups for p in group["params"]}
        if self.ema is not None:
            found |= {f"ema {name}": whole(value) for name, value in self.ema.state_dict().items()}
        return found

    def _stepping(self, *_: Any) -> None:
        self.optimizer_steps += 1

    def _made(self) -> list[nn.Module]:
        if self.layout == "pp":
            return list(self._stages())
        net: nn.Module = Net()
        mesh = self._mesh()
        if self.averages:
            self.ema = AveragedModel(net)
        if self.layout == "ddp":
            return [DistributedDataParallel(net, process_group=self.group, find_unused_parameters=True)]
        if self.layout in ("tp", "2d"):
            parallelize_module(net, mesh["tp"], {"layers.0": ColwiseParallel(), "layers.1": RowwiseParallel()})
        if self.layout in ("fsdp", "hsdp", "2d"):
            over = mesh["dp"] if self.layout == "2d" else mesh
            for whole_model in [net] if self.ema is None else [net, self.ema.module]:
                for layer in whole_model.layers.values():
                    fully_shard(layer, mesh=over)
                fully_shard(whole_model, mesh=over)
        return [net]

    def _mesh(self) -> DeviceMesh:
        """All ranks in a row, or in a square of data by tensor parallel, or of replicas by shards."""
        if self.layout in ("hsdp", "2d"):
            return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        return DeviceMesh.from_group(self.group, "cpu", mesh_dim_names=("tp",))

    def _stages(self) -> Iterator[nn.Module]:
        """Each layer is a stage, and rank r has every so many-th from r on."""
        stages = []
        for number in range(self.rank, len(WIDTHS) - 1, self.ranks):
            net = Net([number])
            stages.append(PipelineStage(net, number, len(WIDTHS) - 1, torch.device("cpu"), group=self.group))
            yield net
        self.pipeline = ScheduleInterleaved1F1B(stages, 2 * self.ranks, loss_fn=functional.mse_loss)  # type: ignore[arg-type]

    def _backward(self, x: Tensor) -> None:
        target = x.sum(1, keepdim=True) / WIDTHS[0]
        if self.pipeline is not None:
            self.pipeline.step(*([x] if self.rank == 0 else []), **({"target": target} if self.rank == self.ranks - 1 else {}))
            return
        mine = slice(self.rank, None, self.ranks) if self.layout in ("ddp", "fsdp", "hsdp") else slice(None)
        loss = functional.mse_loss(self.models[0](x[mine]), target[mine])
        (self.scaler.scale(loss) if self.scaler is not None else loss).backward()

    @staticmethod
    def _inner(model: nn.Module) -> nn.Module:
        inner: nn.Module = model.module if isinstance(model, DistributedDataParallel) else model
        return inner

    @staticmethod
    def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
        decayed = [p for p in model.parameters() if p.dim() > 1]
        rest = [p for p in model.parameters() if p.dim() <= 1]
        return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": []}, {"params": rest, "lr": 2e-2}], lr=1e-2)


def whole(value: Any) -> list[float]:
    """All elements of a tensor, whichever rank holds them. Collective for sharded ones."""
    if isinstance(value, DTensor):
        value = value.full_tensor()
    elements: list[float] = value.detach().reshape(-1).tolist() if isinstance(value, Tensor) else [float(value)]
    return elements
