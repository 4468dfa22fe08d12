"""Evaluation of the tracked models on batches that are not trained on.

Holds: models are in eval mode meanwhile, each module is then as it was, and no gradient is kept. Ranks of DDP may have any number of
batches, none included: buffers are made alike once before, and no forward pass waits for another rank. The means are over all ranks,
weighted by the samples of each batch; ranks that read the same share count alike, and one that measures nothing (a pipeline's first) not
at all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

T = TypeVar("T")
SAMPLES = "samples"


def means(
    models: Sequence[torch.nn.Module],
    batches: Iterable[T],
    measure: Callable[[T], Mapping[str, Any]],
    group: dist.ProcessGroup | None,
) -> dict[str, float]:
    """Means of what `measure` returns; its `samples` is a batch's weight. Collective."""
    sums: dict[str, tuple[float, float]] = {}
    with _evaluated(models), torch.no_grad():
        for batch in batches:
            values = dict(measure(batch))
            weight = float(values.pop(SAMPLES, 1))
            for name, value in values.items():
                total, weights = sums.get(name, (0.0, 0.0))
                sums[name] = (total + float(value) * weight, weights + weight)
    everywhere = [sums]
    if group is not None:
        everywhere = [{} for _ in range(group.size())]
        dist.all_gather_object(everywhere, sums, group=group)
    names = dict.fromkeys(name for of_rank in everywhere for name in of_rank)
    return {name: _mean([of_rank[name] for of_rank in everywhere if name in of_rank]) for name in names}


def _mean(parts: list[tuple[float, float]]) -> float:
    weight = sum(weight for _, weight in parts)
    return sum(total for total, _ in parts) / weight if weight else float("nan")


@contextmanager
def _evaluated(models: Sequence[torch.nn.Module]) -> Iterator[None]:
    before = [(module, module.training) for model in models for module in model.modules()]
    synced = [module for module, _ in before if isinstance(module, DistributedDataParallel) and module.require_forward_param_sync]
    for replicated in synced:
        _broadcast_buffers(replicated)
        replicated.require_forward_param_sync = False
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for replicated in synced:
            replicated.require_forward_param_sync = True
        for module, training in before:
            module.training = training


def _broadcast_buffers(replicated: DistributedDataParallel) -> None:
    """Gives all ranks the first one's buffers, as each forward pass in training does: DDP would do it in the first of an evaluation."""
    if replicated.broadcast_buffers:
        for buffer in replicated.buffers():
            dist.broadcast(buffer, group=replicated.process_group, group_src=0)
