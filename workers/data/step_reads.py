"""Positions that each step used of an order, as runs of steps, and the shards that they lie in. Pure.

Positions count through the passes: the number of the pass times the samples of a pass, plus the position within the pass.
Holds: runs give the positions of each step exactly, in the order of use; a regular program has one run, however long it trains.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

import numpy as np

from trainhouse.workers.data.batches import Span
from trainhouse.workers.data.order import Order, Positions

STRETCH_STEPS: Final = 1024
"""Shards are listed by stretches of steps that begin at multiples of this, and wherever an attempt begins or a save is staged."""
AT_ONCE: Final = 16_384


@dataclass(frozen=True, slots=True)
class Run:
    """Steps of one attempt that used equally many positions, one after another: step `first_step + k` used `per_step` from
    `begin + k * per_step` on. `padded`: positions beyond the pass are that pass's again, from its beginning."""

    epoch: int
    first_step: int
    steps: int
    begin: int
    per_step: int
    padded: bool = False

    @property
    def end_step(self) -> int:
        """The step after its last one."""
        return self.first_step + self.steps

    def within(self, first_step: int, end_step: int) -> "Run | None":
        """Its part from `first_step` up to `end_step`, which is not in it."""
        first, end = max(first_step, self.first_step), min(end_step, self.end_step)
        if first >= end:
            return None
        return replace(self, first_step=first, steps=end - first, begin=self.begin + (first - self.first_step) * self.per_step)


class StepRuns:
    """Runs of the finished steps of one loader, oldest first. `used` costs about a microsecond."""

    def __init__(self, epoch: int) -> None:
        self.runs: list[Run] = []
        self._epoch = epoch
        self._of_step: list[Span] = []

    def used(self, span: Span) -> None:
        """A batch of the step under way used these positions."""
        last = self._of_step[-1] if self._of_step else None
        if last is not None and last.begin + last.positions == span.begin and not last.padded and not span.padded:
            self._of_step[-1] = Span(last.begin, last.positions + span.positions)
        else:
            self._of_step.append(span)

    def finished(self, step: int) -> None:
        """The step under way is finished, and was number `step`: what was used since the one before belongs to it."""
        spans, self._of_step = self._of_step, []
        for span in spans:
            last = self.runs[-1] if self.runs else None
            if last is not None and _continues(last, step, span) and last.epoch == self._epoch:
                self.runs[-1] = Run(last.epoch, last.first_step, last.steps + 1, last.begin, last.per_step, last.padded)
            else:
                self.runs.append(Run(self._epoch, step, 1, span.begin, span.positions, span.padded))


def _continues(run: Run, step: int, span: Span) -> bool:
    follows = run.end_step == step and run.begin + run.steps * run.per_step == span.begin
    return follows and run.per_step == span.positions and not run.padded and not span.padded


@dataclass(slots=True)
class ShardSteps:
    """Samples that steps of a stretch read of one shard, and the runs of those steps: first step and number of steps of each."""

    samples: int = 0
    runs: list[tuple[int, int]] = field(default_factory=list)

    def add(self, first_step: int, steps: int, samples: int) -> None:
        """Counts a run of steps, which begins in the last step of those before, or later."""
        self.samples += samples
        if self.runs:
            first, count = self.runs[-1]
            if first_step <= first + count:
                self.runs[-1] = (first, max(count, first_step + steps - first))
                return
        self.runs.append((first_step, steps))


class Stretch:
    """Shards that the steps of a stretch read, by the number of the shard among all shards of the loader's datasets. `end_step`: of the
    steps that are counted so far."""

    def __init__(self, epoch: int, first_step: int) -> None:
        self.epoch, self.first_step, self.end_step = epoch, first_step, first_step
        self.shards: dict[int, ShardSteps] = {}
        self.changed: set[int] = set()

    def add(self, runs: Iterable[Run], end_step: int, order: Order, shard_ends: Positions) -> None:
        """Counts the steps from `end_step` of before up to the new one. Costs about two microseconds a position."""
        for run in runs:
            part = run.within(self.end_step, end_step)
            if part is not None and part.epoch == self.epoch:
                for shard, first_step, steps, samples in _of_run(part, order, shard_ends):
                    self.shards.setdefault(shard, ShardSteps()).add(first_step, steps, samples)
                    self.changed.add(shard)
        self.end_step = end_step


def stretches(first_step: int, end_step: int, cuts: Iterable[int]) -> list[tuple[int, int]]:
    """Stretches, by first step and the step after the last, that the steps up to `end_step` are listed by; the first one is that of
    `first_step`. `cuts`: further steps that stretches begin at."""
    begin = first_step // STRETCH_STEPS * STRETCH_STEPS
    bounds = {begin, end_step, *range(begin, end_step, STRETCH_STEPS), *(cut for cut in cuts if begin < cut < end_step)}
    return [(first, end) for first, end in pairwise(sorted(bounds)) if end > first_step]


def _of_run(run: Run, order: Order, shard_ends: Positions) -> Iterator[tuple[int, int, int, int]]:
    """Yields each shard with a first step, a number of steps and of samples; of one shard, in the order of its steps."""
    total = run.steps * run.per_step
    for at in range(0, total, AT_ONCE):
        offsets = np.arange(at, min(total, at + AT_ONCE), dtype=np.int64)
        data_pass, position = np.divmod(run.begin + offsets, order.samples)
        if run.padded:
            data_pass = np.full_like(data_pass, run.begin // order.samples)
        shard = np.searchsorted(shard_ends, order.indices(data_pass, position), "right")
        pairs, counts = np.unique(shard * (run.steps + 1) + offsets // run.per_step, return_counts=True)
        # Neighbouring steps of one shard are neighbouring numbers; those of two shards are not, as the last number of each is left out.
        breaks = np.flatnonzero(np.diff(pairs) != 1) + 1
        for first, samples, steps in zip(
            pairs[np.append(0, breaks)].tolist(),
            np.add.reduceat(counts, np.append(0, breaks)).tolist(),
            np.diff(np.concatenate(([0], breaks, [len(pairs)]))).tolist(),
            strict=True,
        ):
            number, step = divmod(first, run.steps + 1)
            yield number, run.first_step + step, steps, samples


def shard_ends_of(parts: Sequence[Sequence[int]]) -> Positions:
    """The index after the last one of each shard, through all parts, one after another; from the samples of each part's shards."""
    return np.cumsum(np.array([size for sizes in parts for size in sizes], np.int64))
