"""Figures of a step: their arithmetic, and what is measured around real models and optimizers."""

import copy
import json
import pickle
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from tests.support.hand_clock import HandClock, Hands
from trainhouse.events import RankActivity
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.errors import InvalidUseError
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.measuring import step_split
from trainhouse.workers.session.measuring.arithmetic import Stretch, bubble_share, mfu, rates_per_s, split_ms, weighted_mean
from trainhouse.workers.session.measuring.device_peaks import mixed_peak, peak_flops
from trainhouse.workers.session.measuring.flop_count import MAX_MISSES, MAX_SHAPES, FlopCount
from trainhouse.workers.session.measuring.gradient_norm import GradientNorm
from trainhouse.workers.session.measuring.step_figures import Amounts, StepFigures
from trainhouse.workers.session.measuring.step_split import StepSplit
from trainhouse.workers.session.saving.tracked_state import Tracked
from trainhouse.workers.session.session import Session
from trainhouse.workers.session.steps.progress import Progress
from trainhouse.workers.session.steps.worktime import HostClock

torch.set_num_threads(1)


class TestArithmetic:
    def test_parts_add_up_to_the_step(self) -> None:
        sampled = {"forward": (10.0, 20.0), "backward": (30.0,), "optimizer": ()}
        parts = split_ms(Stretch(10, 1.0, data_s=0.1, stall_s=0.2, sampled_ms=sampled))
        assert parts == pytest.approx({"data": 10, "forward": 15, "backward": 30, "stall": 20, "rest": 25, "total": 100})

    def test_what_was_not_measured_is_left_out_and_its_time_is_in_the_rest(self) -> None:
        assert split_ms(Stretch(4, 2.0)) == {"data": 0.0, "stall": 0.0, "rest": 500.0, "total": 500.0}

    def test_parts_that_overlap_leave_no_negative_rest(self) -> None:
        assert split_ms(Stretch(1, 0.01, sampled_ms={"forward": (8.0,), "backward": (9.0,)}))["rest"] == 0.0

    def test_without_steps_or_time_nothing_is_known(self) -> None:
        for stretch in (Stretch(0, 1.0, amounts={"tokens": 5.0}), Stretch(3, 0.0, amounts={"tokens": 5.0})):
            assert split_ms(stretch) == {} == rates_per_s(stretch)

    def test_rates(self) -> None:
        stretch = Stretch(20, 4.0, amounts={"tokens": 1000.0, "samples": 8.0})
        assert rates_per_s(stretch) == {"tokens_per_s": 5000.0, "samples_per_s": 40.0}

    @pytest.mark.parametrize(
        ("flops", "steps", "passed_s", "peak", "share"),
        [(4e12, 10, 0.1, 989.5e12, 4e14 / 989.5e12), (None, 1, 1, 1, None), (1, 1, 1, None, None), (1, 0, 1, 1, None), (1, 1, 0, 1, None)],
    )
    def test_mfu(self, flops: float | None, steps: int, passed_s: float, peak: float | None, share: float | None) -> None:
        assert mfu(flops, steps, passed_s, peak) == (None if share is None else pytest.approx(share))

    @pytest.mark.parametrize(
        ("ranks", "microbatches", "stages", "share"), [(4, 8, 1, 3 / 11), (4, 8, 2, 3 / 19), (1, 8, 1, None), (4, None, 1, None)]
    )
    def test_bubbles_of_schedules(self, ranks: int, microbatches: int | None, stages: int, share: float | None) -> None:
        assert bubble_share(ranks, microbatches, stages) == share

    def test_weighted_means(self) -> None:
        assert weighted_mean([]) is None and weighted_mean([(10.0, 1), (40.0, 2)]) == 30.0


@pytest.mark.parametrize(
    ("name", "precision", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5),
        ("NVIDIA H100 PCIe", "bf16", 756.5),
        ("NVIDIA H200", "tf32", 494.5),
        ("NVIDIA A100-SXM4-80GB", "fp16", 312.0),
        ("NVIDIA A100 80GB PCIe", "fp32", 19.5),
        ("NVIDIA L40S", "bf16", 362.05),
        ("NVIDIA L40", "bf16", 181.05),
        ("Tesla V100-SXM2-16GB", "bf16", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bf16", None),
        ("NVIDIA H100", "bf16", None),
        ("cpu", "fp32", None),
        ("NVIDIA H200", None, None),
    ],
)
def test_peaks_of_devices(name: str, precision: Any, tera: float | None) -> None:
    assert peak_flops(name, precision) == (None if tera is None else tera * 1e12)


class Slow(torch.autograd.Function):
    """Takes 5 ms forward and 11 ms backward."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        Hands.now_ms += 5
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        Hands.now_ms += 11
        return gradient


class SlowModel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(Slow.apply(self.first(x)))  # type: ignore[no-untyped-call]
        return out


class SlowSGD(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        Hands.now_ms += 7
        return super().step(closure)


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    torch.optim.SGD(model.parameters(), lr=0.01)  # torch hooks into the step of each class that has an instance: both of them here
    return SlowSGD(model.parameters(), lr=0.01)


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_split, "HostClock", HandClock)


def split_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int, passes: int = 1) -> StepSplit:
    split = StepSplit()
    split.watch([model], [optimizer])
    for number in range(steps):
        split.begin(float(number))
        Hands.now_ms += 2
        for _ in range(passes):
            model(torch.ones(2, 3)).sum().backward()
            Hands.now_ms += 3
        optimizer.step()
        optimizer.zero_grad()
        split.end(undisturbed=True)
    return split


@pytest.mark.usefixtures("by_hand")
class TestStepSplit:
    @pytest.mark.parametrize("passes", [1, 3])
    def test_each_part_by_itself(self, passes: int) -> None:
        model = SlowModel()
        taken = split_of(model, optimizer_of(model), 5, passes).taken_ms()
        assert taken["forward"] == (5.0 * passes,) * 4, "the first step warms up"
        assert taken["backward"] == (11.0 * passes,) * 3, "and the next one finds the parameter whose gradient comes last"
        assert taken["optimizer"] == (7.0,) * 4

    def test_a_forward_pass_outside_of_training_does_not_count(self) -> None:
        model = SlowModel()
        model.eval()
        assert set(split_of(model, optimizer_of(model), 4).taken_ms()) == {"optimizer"}

    def test_steps_that_follow_too_soon_are_not_sampled(self) -> None:
        model = SlowModel()
        split = StepSplit()
        split.watch([model], [])
        for number in range(101):
            split.begin(number * 0.001)
            model(torch.ones(1, 3))
            split.end(undisturbed=True)
        assert len(split.taken_ms()["forward"]) == 2

    def test_a_disturbed_step_does_not_count(self) -> None:
        split = StepSplit()
        model = SlowModel()
        split.watch([model], [])
        for number in range(3):
            split.begin(float(number))
            model(torch.ones(1, 3))
            split.end(undisturbed=False)
        assert split.taken_ms() == {}

    def test_an_optimizer_that_evaluates_the_model_itself_has_no_split(self) -> None:
        model = SlowModel()
        optimizer, split = torch.optim.LBFGS(model.parameters(), max_iter=2), StepSplit()
        split.watch([model], [optimizer])

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(torch.ones(1, 3)).square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        for number in range(4):
            split.begin(float(number))
            optimizer.step(closure)
            split.end(undisturbed=True)
        assert split.taken_ms() == {}

    def test_another_parameter_that_comes_last_is_found_again(self) -> None:
        model = SlowModel()
        optimizer, split = optimizer_of(model), StepSplit()
        split.watch([model], [optimizer])
        for number in range(8):
            model.first.requires_grad_(number < 4)
            split.begin(float(number))
            model(torch.ones(1, 3, requires_grad=True)).sum().backward()
            optimizer.step()
            split.end(undisturbed=True)
        # 2, 3: before; 4 misses it, 5 looks for it, 6 and 7 have it: what comes before the first layer is no parameter's any more.
        assert split.taken_ms()["backward"] == (11.0, 11.0)

    def test_hooks_are_no_part_of_copies(self) -> None:
        model = SlowModel()
        split_of(model, optimizer_of(model), 4)
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(twin(torch.ones(1, 3)), model(torch.ones(1, 3)))
            twin(torch.ones(1, 3)).sum().backward()


def net() -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))


FLOPS = 3 * 2 * 8 * (16 * 32 + 32 * 4) - 2 * 8 * 16 * 32
"""Of a step of `net` with 8 rows: two products backward for each forward, but none for the gradient of the input."""


class Run:
    """Steps of a real model with real figures and a real spool; time is the test's own."""

    def __init__(self, folder: Path, model: torch.nn.Module, amounts: Amounts | None = None, optimizers: int = 1, on: bool = True) -> None:
        self.model = model
        self.context = Context(spool=folder / "spool.jsonl", step_figures=on)
        self.sink = open_sink(self.context)
        self.progress = Progress(0, self.sink.progress)
        self.figures = StepFigures(self.context, self.progress, self.sink, torch.device("cpu"))
        self.optimizer = [torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(optimizers)]
        self.figures.watch(Tracked(model=model, optimizer=self.optimizer))
        self.progress.begin(0, None, 0.0, 0)
        self.figures.begin(0, 0.0, amounts or Amounts(count_flops=True))
        self.counted = 0

    def steps(self, count: int, rows: Callable[[int], int] = lambda step: 8, each: Callable[[int], None] = lambda step: None) -> None:
        torch.manual_seed(7)
        for step in range(count):
            self.figures.step_begins(step / 10)
            self.counted += self.figures.counting
            self.model(torch.randn(rows(step), 16)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            for optimizer in self.optimizer:
                optimizer.step()
                optimizer.zero_grad()
            each(step)
            self.progress.stepped(step + 1, (step + 1) / 10, 0)
            self.figures.step_ends(step + 1, (step + 1) / 10, undisturbed=True)
        self.figures.left()

    def points(self) -> list[dict[str, float]]:
        lines = map(json.loads, (self.context.spool or Path()).read_text().splitlines())
        return [line[3] for line in lines if line[0] == "m"]


class TestFigures:
    def test_flops_rates_and_mfu_of_a_run(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net(), Amounts({"tokens": 80.0, "samples": 8.0}, peak_tflops=1e-6, count_flops=True))
        run.steps(140)
        first, second, last = run.points()
        assert run.counted == 1, "FLOPs are counted on one step"
        for points in (first, second, last):
            assert points["step/flops"] == FLOPS and points["mfu"] == pytest.approx(FLOPS * 10 / 1e6)
            assert points["tokens_per_s"] == pytest.approx(800) and points["samples_per_s"] == pytest.approx(80)
            assert points["step/total_ms"] == pytest.approx(100) and points["step/forward_ms"] > 0 and points["step/backward_ms"] > 0
        assert run.progress.measured_samples_per_s == pytest.approx(80)
        assert "step/communication_ms" not in first, "what cannot be told apart has no point"

    def test_without_a_known_peak_there_is_no_mfu(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net())
        run.steps(40)
        assert all("mfu" not in points and "tokens_per_s" not in points and points["step/flops"] == FLOPS for points in run.points())

    def test_shapes_are_counted_once_each(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net())
        run.steps(200, rows=lambda step: 8 if step % 4 < 2 else 16)
        assert run.counted == 2 and run.points()[-1]["step/flops"] == pytest.approx(1.5 * FLOPS, rel=0.1)

    def test_of_too_many_shapes_the_flops_are_unknown(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net())
        run.steps(200, rows=lambda step: 1 + step % 50)
        assert run.counted == MAX_SHAPES and "step/flops" not in run.points()[-1]

    def test_weights_are_those_of_a_run_that_is_not_measured(self, tmp_path: Path) -> None:
        models = []
        for name, on in (("on", True), ("off", False)):
            (tmp_path / name).mkdir()
            run = Run(tmp_path / name, net(), on=on)
            run.steps(60)
            models.append(run.model)
            assert bool(run.points()) == on
        assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))

    def test_the_gradient_norm_is_what_the_optimizer_gets(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net())
        with torch.no_grad():
            run.model[3].weight.mul_(100)  # type: ignore[index, union-attr, operator]
        run.steps(40)
        assert run.points()[0]["gradient_norm"] == pytest.approx(0.5, rel=1e-4), "clipped"

    def test_of_several_optimizers_it_is_unknown(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net(), optimizers=2)
        run.steps(40)
        assert "gradient_norm" not in run.points()[0] and run.points()[0]["step/optimizer_ms"] > 0

    def test_a_metric_that_the_program_logs_is_the_programs(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net(), Amounts({"tokens": 80.0}))
        run.progress.latest.update({"gradient_norm": 3.0, "tokens_per_s": 7.0})
        run.steps(40)
        assert not {"gradient_norm", "tokens_per_s"} & set(run.points()[0])

    def test_a_full_spool_ends_the_figures_and_not_training(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net())
        assert run.context.spool is not None
        run.sink.close()
        tight = Context(spool=run.context.spool, spool_limit_bytes=1)
        run.figures._sink = open_sink(tight)
        run.steps(40)
        assert run.points() == []

    def test_a_step_that_raises_leaves_no_counter(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net())

        def fails(step: int) -> None:
            if run.figures.counting:
                raise ValueError("of its own making")

        with pytest.raises(ValueError, match="own making"):
            run.steps(40, each=fails)
        assert _len_torch_dispatch_stack() == 1
        run.figures.left()
        assert _len_torch_dispatch_stack() == 0


class TestFlopCount:
    def test_a_compiled_model_is_not_counted(self) -> None:
        whole, inner = net(), net()
        inner[0].compile()  # type: ignore[index, operator]
        for model in (torch.compile(whole), inner):
            count = FlopCount()
            count.watch(model)  # type: ignore[arg-type]
            assert not count.lacks(((8, 16),))

    def test_an_operation_that_cannot_be_counted_makes_the_step_unknown_and_runs(self) -> None:
        count = FlopCount()
        count.watch(net())
        count.begin()
        assert count._counter is not None

        def refuses(*args: Any, **kwargs: Any) -> int:
            raise AssertionError("no such shapes")

        count._counter.flop_registry[torch.ops.aten.mm] = refuses
        assert torch.equal(torch.ones(2, 2) @ torch.ones(2, 2), torch.full((2, 2), 2.0))
        assert count.end() is None


class Bare:
    """An optimizer that is none of torch's."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner

    def state_dict(self) -> Any:
        return self.inner.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.inner.load_state_dict(state)


class Wrapper(torch.optim.Optimizer):
    """One whose base was never initialized, as accelerate's."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


class Keywords(torch.nn.Module):
    """Takes keywords only, and returns a named tuple whose field is `values`."""

    Out = namedtuple("Out", "logits values")

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)

    def forward(self, *, x: torch.Tensor) -> Any:
        logits = self.layer(x)
        return self.Out(logits, logits.sum())


class Returning(torch.nn.Module):
    """Returns its own parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.nn.Parameter:
        return self.weight


def count_of(model: torch.nn.Module, work: Callable[[], Any]) -> Any:
    count = FlopCount()
    count.watch(model)
    count.begin()
    try:
        work()
    finally:
        found = count.end()
    return found


class TestProgramsOfOthers:
    def test_an_error_turns_the_figures_off_and_is_told_once(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run = Run(tmp_path, net())

        class Broken(HostClock):
            def mark(self) -> float:
                raise RuntimeError("CUDA error: device-side assert")

        run.figures._split.clock = Broken()
        run.steps(60)
        assert run.points() == [] and _len_torch_dispatch_stack() == 0
        assert capsys.readouterr().err.count("step figures are off, training goes on: RuntimeError: CUDA error") == 1

    def test_times_that_cannot_be_read_end_the_figures_only(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run = Run(tmp_path, net())

        class Unread(HostClock):
            def between_ms(self, one: float, other: float) -> float | None:
                raise RuntimeError("CUDA error")

        run.figures._split.clock = Unread()
        run.steps(60)
        assert run.points() == [] and "figures are off" in capsys.readouterr().err

    def test_an_error_within_a_counted_step_leaves_no_counter(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net())

        def fails(step: int) -> None:
            if run.figures.counting:
                run.figures.guard.failed(RuntimeError("of the figures"))

        run.steps(20, each=fails)
        assert run.counted == 1 and _len_torch_dispatch_stack() == 0 and run.points() == []

    def test_flops_are_counted_only_where_the_program_asks(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net(), Amounts(peak_tflops=1e-6))
        compiled = torch.compile(lambda x: x @ x, fullgraph=True, backend="eager")
        run.steps(60, each=lambda step: compiled(torch.ones(3, 3)))
        assert run.counted == 0 and run.points() and not {"step/flops", "mfu"} & set(run.points()[-1])

    def test_outputs_with_a_field_values_and_inputs_by_keyword(self) -> None:
        model, split = Keywords(), StepSplit()
        split.watch([model], [])
        samples = []
        for number in range(4):
            split.begin(float(number))
            model(x=torch.ones(8, 16)).logits.sum().backward()
            torch.ones(3).topk(2)
            samples.append(split.end(undisturbed=True))
        assert split.guard.on and split.taken_ms()["backward"]
        assert [s.shapes for s in samples if s is not None] == [((8, 16),)] * 3

    @pytest.mark.parametrize("kind", [Bare, Wrapper])
    def test_an_optimizer_without_hooks_is_not_measured(self, tmp_path: Path, kind: Any) -> None:
        model = net()
        run = Run(tmp_path, model)
        figures = StepFigures(run.context, run.progress, run.sink, torch.device("cpu"))
        figures.watch(Tracked(model=model, optimizer=kind(torch.optim.SGD(model.parameters(), lr=0.1))))
        assert figures.guard.on

    def test_hooks_of_outputs_do_not_pile_up(self) -> None:
        for model in (Returning(), net()):
            split = StepSplit()
            split.watch([model], [])
            x = torch.ones(8, 16)
            for number in range(4):
                split.begin(float(number))
                out = model(x)
                split.end(undisturbed=True)
                assert not out._backward_hooks


class TestCountedSteps:
    def test_a_disturbed_step_is_counted_again(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net())
        torch.manual_seed(7)
        for step in range(60):
            run.figures.step_begins(step / 10)
            run.counted += run.figures.counting
            evaluates = run.counted == 1 and run.figures.counting
            for _ in range(5 if evaluates else 1):
                run.model(torch.randn(8, 16)).square().mean().backward()
            run.progress.stepped(step + 1, (step + 1) / 10, 0)
            run.figures.step_ends(step + 1, (step + 1) / 10, undisturbed=not evaluates)
        run.figures.left()
        assert run.counted == 2 and run.points()[-1]["step/flops"] == FLOPS

    def test_forward_passes_under_eval_do_not_count(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net())

        def evaluates(step: int) -> None:
            run.model.eval()
            run.model(torch.randn(8, 16))
            run.model.train()

        run.steps(60, each=evaluates)
        assert run.points()[-1]["step/flops"] == FLOPS

    def test_a_smaller_last_batch_is_not_tried_for_ever(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net())
        run.steps(200, rows=lambda step: 5 if step % 20 == 19 else 8)
        assert run.counted == 1 + MAX_MISSES and run.points()[-1]["step/flops"] == FLOPS

    def test_an_operation_without_a_formula_makes_the_step_unknown(self) -> None:
        model, x = net(), torch.ones(8, 16)
        with torch.library._scoped_library("measured_test", "DEF") as library:
            library.define("twice(Tensor x) -> Tensor")
            library.impl("twice", lambda x: 2 * x, "CPU")
            assert count_of(model, lambda: torch.ops.measured_test.twice(model(x))) is None
        assert count_of(model, lambda: torch.relu(model(x))) is not None

    def test_the_precision_is_that_of_the_products(self) -> None:
        model, x = net(), torch.ones(8, 16)

        def work() -> None:
            with torch.autocast("cpu", torch.bfloat16):
                model(x)
            x @ torch.ones(16, 1)

        assert count_of(model, work) == {"bf16": 2 * 8 * (16 * 32 + 32 * 4), "fp32": 2 * 8 * 16}

    def test_a_share_above_the_peak_is_unknown(self) -> None:
        assert mfu(2.0, 1, 1.0, 1.0) is None

    def test_the_peak_of_mixed_work_is_weighted(self) -> None:
        assert mixed_peak("NVIDIA A30", {"bf16": 165.0, "tf32": 82.0}) == pytest.approx(247e12 / 2)
        assert mixed_peak("NVIDIA A30", {"bf16": 165.0, None: 1.0}) is None and mixed_peak("NVIDIA A30", {}) is None

    def test_the_wait_after_the_last_step_is_no_part_of_it(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net(), Amounts({"tokens": 80.0}))
        for step in range(25):
            run.figures.step_begins(step / 10)
            run.figures.step_ends(step + 1, (step + 1) / 10, undisturbed=True)
        run.progress.activity.begin(RankActivity.SAVING, 2.5, 0)
        run.progress.activity.begin(RankActivity.DONE, 100.0, 0)
        run.figures.left()
        assert run.points()[-1]["step/total_ms"] == pytest.approx(100) and run.points()[-1]["tokens_per_s"] == pytest.approx(800)

    def test_the_gradient_norm_is_without_the_loss_scale(self) -> None:
        model, norm = net(), GradientNorm()
        model(torch.ones(8, 16)).sum().backward()
        expected = float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.grad_scale = torch.tensor(4.0)  # type: ignore[attr-defined]
        norm.wanted = True
        norm.measure(optimizer, HostClock())
        assert norm.taken(HostClock()) == pytest.approx(expected / 4)


@pytest.mark.parametrize("given", [{"tokens_per_step": 0}, {"samples_per_step": float("nan")}, {"peak_tflops": -1}])
def test_amounts_that_are_none_are_refused(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINHOUSE_RUN_DIR", raising=False)
    with Session.start(context=Context()) as session, pytest.raises(InvalidUseError, match="give a number above 0"):
        next(session.steps(3, **given))
