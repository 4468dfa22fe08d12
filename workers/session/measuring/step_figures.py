"""Figures of a rank's steps as points beside the program's own: `step/…_ms`, `step/flops`, `mfu`, `tokens_per_s`, `samples_per_s`,
`gradient_norm`, `pipeline/bubble`.

Holds: every EVERY_S, means of the steps since the last points; the first points come after FIRST_S, the last ones when the steps end.
What is unknown has no point. A metric that the program logs by the same name is the program's. Rates of the whole gang are rank 0's.
A spool that is full, or an error of the figures' own, ends them, not training.
FLOPs are counted only where the program asks for it. TRAINHOUSE_STEP_FIGURES=0 turns them off.
Never: changes what the program computes; asks other ranks; waits for a device.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging.sink import Sink
from trainhouse.workers.session.measuring.arithmetic import Stretch, bubble_share, mfu, rates_per_s, split_ms, weighted_mean
from trainhouse.workers.session.measuring.device_peaks import mixed_peak
from trainhouse.workers.session.measuring.flop_count import MAX_SHAPES, ByPrecision, FlopCount, Shapes
from trainhouse.workers.session.measuring.gradient_norm import GradientNorm
from trainhouse.workers.session.measuring.guard import Guard, guarded
from trainhouse.workers.session.measuring.step_split import Sample, StepSplit
from trainhouse.workers.session.saving.tracked_state import Tracked
from trainhouse.workers.session.steps.progress import Progress
from trainhouse.workers.spool import SpoolError

FIRST_S, EVERY_S = 3.0, 10.0
MIN_STEPS, MIN_S = 2, 1.0
"""Of steps since the last points, for points of their own when the steps end."""
RARE = 0.1
"""Share of the sampled steps whose shapes may be uncounted, as an epoch's smaller last batch is."""
Reading = tuple[float, int, float, float, float]
"""Time, finished steps, and the seconds of waits for data, of saves' stalls and of announced phases until then."""
Counted = tuple[ByPrecision | None]


@dataclass(frozen=True)
class Amounts:
    """The loop's own facts. `per_step`: by unit, what one step of the whole gang works through; `peak_tflops`: of this rank's device;
    `count_flops`: whether FLOPs may be counted; `microbatches`: of a pipeline's step.
    """

    per_step: Mapping[str, float] = field(default_factory=dict)
    peak_tflops: float | None = None
    count_flops: bool = False
    microbatches: int | None = None


class StepFigures:
    """Figures of one rank. All calls come from the training thread."""

    def __init__(self, context: Context, progress: Progress, sink: Sink, device: torch.device) -> None:
        self.guard = Guard()
        self._on = context.spool is not None and context.step_figures
        self._rank = context.rank
        self._parallelism = context.parallelism
        self._stages = 1
        self._progress = progress
        self._sink = sink
        self._device = device
        self._split = StepSplit(self.guard)
        self._flops = FlopCount()
        self._norm = GradientNorm()
        self._amounts = Amounts()
        self._to_count: Shapes | None = None
        self._stepping = False
        self._shapes: Counter[Shapes] = Counter()
        self._sampled = 0
        self._since: Reading = (0.0, 0, 0.0, 0.0, 0.0)
        self._last = self._since
        self._due_at = 0.0

    @guarded
    def watch(self, tracked: Tracked) -> None:
        """Measures these models and optimizers from now on. Call it once."""
        if not self._on:
            return
        self._stages = max(1, len(tracked.models))
        self._split.watch(tracked.models, tracked.optimizers)
        if len(tracked.models) == 1:
            self._flops.watch(tracked.models[0])
        if len(tracked.optimizers) == 1:
            self._split.before_optimizer = lambda optimizer: self._norm.measure(optimizer, self._split.clock)

    @guarded
    def begin(self, step: int, now: float, amounts: Amounts) -> None:
        """The steps begin at `step`."""
        self._amounts = amounts
        self._stepping = self._on
        self._due_at = now + FIRST_S
        self._since = self._last = self._reading(step, now)

    @guarded
    def step_begins(self, now: float) -> None:
        """A step begins."""
        if not self._stepping:
            return
        self._norm.wanted = not self._logged("gradient_norm")
        self._split.begin(now)
        if self._to_count is not None:
            self._split.force()
            self._flops.begin()

    def step_ends(self, step: int, now: float, undisturbed: bool) -> None:
        """A step ended: `step` of them are finished. Writes points if it is time."""
        counted = self._stop_counting()
        self._take_step(step, now, undisturbed, counted)

    @guarded
    def _take_step(self, step: int, now: float, undisturbed: bool, counted: Counted | None) -> None:
        if not self._stepping:
            return
        self._last = self._reading(step, now)
        sample = self._split.end(undisturbed and not counted)
        if sample is not None:
            self._take_flops(sample, counted, undisturbed)
        if now >= self._due_at:
            self._report()

    @property
    def counting(self) -> bool:
        """Whether the step under way is slowed by the count of its FLOPs."""
        return self._flops.counting

    def left(self) -> None:
        """The program is out of the steps: the last points, of the steps since the last ones, up to the end of the last one."""
        self._stop_counting()
        self._take_last()

    @guarded
    def _take_last(self) -> None:
        if not self._stepping:
            return
        self._split.end(undisturbed=False)
        if self._last[1] - self._since[1] >= MIN_STEPS and self._last[0] - self._since[0] >= MIN_S:
            self._report()
        self._stepping = False

    def _stop_counting(self) -> Counted | None:
        """Ends the count of the step, if there is one, also when the figures were turned off meanwhile; its result."""
        if not self._flops.counting:
            return None
        try:
            return (self._flops.end(),)
        except Exception as error:
            self.guard.failed(error)
            return None

    def _take_flops(self, sample: Sample, counted: Counted | None, undisturbed: bool) -> None:
        asked, self._to_count = self._to_count, None
        if not undisturbed:  # its forward passes are perhaps an evaluation's
            if counted is not None and asked is not None:
                self._flops.disturbed()
                self._to_count = asked if self._flops.lacks(asked) else None
            return
        if counted is not None and asked is not None:
            self._flops.keep(sample.shapes, counted[0])
            if sample.shapes != asked:
                self._flops.missed(asked)
        if self._amounts.count_flops and self._flops.lacks(sample.shapes):
            self._to_count = sample.shapes
        self._sampled += 1
        if len(self._shapes) <= MAX_SHAPES or sample.shapes in self._shapes:
            self._shapes[sample.shapes] += 1

    def _mean_flops(self) -> ByPrecision:
        """FLOPs of a step over the shapes that were sampled, by precision; none if shapes that are not counted are more than a few."""
        flops = [(self._flops.of(shapes), times) for shapes, times in self._shapes.items()]
        known = [(each, times) for each, times in flops if each is not None]
        enough = sum(times for _, times in known) >= (1 - RARE) * self._sampled
        self._shapes.clear()
        self._sampled = 0
        if not enough:
            return {}
        precisions = {precision for each, _ in known for precision in each}
        return {p: weighted_mean((each.get(p, 0.0), times) for each, times in known) or 0.0 for p in precisions}

    def _peak(self, flops: ByPrecision) -> float | None:
        if self._amounts.peak_tflops is not None:
            return self._amounts.peak_tflops * 1e12
        return mixed_peak(torch.cuda.get_device_name(self._device), flops) if flops and self._device.type == "cuda" else None

    def _reading(self, step: int, now: float) -> Reading:
        doing = self._progress.activity.now.upto(now)
        return now, step, doing.data_wait_s, doing.save_stall_s, doing.busy_s

    def _report(self) -> None:
        began, first, data_s, stall_s, busy_s = self._since
        now, step, data_end_s, stall_end_s, busy_end_s = self._since = self._last
        flops = self._mean_flops()
        stretch = Stretch(
            steps=step - first,
            passed_s=now - began - (busy_end_s - busy_s),
            data_s=data_end_s - data_s,
            stall_s=stall_end_s - stall_s,
            sampled_ms=self._split.taken_ms(),
            flops=sum(flops.values()) or None,
            amounts=self._amounts.per_step,
        )
        self._due_at = now + EVERY_S
        try:
            self._sink.metrics(max(0, step - 1), time.time_ns() // 1_000_000, self._points(stretch, self._peak(flops)))
        except SpoolError:
            self._stepping = False  # the program's own next line tells it, where somebody sees it

    def _points(self, stretch: Stretch, peak: float | None) -> dict[str, float]:
        rates = rates_per_s(stretch) if self._rank == 0 else {}
        self._progress.measured_samples_per_s = rates.get("samples_per_s")
        found: dict[str, float | None] = {f"step/{name}_ms": ms for name, ms in split_ms(stretch).items()}
        found |= {"step/flops": stretch.flops, "mfu": mfu(stretch.flops, stretch.steps, stretch.passed_s, peak)}
        if self._rank == 0 and self._parallelism is not None:
            found["pipeline/bubble"] = bubble_share(self._parallelism.pp, self._amounts.microbatches, self._stages)
        found |= {**rates, "gradient_norm": self._norm.taken(self._split.clock)}
        return {name: value for name, value in found.items() if value is not None and not self._logged(name)}

    def _logged(self, name: str) -> bool:
        return name in self._progress.latest
