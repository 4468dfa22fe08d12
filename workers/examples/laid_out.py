"""The example's model in the layout of a session: replicated, sharded, tensor parallel, in pipeline stages, and any product of these.

Only public API of torch: `DistributedDataParallel` where a model is replicated and no more, else `fully_shard` over `dp` and `fsdp` (DDP
in a pipeline fails in torch 2.15: it rebuilds its buckets in a forward pass without gradients), `parallelize_module` over `tp`,
`PipelineStage` and a schedule over `pp`.
Holds: every rank begins with the same whole model and keeps its part, so each layout trains the same weights. All methods are collective.
"""

import hashlib
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle, get_schedule_class
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from trainhouse.events.model.parallelism import Parallelism, PipelineSchedule
from trainhouse.workers import Session
from trainhouse.workers.examples.model import ByteGPT

# Of each block: the first of two layers is split by columns, the second by rows, so that one sum over `tp` follows each pair.
TENSOR_PARALLEL = {"qkv": ColwiseParallel(), "out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
STAGES_A_RANK = 2  # of an interleaved schedule


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean in nats over all targets `(batch, time)`."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class LaidOut:
    """This rank's part of the model. `parts`: the modules to track and to optimize, one or several pipeline stages."""

    def __init__(self, session: Session, model: ByteGPT, microbatches: int, batch: int) -> None:
        self.layout, self._device, self._session = session.parallelism, session.device, session
        self._mesh = session.mesh if session.world_size > 1 else None
        stages = stages_of(self.layout)
        self.microbatches = microbatches = microbatches or _microbatches(self.layout.pp, session.training.accumulation or 1)
        check(self.layout, model, stages, batch, microbatches)
        mine = range(stages)[session.parallelism.place_of(session.rank)["pp"] :: self.layout.pp]
        whole = model.to(session.device)
        self.parts = [self._wrapped(whole.stage(number, stages) if stages > 1 else whole) for number in mine]
        self._is_first, self._is_last = 0 in mine, stages - 1 in mine
        self._pipeline = self._scheduled(list(mine), stages, microbatches) if stages > 1 else None

    def step(self, windows: Tensor) -> Tensor:
        """Adds the gradients of `(batch, context + 1)` windows, and returns the mean loss over all data ranks.

        A pipeline takes the micro-batches of accumulation as its own.
        """
        text, targets = windows[:, :-1], windows[:, 1:]
        if self._pipeline is None:
            found = []
            for part in self._session.accumulate(windows.chunk(self._session.training.accumulation or 1)):
                loss = cross_entropy(self.parts[0](part[:, :-1]), part[:, 1:])
                self._session.backward(loss)
                found.append(loss.detach())
            return self._mean(torch.stack(found).mean())
        losses: list[Tensor] = []
        first = [text] if self._is_first else []
        last: dict[str, Any] = {"target": targets, "losses": losses} if self._is_last else {}
        self._pipeline.step(*first, **last, return_outputs=False)
        return self._mean(torch.stack(losses).mean().detach() / self._session.scaler.get_scale() if losses else None)

    def logits(self, windows: Tensor) -> Tensor | None:
        """Logits of as many windows as a batch of training has; None on ranks without the last stage."""
        text, targets = windows[:, :-1], windows[:, 1:]
        if self._pipeline is None:
            return inner(self.parts[0])(text)  # type: ignore[no-any-return]
        first = [text] if self._is_first else []
        last: dict[str, Any] = {"target": targets, "losses": []} if self._is_last else {}
        found: Tensor | None = self._pipeline.eval(*first, **last)
        return found

    def sum(self, values: Tensor) -> Tensor:
        """Sum over all ranks."""
        values = values.to(self._device)
        if self._mesh is not None:
            dist.all_reduce(values)
        return values

    @property
    def tracked(self) -> nn.Module | list[nn.Module]:
        """The part, or the list of stages."""
        return self.parts if len(self.parts) > 1 else self.parts[0]

    def parameters(self) -> list[nn.Parameter]:
        """Parameters of this rank's parts."""
        return [parameter for part in self.parts for parameter in part.parameters()]

    def weights_hash(self) -> str:
        """SHA-256 of all weights of the whole model, by name: the same in each layout that has the same weights."""
        found: dict[str, str] = {}
        for part in self.parts:
            for name, tensor in inner(part).state_dict().items():
                whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
                found[name] = hashlib.sha256(whole.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
        if self._mesh is not None and self.layout.pp > 1:
            stages: list[dict[str, str]] = [{}] * self.layout.pp
            dist.all_gather_object(stages, found, group=self._mesh.get_group("pp"))
            found = {name: digest for stage in stages for name, digest in stage.items()}
        return hashlib.sha256("".join(name + found[name] for name in sorted(found)).encode()).hexdigest()

    def _mean(self, loss: Tensor | None) -> Tensor:
        """The mean over data ranks of what the ranks with the last stage have."""
        total = self.sum(torch.zeros(2) if loss is None else torch.stack([loss, torch.ones_like(loss)]))
        return total[0] / total[1]

    def _wrapped(self, part: ByteGPT) -> nn.Module:
        layout, mesh = self.layout, self._mesh
        if mesh is None:
            return self._session.prepare(part, blocks=part.blocks.values())
        if layout.tp > 1:
            for block in part.blocks.values():
                parallelize_module(block, mesh["tp"], TENSOR_PARALLEL)
        self._session.prepare(part, blocks=part.blocks.values())
        if layout.replica_ranks == 1:
            return DistributedDataParallel(part, process_group=mesh.get_group("dp"))
        if layout.data_size > 1:
            over = mesh["fsdp"] if layout.dp == 1 else mesh["dp", "fsdp"]
            for block in part.blocks.values():
                fully_shard(block, mesh=over)
            fully_shard(part, mesh=over)
        return part

    def _scheduled(self, numbers: list[int], stages: int, microbatches: int) -> PipelineScheduleSingle | PipelineScheduleMulti:
        assert self._mesh is not None
        group = self._mesh.get_group("pp")
        made = [PipelineStage(part, n, stages, self._device, group=group) for part, n in zip(self.parts, numbers, strict=True)]
        kind = get_schedule_class(schedule_of(self.layout))

        def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
            return self._session.scaler.scale(cross_entropy(logits, targets))

        pipeline: PipelineScheduleSingle | PipelineScheduleMulti
        pipeline = kind(made if issubclass(kind, PipelineScheduleMulti) else made[0], microbatches, loss_fn=loss_of)
        return pipeline


def inner(part: nn.Module) -> nn.Module:
    """The module that DDP wraps, or the module itself."""
    unwrapped: nn.Module = part.module if isinstance(part, DistributedDataParallel) else part
    return unwrapped


def schedule_of(layout: Parallelism) -> PipelineSchedule:
    """The schedule of a pipeline."""
    return layout.schedule or PipelineSchedule.ONE_F_ONE_B


def stages_of(layout: Parallelism) -> int:
    """Stages of the whole pipeline; 1: none."""
    return layout.pp * (STAGES_A_RANK if layout.pp > 1 and schedule_of(layout) is PipelineSchedule.INTERLEAVED else 1)


def _microbatches(ranks: int, accumulation: int) -> int:
    """Parts of a batch that keep all ranks of a pipeline at work, the micro-batches of accumulation or parts of these."""
    return accumulation if accumulation >= ranks else accumulation * ranks


def check(layout: Parallelism, model: ByteGPT, stages: int, batch: int, microbatches: int) -> None:
    """Raises ValueError where the model or the batch does not divide."""
    if len(model.blocks) < stages:
        raise ValueError(f"{len(model.blocks)} layers for {stages} pipeline stages; give --layers {stages}, or a smaller pp")
    if model.heads % layout.tp:
        raise ValueError(f"{model.heads} heads do not divide by tp = {layout.tp}; give --heads a multiple of it, or a smaller tp")
    if stages > 1 and batch % microbatches:
        way = f"give --batch a multiple of {microbatches}, or --microbatches N"
        raise ValueError(f"batch {batch} does not divide into {microbatches} microbatches; {way}")
