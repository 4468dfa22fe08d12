"""Figures of a rank's steps as points beside the program's own: `step/…_ms`, `step/flops`, `mfu`, `tokens_per_s`, `samples_per_s`,
`gradient_norm`.

Holds: every EVERY_S, means of the steps since the last points; the first points come after FIRST_S, the last ones when the steps end.
What is unknown has no point. A metric that the program logs by the same name is the program's. Rates of the whole gang are rank 0's.
A spool that is full ends the figures, not training. TRAINHOUSE_STEP_FIGURES=0 turns them off.
Never: changes what the program computes; asks other ranks; waits for a device.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging.sink import Sink
from trainhouse.workers.session.measuring.arithmetic import Stretch, mfu, rates_per_s, split_ms, weighted_mean
from trainhouse.workers.session.measuring.device_peaks import peak_flops
from trainhouse.workers.session.measuring.flop_count import MAX_SHAPES, FlopCount, Shapes
from trainhouse.workers.session.measuring.gradient_norm import GradientNorm
from trainhouse.workers.session.measuring.step_split import Sample, StepSplit
from trainhouse.workers.session.saving.tracked_state import Tracked
from trainhouse.workers.session.steps.progress import Progress
from trainhouse.workers.spool import SpoolError

FIRST_S, EVERY_S = 3.0, 10.0
MIN_STEPS, MIN_S = 2, 1.0
"""Of steps since the last points, for points of their own when the steps end."""


@dataclass(frozen=True)
class Amounts:
    """The loop's own facts. `per_step`: by unit, what one step of the whole gang works through; `peak_tflops`: of this rank's device."""

    per_step: Mapping[str, float] = field(default_factory=dict)
    peak_tflops: float | None = None


class StepFigures:
    """Figures of one rank. All calls come from the training thread."""

    def __init__(self, context: Context, progress: Progress, sink: Sink, device: torch.device) -> None:
        self._on = context.spool is not None and context.step_figures
        self._rank = context.rank
        self._progress = progress
        self._sink = sink
        self._device = device
        self._split = StepSplit()
        self._flops = FlopCount()
        self._norm = GradientNorm()
        self._amounts = Amounts()
        self._count_next = False
        self._counting = False
        self._stepping = False
        self._shapes: Counter[Shapes] = Counter()
        self._peak: float | None = None
        self._since = (0.0, 0, 0.0, 0.0, 0.0)
        self._due_at = 0.0

    def watch(self, tracked: Tracked) -> None:
        """Measures these models and optimizers from now on. Call it once."""
        if not self._on:
            return
        self._split.watch(tracked.models, tracked.optimizers)
        if len(tracked.models) == 1:
            self._flops.watch(tracked.models[0])
        if len(tracked.optimizers) == 1:
            self._split.before_optimizer = lambda optimizer: self._norm.measure(optimizer, self._split.clock)

    def begin(self, step: int, now: float, amounts: Amounts) -> None:
        """The steps begin at `step`."""
        self._amounts = amounts
        self._peak = None if amounts.peak_tflops is None else amounts.peak_tflops * 1e12
        self._stepping = self._on
        self._due_at = now + FIRST_S
        self._restart(step, now)

    def step_begins(self, now: float) -> None:
        """A step begins."""
        if not self._stepping:
            return
        self._norm.wanted = not self._logged("gradient_norm")
        self._split.begin(now)
        if self._count_next:
            self._count_next, self._counting = False, True
            self._split.force()
            self._flops.begin()

    def step_ends(self, step: int, now: float, undisturbed: bool) -> None:
        """A step ended: `step` of them are finished. Writes points if it is time."""
        if not self._stepping:
            return
        counted = self._stop_counting()
        sample = self._split.end(undisturbed and not counted)
        if sample is not None:
            self._take_flops(sample, counted)
        if now >= self._due_at:
            self._report(step, now)

    @property
    def counting(self) -> bool:
        """Whether the step under way is slowed by the count of its FLOPs."""
        return self._counting

    def left(self, step: int, now: float) -> None:
        """The program is out of the steps: the last points, of the steps since the last ones."""
        if not self._stepping:
            return
        self._stop_counting()
        self._split.end(undisturbed=False)
        if step - self._since[1] >= MIN_STEPS and now - self._since[0] >= MIN_S:
            self._report(step, now)
        self._stepping = False

    def _stop_counting(self) -> tuple[float | None] | None:
        """Ends the count of the step, if there is one; its result."""
        if not self._counting:
            return None
        self._counting = False
        return (self._flops.end(),)

    def _take_flops(self, sample: Sample, counted: tuple[float | None] | None) -> None:
        if counted is not None:
            self._flops.keep(sample.shapes, counted[0])
        self._count_next = self._flops.lacks(sample.shapes)
        if len(self._shapes) <= MAX_SHAPES or sample.shapes in self._shapes:
            self._shapes[sample.shapes] += 1
        if self._amounts.peak_tflops is None and self._device.type == "cuda":
            self._peak = peak_flops(torch.cuda.get_device_name(self._device), sample.precision)

    def _mean_flops(self) -> float | None:
        """FLOPs of a step over the shapes that were sampled; None if one of them is not counted."""
        flops = [(self._flops.of(shapes), times) for shapes, times in self._shapes.items()]
        self._shapes.clear()
        known = [(each, times) for each, times in flops if each is not None]
        return weighted_mean(known) if len(known) == len(flops) else None

    def _restart(self, step: int, now: float) -> None:
        doing = self._progress.activity.now.upto(now)
        self._since = (now, step, doing.data_wait_s, doing.save_stall_s, doing.busy_s)

    def _report(self, step: int, now: float) -> None:
        began, first, data_s, stall_s, busy_s = self._since
        doing = self._progress.activity.now.upto(now)
        stretch = Stretch(
            steps=step - first,
            passed_s=now - began - (doing.busy_s - busy_s),
            data_s=doing.data_wait_s - data_s,
            stall_s=doing.save_stall_s - stall_s,
            sampled_ms=self._split.taken_ms(),
            flops=self._mean_flops(),
            amounts=self._amounts.per_step,
        )
        self._due_at = now + EVERY_S
        self._restart(step, now)
        try:
            self._sink.metrics(max(0, step - 1), time.time_ns() // 1_000_000, self._points(stretch))
        except SpoolError:
            self._stepping = False  # the program's own next line tells it, where somebody sees it

    def _points(self, stretch: Stretch) -> dict[str, float]:
        rates = rates_per_s(stretch) if self._rank == 0 else {}
        self._progress.measured_samples_per_s = rates.get("samples_per_s")
        found: dict[str, float | None] = {f"step/{name}_ms": ms for name, ms in split_ms(stretch).items()}
        found |= {"step/flops": stretch.flops, "mfu": mfu(stretch.flops, stretch.steps, stretch.passed_s, self._peak)}
        found |= {**rates, "gradient_norm": self._norm.taken(self._split.clock)}
        return {name: value for name, value in found.items() if value is not None and not self._logged(name)}

    def _logged(self, name: str) -> bool:
        return name in self._progress.latest
