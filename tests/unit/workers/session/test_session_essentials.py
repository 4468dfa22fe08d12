"""Essentials of a training loop in a session of one rank: what the spec asks for, what the program must call, what each call does."""

import copy
import itertools
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

from trainhouse.events.model.parallelism import Parallelism
from trainhouse.events.model.training import Precision, Training
from trainhouse.workers.launcher import ports
from trainhouse.workers.session import InvalidUseError, Session
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import Unsaved

torch.set_num_threads(1)


class Layers(torch.nn.Module):
    """Two layers and a head; counts its forward passes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(2))
        self.head = torch.nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        for layer in self.layers:
            x = layer(x)
        return {"first": x, "all": [self.head(x)], "kind": x.dtype}


def session_of(folder: Path, **training: Any) -> Session:
    context = Context(backend="gloo", training=Training(**training), spool=folder / "spool.jsonl")
    return Session(context, Gang(context), open_sink(context), Unsaved())


def session_of_rank(rank: int, ranks: int, folder: Path, **training: Any) -> Session:
    """The session of one rank of a gang whose others are not there."""
    alone = Context(backend="gloo", spool=folder / f"spool-{rank}.jsonl")
    context = replace(alone, rank=rank, world_size=ranks, training=Training(**training), seed=3)
    return Session(context, Gang(alone), open_sink(alone), Unsaved())


@pytest.mark.parametrize(("precision", "kind"), [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)])
def test_a_model_computes_in_the_precision_and_returns_float32(tmp_path: Path, precision: str, kind: torch.dtype) -> None:
    model = session_of(tmp_path, precision=precision).prepare(Layers())
    output = model(torch.ones(2, 6))
    assert output["kind"] == kind and output["first"].dtype == output["all"][0].dtype == torch.float32
    assert next(model.parameters()).dtype == torch.float32


def test_a_prepared_model_has_its_names_and_can_be_copied_and_averaged(tmp_path: Path) -> None:
    session = session_of(tmp_path, precision="bf16", activation_checkpointing=True)
    model = Layers()
    before, plain = list(model.state_dict()), copy.deepcopy(model)
    session.prepare(model, blocks=model.layers)
    assert list(model.state_dict()) == before
    x = torch.ones(2, 6)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), AveragedModel(model)):
        with torch.no_grad():
            other_first = next(iter(other.parameters()))
            other_first += 1.0
        assert not torch.equal(other(x)["first"], model(x)["first"]), "its forward pass is of its own weights"
    assert torch.allclose(model(x)["first"], plain(x)["first"], rtol=0.05, atol=0.05)


def test_activations_of_the_blocks_are_computed_again_with_the_same_gradients(tmp_path: Path) -> None:
    model, plain = Layers(), Layers()
    passes: list[int] = []
    for layer in model.layers:
        original = layer.forward
        layer.forward = lambda x, original=original: passes.append(1) or original(x)  # type: ignore[method-assign, func-returns-value]
    session_of(tmp_path, activation_checkpointing=True).prepare(model, blocks=model.layers)
    for each in (model, plain):
        each(torch.ones(2, 6))["all"][0].square().mean().backward()
    assert len(passes) == 4
    assert all(torch.equal(one.grad, other.grad) for one, other in zip(model.parameters(), plain.parameters(), strict=True))  # type: ignore[arg-type]


def test_activation_checkpointing_without_blocks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidUseError, match=r"prepare\(model, blocks=\.\.\.\) needs the layers"):
        session_of(tmp_path, activation_checkpointing=True).prepare(Layers())


def test_micro_batches_come_off_a_loader_and_too_few_are_an_error(tmp_path: Path) -> None:
    session = session_of(tmp_path, accumulation=3)
    loader = iter(range(7))
    assert [list(session.accumulate(loader)) for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(InvalidUseError, match=r"it has 1 micro-batches, and a step takes training.accumulation = 3"):
        list(session.accumulate(loader))


def test_micro_batches_that_begin_anew_each_step_or_are_left_over_are_refused(tmp_path: Path) -> None:
    session = session_of(tmp_path, accumulation=2)
    endless = torch.utils.data.DataLoader(range(8))  # type: ignore[arg-type]
    unsized = torch.utils.data.DataLoader(torch.utils.data.ChainDataset([]))
    for source, kind in ((endless, "a DataLoader of 8"), ([1, 2, 3], "a list of 3"), ([1], "a list of 1"), (unsized, "a DataLoader")):
        with pytest.raises(InvalidUseError, match=rf"accumulate: {kind} .* takes training.accumulation = 2.*iter\(loader\)"):
            next(session.accumulate(source))  # type: ignore[arg-type]
    assert list(session.accumulate([1, 2])) == [1, 2]
    loader = session.loader(range(8), batch=1, shuffle=False)
    assert [[int(x) for x in session.accumulate(loader)] for _ in range(2)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("last_step", [3, 40])
def test_a_step_has_the_samples_of_the_global_batch_at_any_number_of_ranks(tmp_path: Path, last_step: int) -> None:
    def steps(ranks: int) -> list[list[int]]:
        sessions = [session_of_rank(rank, ranks, tmp_path, global_batch=8, micro_batch=2) for rank in range(ranks)]
        loaders = [each.loader(range(50)) for each in sessions]
        return [
            sorted(int(x) for each, loader in zip(sessions, loaders, strict=True) for batch in each.accumulate(loader) for x in batch)
            for _ in range(last_step)
        ]

    of_one = steps(1)
    assert all(len(step) == 8 for step in of_one) and of_one == steps(2) == steps(4)


def test_a_batch_beside_the_global_batch_is_refused_unless_it_is_a_micro_batch_of_all_ranks(tmp_path: Path) -> None:
    session = session_of_rank(0, 2, tmp_path, global_batch=32, micro_batch=8)
    assert len(next(session.loader(range(100)))) == len(next(session.loader(range(100), batch=16))) == 8
    with pytest.raises(
        InvalidUseError, match=r"batch=32.* a step takes 2 of these.* 64 samples.*global_batch = 32.*leave batch out, or give 16"
    ):
        session.loader(range(100), batch=32)
    with pytest.raises(InvalidUseError, match=r"last='drop'.*leave it out"):
        session.loader(range(100), last="drop")
    with pytest.raises(InvalidUseError, match=r"loader: give batch"):
        session_of(tmp_path).loader(range(100))


def test_an_endless_loader_is_no_validation(tmp_path: Path) -> None:
    session = session_of(tmp_path)
    loader = session.loader(range(4), batch=2, shuffle=False)
    with pytest.raises(InvalidUseError, match=r"validate: .* never ends.*islice"):
        session.validate(loader, lambda batch: pytest.fail(f"{batch} of an endless loader was measured"))
    assert session.validate(itertools.islice(loader, 2), lambda batch: {"mean": batch.float().mean()}) == {"mean": 1.5}


def test_a_step_without_an_optimizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidUseError, match=r"optimizer_step\(\): give all optimizers of the step"):
        session_of(tmp_path, clip_norm=1.0).optimizer_step()


@pytest.mark.parametrize(
    ("layout", "training", "microbatches"),
    [
        (Parallelism(pp=4), {"accumulation": 8}, 8),
        (Parallelism(pp=4), {}, None),
        (Parallelism(), {"accumulation": 8}, None),
    ],
)
def test_microbatches_of_a_pipeline_are_those_of_accumulation(
    tmp_path: Path, layout: Parallelism, training: dict[str, Any], microbatches: int | None
) -> None:
    alone = Context(backend="gloo", spool=tmp_path / "spool.jsonl")
    context = replace(alone, world_size=layout.ranks, parallelism=layout, training=Training(**training))
    session = Session(context, Gang(alone), open_sink(alone), Unsaved())
    assert session._microbatches(None) == microbatches and session._microbatches(2) == 2


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_accumulated_gradients_are_those_of_the_whole_batch(tmp_path: Path, precision: str) -> None:
    session = session_of(tmp_path, accumulation=4, clip_norm=0.01, precision=precision)
    torch.manual_seed(2)
    model, x = torch.nn.Linear(6, 1), torch.randn(8, 6)
    whole = copy.deepcopy(model)
    whole(x).square().mean().backward()
    expected = torch.nn.utils.get_total_norm([p.grad for p in whole.parameters() if p.grad is not None])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = [p.detach().clone() for p in model.parameters()]
    session.track(model=model, optimizer=optimizer)
    for part in session.accumulate(x.chunk(4)):
        session.backward(model(part).square().mean())
    norm = session.optimizer_step(optimizer)
    assert norm is not None and float(norm) == pytest.approx(float(expected), rel=1e-5)
    moved = torch.nn.utils.get_total_norm([p.detach() - old for p, old in zip(model.parameters(), before, strict=True)])
    assert float(moved) == pytest.approx(0.01, rel=1e-3) and all(p.grad is None for p in model.parameters())


def test_parts_of_unlike_sizes_have_their_share(tmp_path: Path) -> None:
    session = session_of(tmp_path, accumulation=2)
    torch.manual_seed(2)
    model, x = torch.nn.Linear(6, 1), torch.randn(8, 6)
    whole = copy.deepcopy(model)
    whole(x).square().mean().backward()
    for part in session.accumulate((x[:6], x[6:])):
        session.backward(model(part).square().mean(), share=len(part) / 8)
    assert all(torch.allclose(a.grad, b.grad) for a, b in zip(model.parameters(), whole.parameters(), strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"precision": "bf16"}, "training.precision = bf16: the first step was made without session.prepare"),
        ({"compile": True}, "training.compile = True: the first step was made without session.prepare"),
        ({"accumulation": 2}, "training.accumulation = 2: the first step was made without session.accumulate"),
        ({"global_batch": 4, "micro_batch": 1}, "training.global_batch = 4: the first step was made without session.accumulate"),
        ({"clip_norm": 1.0}, "training.clip_norm = 1.0: the first step was made without session.optimizer_step"),
    ],
)
def test_what_the_program_never_uses_is_an_error_after_the_first_step(tmp_path: Path, training: dict[str, Any], message: str) -> None:
    steps = session_of(tmp_path, **training).steps(2)
    assert next(steps) == 0
    with pytest.raises(InvalidUseError, match=message):
        next(steps)
    assert list(session_of(tmp_path, precision="fp32", accumulation=1).steps(2)) == [0, 1]


def test_a_norm_that_is_not_finite_is_remembered_until_it_is_asked_for(tmp_path: Path) -> None:
    session = session_of(tmp_path, clip_norm=1.0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for factor in (math.inf, 0.0):
        session.backward(model(torch.ones(1, 2)).mean() * factor)
        session.optimizer_step(optimizer)
    assert not math.isfinite(session._essentials.poor_norm() or 0.0) and session._essentials.poor_norm() is None


def test_validation_gives_weighted_means_and_leaves_modes_as_they_were(tmp_path: Path) -> None:
    session = session_of(tmp_path)
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Dropout())
    model[1].eval()
    session.track(model=model)

    def measure(batch: list[float]) -> dict[str, float]:
        assert not model.training and not torch.is_grad_enabled()
        return {"loss": sum(batch) / len(batch), "samples": len(batch)}

    assert session.validate([[1.0, 2.0, 3.0], [10.0]], measure) == {"loss": 4.0}
    assert model.training and not model[1].training
    assert '"validation/loss":4.0' in (tmp_path / "spool.jsonl").read_text()


def test_outside_of_trainhouse_a_variable_gives_it() -> None:
    context = Context.from_env({"WORLD_SIZE": "2", ports.TRAINING: '{"global_batch": 8, "micro_batch": 2, "precision": "bf16"}'})
    assert (context.essentials.accumulation, context.essentials.precision) == (2, Precision.BF16)
    with pytest.raises(InvalidUseError, match=r"global_batch = 8 does not divide by 3 data ranks.*start a number of ranks that keeps it"):
        _ = Context.from_env({"WORLD_SIZE": "3", ports.TRAINING: '{"global_batch": 8, "micro_batch": 2}'}).essentials
    with pytest.raises(InvalidUseError, match="TRAINHOUSE_TRAINING="):
        Context.from_env({ports.TRAINING: '{"fp16": true}'})


def test_a_second_optimizer_step_of_a_scaled_backward_is_refused(tmp_path: Path) -> None:
    first, second = (torch.nn.Parameter(torch.ones(())) for _ in range(2))
    optimizers = [torch.optim.SGD([parameter], lr=0.1) for parameter in (first, second)]
    session = session_of(tmp_path, precision="fp16")
    session.backward(first * math.inf + second)
    session.optimizer_step(optimizers[0])
    with pytest.raises(InvalidUseError, match="name all optimizers"):
        session.optimizer_step(optimizers[1])
    optimizers[1].zero_grad()
    session.backward(second * 1.0)
    assert float(session.optimizer_step(optimizers[1])) == 1.0 and float(second.detach()) == pytest.approx(0.9)  # type: ignore[arg-type]
    plain = session_of(tmp_path, precision="fp32")
    plain.backward(first + second)
    for optimizer in optimizers:
        plain.optimizer_step(optimizer)
