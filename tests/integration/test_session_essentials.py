"""What a spec's `training` asks of a loop, on gloo ranks: accumulation, clipping, precision and the scaler in every layout of two ranks."""

import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from tests.support.example_layouts import TOLERANCE, Trained, corpus, layouts_of, losses_alone, name_of
from tests.support.gloo_gang import Groups, run_gang
from trainhouse.events.model.parallelism import Parallelism
from trainhouse.events.model.training import Precision, Training
from trainhouse.workers.examples.model import ByteGPT
from trainhouse.workers.session import EXIT_DIVERGED, InvalidUseError, Session, Stopped
from trainhouse.workers.session.training.model_preparation import prepare

RANKS = 2
CLIP = 0.3  # of norms that are above it in most of the steps
ACCUMULATED = Training(global_batch=2 * RANKS, micro_batch=1, clip_norm=CLIP)
LOWERED = {kind: Training(precision=kind, clip_norm=CLIP, activation_checkpointing=True, accumulation=1) for kind in ("bf16", "fp16")}
NAMES = [name_of(layout) for layout in layouts_of(RANKS)]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _in_each_process(store: Any, groups: Groups) -> dict[Any, Any]:
    text = corpus()
    found: dict[Any, Any] = {}
    for layout in layouts_of(RANKS):
        found[name_of(layout), "accumulated"] = Trained(layout, RANKS, training=ACCUMULATED).run(text)
        for kind, training in LOWERED.items():
            found[name_of(layout), kind] = Trained(layout, RANKS, training=training).run(text)
    return found


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, dict[int, float]]]:
    """By rank the losses of each layout and setting."""
    return run_gang(_in_each_process, tmp_path_factory.mktemp("gang"), __name__, RANKS)


@pytest.fixture(scope="module")
def alone() -> list[float]:
    """Losses of one rank without accumulation, clipped."""
    clipped = losses_alone(RANKS, Training(clip_norm=CLIP))
    assert abs(clipped[-1] - losses_alone(RANKS, Training(clip_norm=100.0))[-1]) > 1e-3, "the norm is one that clips"
    return clipped


@pytest.mark.parametrize("layout", NAMES)
def test_accumulated_and_clipped_steps_are_those_of_one_rank_with_the_whole_batch(
    losses: list[dict[Any, dict[int, float]]], alone: list[float], layout: str
) -> None:
    for of_rank in losses:
        found = of_rank[layout, "accumulated"]
        assert max(abs(loss - alone[step]) / alone[step] for step, loss in found.items()) < TOLERANCE


@pytest.mark.parametrize("kind", LOWERED)
@pytest.mark.parametrize("layout", NAMES)
def test_a_lower_precision_trains_within_a_hundredth(
    losses: list[dict[Any, dict[int, float]]], alone: list[float], layout: str, kind: str
) -> None:
    for of_rank in losses:
        found = of_rank[layout, kind]
        differences = [abs(loss - alone[step]) / alone[step] for step, loss in found.items()]
        assert 0 < max(differences) < 0.01


def _odd_steps(store: Any, groups: Groups) -> dict[Any, Any]:
    """What single steps do to gradients and weights, by the name of what happens in them."""
    works = {
        "synced": _synced,
        "skipped": _skipped,
        "staged": _staged,
        "ruined": _ruined,
        "resumed": _resumed,
        "evaluated": _evaluated,
        "best": _best,
    }
    return {name: work(store) for name, work in works.items()}


def _session(layout: Parallelism, training: Training, store: Any = None, job: str = "odd", epoch: int = 1) -> Session:
    return Trained(layout, RANKS, store, job, epoch, training=training).session()


def _linear(session: Session) -> torch.nn.Module:
    torch.manual_seed(0)
    return session.prepare(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)))


def _weights(model: torch.nn.Module) -> list[float]:
    return [float(x) for p in model.parameters() for x in local(p.detach()).flatten()]


def _best(store: Any) -> list[list[bool]]:
    """Which steps two attempts saved as the best, by a metric of which only rank 0 has the right value."""
    found = []
    for epoch, values in ((1, [3.0, 2.0, 4.0]), (2, [2.5, 1.0, 1.5])):
        session = _session(Parallelism(dp=RANKS), Training(), store, "best", epoch)
        begun = session.track(model=DistributedDataParallel(torch.nn.Linear(4, 1)))
        found.append([session.save_if_best("x", values[n - begun] if session.rank == 0 else -float(n)) for n in session.steps(begun + 3)])
        session.close()
    return found


def _synced(store: Any) -> dict[str, list[bool]]:
    """Whether ranks have equal gradients after each micro-batch under DDP, and whether there are any under FSDP2."""
    found: dict[str, list[bool]] = {"ddp": [], "fsdp": []}
    for kind in found:
        session = _session(Parallelism(**{"dp" if kind == "ddp" else "fsdp": RANKS}), Training(accumulation=3, clip_norm=1.0))
        inner = _linear(session)
        model = DistributedDataParallel(inner) if kind == "ddp" else fully_shard(inner, mesh=session.mesh["fsdp"])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        session.track(model=model, optimizer=optimizer)
        for _ in session.steps(1):
            for x in session.accumulate(torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(session.rank))):
                session.backward(model(x).square().mean())
                gradient = next(inner.parameters()).grad
                mine = torch.zeros(16) if gradient is None else local(gradient).flatten()
                both = [torch.empty_like(mine) for _ in range(RANKS)]
                dist.all_gather(both, mine)
                found[kind].append(torch.equal(*both) if kind == "ddp" else gradient is not None)
            session.optimizer_step(optimizer)
        session.close()
    return found


def _evaluated(store: Any) -> dict[str, float]:
    """The figures of an evaluation in which one rank has no batch, of a model whose buffers DDP keeps alike."""
    session = _session(Parallelism(dp=RANKS), Training())
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session.track(model=model, optimizer=optimizer)
    found: dict[str, float] = {}
    for _ in session.steps(1):
        session.backward(model(torch.randn(8, 4)).mean())
        session.optimizer_step(optimizer)
        found = session.validate([torch.ones(8, 4)] * (1 - session.rank), lambda batch: {"mean": model(batch).mean(), "samples": 8})
    session.close()
    return found


def _skipped(store: Any) -> dict[str, Any]:
    """A step under fp16 in which one rank alone has an infinite gradient, and one in which none has."""
    session = _session(Parallelism(pp=RANKS), Training(precision=Precision.FP16))
    model = _linear(session)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session.track(model=model, optimizer=optimizer)
    found: dict[str, Any] = {"weights": [_weights(model)], "norms": [], "scales": []}
    for step in session.steps(2):
        session.backward(model(torch.ones(2, 4)).mean() / 1000)
        if step == 0 and session.rank == 1:
            next(model.parameters()).grad.fill_(math.inf)  # type: ignore[union-attr]
        found["norms"].append(float(session.optimizer_step(optimizer)))  # type: ignore[arg-type]
        found["weights"].append(_weights(model))
        found["scales"].append(session.scaler.get_scale())
    session.close()
    return found


def _staged(store: Any) -> dict[str, Any]:
    """Weights of a pipeline of two stages a rank, trained with a scale that grows each step, or why its optimizers could not step."""
    found: dict[str, Any] = {}
    for kind in ("together", "apart"):
        session = _session(Parallelism(pp=RANKS), Training(precision=Precision.FP16))
        session.scaler.load_state_dict(session.scaler.state_dict() | {"scale": 64.0, "growth_interval": 1})
        numbers = (session.rank, session.rank + RANKS)
        parts = [session.prepare(part) for number, part in enumerate(_parts()) if number in numbers]
        group = session.mesh.get_group("pp")
        stages = [PipelineStage(part, n, 2 * RANKS, torch.device("cpu"), group=group) for part, n in zip(parts, numbers, strict=True)]
        schedule = ScheduleInterleaved1F1B(stages, 2, loss_fn=lambda y, to, session=session: session.scaler.scale(_loss(y, to)))
        optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in parts]
        session.track(model=parts, optimizer=optimizers)
        x, to = _batch()
        try:
            for _ in session.steps(3):
                schedule.step(*((x,) if session.rank == 0 else ()), **({"target": to} if session.rank == RANKS - 1 else {}))
                for together in [optimizers] if kind == "together" else [[optimizer] for optimizer in optimizers]:
                    session.optimizer_step(*together)
            found[kind] = {number: _weights(part) for number, part in zip(numbers, parts, strict=True)}
        except InvalidUseError as error:
            found[kind] = str(error)
        session.close()
    return found


def _parts() -> list[torch.nn.Module]:
    torch.manual_seed(0)
    return [torch.nn.Linear(4, 4) for _ in range(2 * RANKS)]


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 4, generator=generator), torch.randn(8, 4, generator=generator)


def _loss(y: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
    return (y - to).square().mean()


def _ruined(store: Any) -> tuple[int | None, str]:
    """The exit code and event of a job in which one rank has a gradient that is no number, and a loss that is one."""
    session = _session(Parallelism(fsdp=RANKS), Training(precision=Precision.BF16, clip_norm=1.0), store, "ruined")
    model = fully_shard(_linear(session), mesh=session.mesh["fsdp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session.track(model=model, optimizer=optimizer)
    try:
        for step in session.steps(4, save_every_steps=1):
            loss = model(torch.ones(2, 4)).mean()
            session.backward(loss * (math.nan if step == 2 and session.rank == 1 else 1.0))
            session.optimizer_step(optimizer)
            session.log(loss=1.0)
    except Stopped as stopped:
        return stopped.code, str(session.step)  # type: ignore[return-value]
    return None, ""


def _resumed(store: Any) -> dict[str, Any]:
    """The scaler and the weights when they were saved, and as they are restored."""
    states = []
    for epoch in (1, 2):
        session = _session(Parallelism(dp=RANKS), Training(precision=Precision.FP16), store, "resumed", epoch)
        model = DistributedDataParallel(_linear(session))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        begun = session.track(model=model, optimizer=optimizer)
        if epoch == 1:
            for step in session.steps(3):
                session.backward(model(torch.ones(2, 4)).mean() * (math.inf if step == 0 else 1e-3))
                session.optimizer_step(optimizer)
        states.append((begun, session.scaler.state_dict(), _weights(model)))
        session.close()
    return {"saved": states[0], "restored": states[1]}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    """By rank what odd steps do."""
    return run_gang(_odd_steps, tmp_path_factory.mktemp("odd"), __name__, RANKS)


def test_the_value_of_rank_0_makes_a_state_the_best_on_all_ranks_and_in_later_attempts(odd: list[dict[Any, Any]]) -> None:
    for of_rank in odd:
        assert of_rank["best"] == [[True, True, False], [False, True, False]]


def test_gradients_are_reduced_in_the_last_micro_batch_alone(odd: list[dict[Any, Any]]) -> None:
    for of_rank in odd:
        assert of_rank["synced"] == {"ddp": [False, False, True], "fsdp": [False, False, True]}


def test_a_rank_without_batches_waits_for_no_other_in_an_evaluation(odd: list[dict[Any, Any]]) -> None:
    (mean,) = odd[0]["evaluated"].values()
    assert math.isfinite(mean) and odd[1]["evaluated"] == odd[0]["evaluated"]


def test_all_ranks_skip_a_step_of_the_scaler_where_one_of_them_has_an_infinite_gradient(odd: list[dict[Any, Any]]) -> None:
    for of_rank in odd:
        found = of_rank["skipped"]
        assert found["weights"][0] == found["weights"][1] != found["weights"][2]
        assert not math.isfinite(found["norms"][0]) and 0 < found["norms"][1] < 1
        assert found["scales"] == [32768.0, 32768.0]


def test_stages_under_fp16_are_those_of_one_rank_and_step_together_or_not_at_all(odd: list[dict[Any, Any]]) -> None:
    parts, (x, to) = _parts(), _batch()
    optimizer = torch.optim.SGD([parameter for part in parts for parameter in part.parameters()], lr=0.1)
    for _ in range(3):
        _loss(torch.nn.Sequential(*parts)(x), to).backward()
        optimizer.step()
        optimizer.zero_grad()
    for of_rank in odd:
        for number, weights in of_rank["staged"]["together"].items():
            assert weights == pytest.approx(_weights(parts[number]), abs=2e-3)
        assert "optimizer_step: gradients are left from before" in of_rank["staged"]["apart"]


def test_a_gradient_norm_that_is_not_finite_ends_the_job_before_its_next_save(odd: list[dict[Any, Any]]) -> None:
    for of_rank in odd:
        assert of_rank["ruined"] == (EXIT_DIVERGED, "3")


def test_the_scaler_is_in_checkpoints_and_a_restore_moves_it_by_no_step(odd: list[dict[Any, Any]]) -> None:
    for of_rank in odd:
        (_, scaler, weights), (begun, restored, same) = of_rank["resumed"]["saved"], of_rank["resumed"]["restored"]
        assert begun == 3 and restored == scaler and scaler["scale"] == 32768.0 and scaler["_growth_tracker"] == 2
        assert same == weights


def test_a_compiled_model_is_the_same_model() -> None:
    plain, compiled = (ByteGPT(8, 1, 2, 8) for _ in range(2))
    compiled.load_state_dict(plain.state_dict())
    settings = Training(compile=True, activation_checkpointing=True, precision=Precision.BF16)
    prepare(compiled, compiled.blocks.values(), settings, torch.device("cpu"))
    text = torch.arange(16).reshape(2, 8)
    for model in (plain, compiled):
        model(text).square().mean().backward()
    assert list(compiled.state_dict()) == list(plain.state_dict())
    for one, other in zip(compiled.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-3)  # type: ignore[arg-type]
