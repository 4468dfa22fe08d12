"""Figures of a step: their arithmetic, and what is measured around real models and optimizers."""

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from trainhouse.workers.session.context import Context
from trainhouse.workers.session.errors import InvalidUseError
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.measuring import step_split
from trainhouse.workers.session.measuring.arithmetic import Stretch, mfu, rates_per_s, split_ms, weighted_mean
from trainhouse.workers.session.measuring.device_peaks import peak_flops
from trainhouse.workers.session.measuring.flop_count import MAX_SHAPES, FlopCount
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


class Hands:
    """A clock that only the test moves."""

    now_ms = 0.0


class HandClock(HostClock):
    def mark(self) -> float:
        return Hands.now_ms

    def between_ms(self, one: float, other: float) -> float | None:
        return other - one


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
        self.figures.begin(0, 0.0, amounts or Amounts())
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
        self.figures.left(count, count / 10)

    def points(self) -> list[dict[str, float]]:
        lines = map(json.loads, (self.context.spool or Path()).read_text().splitlines())
        return [line[3] for line in lines if line[0] == "m"]


class TestFigures:
    def test_flops_rates_and_mfu_of_a_run(self, tmp_path: Path) -> None:
        run = Run(tmp_path, net(), Amounts({"tokens": 80.0, "samples": 8.0}, peak_tflops=1e-6))
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
        run.figures.left(3, 0.4)
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


@pytest.mark.parametrize("given", [{"tokens_per_step": 0}, {"samples_per_step": float("nan")}, {"peak_tflops": -1}])
def test_amounts_that_are_none_are_refused(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINHOUSE_RUN_DIR", raising=False)
    with Session.start(context=Context()) as session, pytest.raises(InvalidUseError, match="give a number above 0"):
        next(session.steps(3, **given))
