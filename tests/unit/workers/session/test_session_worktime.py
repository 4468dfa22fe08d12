"""What a step takes on one rank by itself, measured around the forward pass of real modules; wrapped ones too."""

import copy
import io
import pickle

import pytest
import torch

from tests.support.hand_clock import HandClock, Hands
from trainhouse.workers.session.steps import worktime
from trainhouse.workers.session.steps.worktime import WorkTime

torch.set_num_threads(1)


class LateClock(HandClock):
    """As a device's stream: a moment is known only when the device has come to it."""

    reached_ms = 0.0

    def between_ms(self, one: float, other: float) -> float | None:
        return other - one if other <= self.reached_ms else None


def passes(ms: float) -> None:
    Hands.now_ms += ms


class Slow(torch.nn.Module):
    """Its forward pass takes `ms`."""

    def __init__(self, ms: float) -> None:
        super().__init__()
        self.ms = ms
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passes(self.ms)
        return x * self.weight


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktime, "HostClock", HandClock)


def steps(work: WorkTime, model: torch.nn.Module, count: int, loading_ms: float = 2.0, rest_ms: float = 50.0) -> None:
    for _ in range(count):
        work.begin()
        passes(loading_ms)
        model(torch.ones(1)).sum().backward()
        passes(rest_ms)
        work.end()


def test_loading_and_the_forward_pass_count_and_the_rest_of_a_step_does_not() -> None:
    work, model = WorkTime(), Slow(5.0)
    work.watch(model)
    steps(work, model, 1, loading_ms=900.0)
    assert work.ms is None, "the first step warms up"
    steps(work, model, 3)
    assert work.ms == pytest.approx(7.0)


def test_it_is_smoothed() -> None:
    work, model = WorkTime(), Slow(5.0)
    work.watch(model)
    steps(work, model, 5)
    model.ms = 105.0
    steps(work, model, 1)
    assert work.ms == pytest.approx(7.0 + worktime.SMOOTHING * 100)
    steps(work, model, 60)
    assert work.ms == pytest.approx(107.0, rel=1e-3)


def test_waiting_for_data_after_the_forward_pass_counts_too() -> None:
    waited = [0.0]
    work, model = WorkTime(lambda: waited[0]), Slow(5.0)
    work.watch(model)
    for _ in range(3):
        work.begin()
        waited[0] += 0.002
        passes(2.0)
        model(torch.ones(1))
        waited[0] += 0.03
        work.end()
    assert work.ms == pytest.approx(2.0 + 5.0 + 30.0)


def test_passes_of_an_evaluation_and_of_disturbed_steps_do_not_count() -> None:
    work, model = WorkTime(), Slow(5.0)
    work.watch(model)
    steps(work, model, 2)
    work.begin()
    model(torch.ones(1))
    passes(500.0)
    work.end(undisturbed=False)
    model.eval()
    steps(work, model, 2)
    assert work.ms == pytest.approx(7.0)


class Wrapper(torch.nn.Module):
    """As torch's own wrapper: it waits for other ranks before its module's pass. The real one is in the integration tests."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passes(40.0)
        found: torch.Tensor = self.module(x)
        return found


def test_a_wrapper_is_measured_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktime, "DistributedDataParallel", Wrapper)
    work, wrapped = WorkTime(), Wrapper(Slow(5.0))
    work.watch(wrapped)
    steps(work, wrapped, 3)
    assert work.ms == pytest.approx(7.0)


def test_several_passes_of_a_step_add_up() -> None:
    work, model = WorkTime(), Slow(5.0)
    work.watch(model)
    for _ in range(3):
        work.begin()
        for _ in range(4):
            model(torch.ones(1)).sum().backward()
            passes(20.0)
        work.end()
    assert work.ms == pytest.approx(20.0)


def test_what_a_device_has_not_come_to_yet_is_read_later_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worktime, "HostClock", LateClock)
    work, model = WorkTime(), Slow(5.0)
    work.watch(model)
    LateClock.reached_ms = 0.0
    steps(work, model, 50)
    assert work.ms is None and len(work._unread) == worktime.MAX_UNREAD
    LateClock.reached_ms = Hands.now_ms
    steps(work, model, 1)
    assert work.ms == pytest.approx(7.0)


def test_neither_a_copy_nor_a_pickled_model_is_measured_and_both_work() -> None:
    work, model = WorkTime(), Slow(5.0)
    work.watch(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        work.begin()
        assert other(torch.ones(1)).item() == 1.0
        assert work._step is not None and work._step.passes == []
        work.end()
    torch.save(model, io.BytesIO())
    assert sorted(model.state_dict()) == ["weight"]


def test_outputs_and_gradients_are_the_same_bits() -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    twin, batch = copy.deepcopy(model), torch.randn(16, 4)
    work = WorkTime()
    work.watch(model)
    found = []
    for one in (model, twin):
        torch.manual_seed(2)
        work.begin()
        out = one(batch).sum()
        out.backward()
        work.end()
        found.append((out.item(), [p.grad.tolist() for p in one.parameters() if p.grad is not None]))
    assert found[0] == found[1]


def test_what_cannot_be_measured_is_left_alone() -> None:
    work = WorkTime()
    work.watch(None)
    scripted = torch.jit.trace(torch.nn.Linear(1, 1), torch.ones(1))
    work.watch(scripted)
    steps(work, scripted, 3)
    assert work.ms is None
