"""A session's saves, figures and traces on the device of the rank: this host, and a CUDA device where there is one."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.optim.swa_utils import AveragedModel

from tests.support.fakes.folder_store import FolderObjectStore
from tests.support.waiting import until
from tests.unit.workers.session.test_session_boundary import lines
from trainhouse.checkpointing.chain.commits import head, read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.chain.retention import RetentionPolicy
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper
from trainhouse.events.model.spec import CheckpointPolicy
from trainhouse.events.model.training import Training
from trainhouse.events.runtime.clock import steady_s
from trainhouse.workers.agent.probe.checks import CheckFailedError
from trainhouse.workers.agent.probe.device_checks import accelerator
from trainhouse.workers.session import Context, Session
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.measuring import trace_recorder
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import CommitSaver

STEPS, HALF = 12, 6


@dataclass(frozen=True)
class Place:
    """Where a test trains, and the store of its saves."""

    kind: str
    folder: Path
    store: FolderObjectStore

    def session(self, name: str, epoch: int, at_most: int | None = None, **training: Any) -> Session:
        """A session of one rank over the store. `epoch` is the attempt's; it begins from no newer commit than `at_most`."""
        folder = self.folder / name
        folder.mkdir()
        folder.with_suffix(".asked").mkdir()
        context = Context(
            job_id="j",
            epoch=epoch,
            seed=5,
            backend="gloo" if self.kind == "cpu" else "nccl",
            training=Training(**training),
            spool=folder / "spool.jsonl",
            request=folder.with_suffix(".asked") / "request.json",
            rank_folders=(folder,),
            policy=CheckpointPolicy(min_interval_s=1000, max_interval_s=2000),
        )
        helper = UploadHelper(self.store)
        settings = CheckpointerSettings("j", epoch, 0, "spec", restore_at_most=at_most)
        saver = CommitSaver(Checkpointer(settings, self.store, helper=helper), RetentionPolicy(9), None)
        return Session(context, Gang(context), open_sink(context), saver)


@pytest.fixture(params=["cpu", "cuda"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    # For the store of these tests, in a process that is started anew.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[4]), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield Place(request.param, tmp_path, FolderObjectStore(tmp_path / "store"))
    finally:
        torch.use_deterministic_algorithms(False)
        if dist.is_initialized():
            dist.destroy_process_group()


class Net(torch.nn.Module):
    """Dropout draws from the device's generator, and batch norm has buffers that each forward pass changes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.BatchNorm1d(64), torch.nn.Dropout(0.2), torch.nn.GELU(), torch.nn.Linear(64, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


def _samples() -> list[torch.Tensor]:
    return list(torch.randn(100, 16, generator=torch.Generator().manual_seed(3)))


def train(session: Session, until_step: int, sharded: bool) -> dict[str, bytes]:
    """Trains up to a step, saves there, and returns the bits of all that training depends on."""
    model = session.prepare(Net().to(session.device))
    if sharded:
        fully_shard(model, mesh=session.mesh["fsdp"])
    average = None if sharded else AveragedModel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = session.loader(_samples(), batch=8).to(session.device)
    session.track(model=model, optimizer=optimizer, loader=loader, extra={} if average is None else {"average": average})
    for step in session.steps(until_step):
        x = next(loader)
        assert x.device == session.device
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        session.backward(loss)
        session.optimizer_step(optimizer)
        if average is not None:
            average.update_parameters(model)
        if step + 1 == until_step:
            session.save()
    return _bits(session, model, average, optimizer)


def _bits(session: Session, model: torch.nn.Module, average: AveragedModel | None, optimizer: torch.optim.Optimizer) -> dict[str, bytes]:
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {} if average is None else {f"average.{name}": tensor for name, tensor in average.state_dict().items()}
    for number, state in enumerate(optimizer.state.values()):
        tensors |= {f"moment.{number}.{name}": value for name, value in state.items() if isinstance(value, torch.Tensor)}
    found = {name: _host_bytes(tensor) for name, tensor in tensors.items()}
    found["scale"] = str(session.scaler.state_dict()).encode()
    found["next random"] = _host_bytes(torch.rand(4, device=session.device))
    return found


def _host_bytes(tensor: Any) -> bytes:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return bytes(local.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


@pytest.mark.parametrize(("precision", "sharded"), [("fp32", False), ("fp16", False), ("bf16", False), ("fp32", True)])
def test_a_resumed_run_has_the_bits_of_one_that_went_on(place: Place, precision: str, sharded: bool) -> None:
    if sharded and place.kind == "cpu":
        pytest.skip("tests/integration/test_example_layouts.py has it on gloo ranks")
    if sharded:
        dist.init_process_group("nccl", init_method=f"file://{place.folder / 'group'}", rank=0, world_size=1)
    training = {"precision": precision}
    with place.session("half", 1, **training) as session:
        train(session, HALF, sharded)
    with place.session("rest", 2, **training) as session:
        resumed = train(session, STEPS, sharded)
        assert session.step == STEPS
    aside = Place(place.kind, place.folder, FolderObjectStore(place.folder / "aside"))
    with aside.session("whole", 1, **training) as session:
        whole = train(session, STEPS, sharded)
    assert resumed.keys() == whole.keys() and [name for name in whole if resumed[name] != whole[name]] == []


def test_what_is_saved_is_the_state_of_that_step_while_training_goes_on(place: Place) -> None:
    """Steps go on at once after each save of a state that takes the device a while to copy; later attempts begin from each of them."""
    wide = 512 if place.kind == "cpu" else 4096
    values: dict[int, list[bytes]] = {}

    def program(session: Session, steps: int) -> torch.nn.Module:
        model = torch.nn.Sequential(*(torch.nn.Linear(wide, wide, bias=False) for _ in range(4))).to(session.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        session.track(model=model, optimizer=optimizer)
        for step in session.steps(steps):
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, float(step + 1))
            optimizer.step()
            values[step + 1] = _rows(model)
            session.save()
        return model

    with place.session("first", 1) as session:
        program(session, 6)
    assert len({bytes(rows[0]) for rows in values.values()}) == 6
    entries = [(number, read_entry(place.store, "j", number)) for number in range(head(place.store, "j") + 1)]
    saved = [(number, entry.step) for number, entry in entries if isinstance(entry, Manifest)]
    assert [step for _, step in saved] == [1, 2, 3, 4, 5, 6]
    for epoch, (commit, step) in enumerate(reversed(saved), 2):
        with place.session(f"from-{commit}", epoch, at_most=commit) as session:
            model = program(session, step)  # its steps are done: it restores, and trains no more
            assert session.step == step and _rows(model) == values[step]


def _rows(model: torch.nn.Module) -> list[bytes]:
    """The first and the last row of each weight."""
    return [_host_bytes(weight[row]) for weight in model.parameters() for row in (0, -1)]


def test_a_step_is_split_and_a_trace_has_the_devices_kernels(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_recorder, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr("trainhouse.workers.session.measuring.step_figures.FIRST_S", 0.2)
    monkeypatch.setattr("trainhouse.workers.session.measuring.step_figures.MIN_S", 0.0)
    torch.use_deterministic_algorithms(False)
    folder = place.folder / "measured"
    with place.session("measured", 1, precision="bf16") as session:
        session._boundary.trace._store = lambda: place.store
        # Large enough for a share of a device's peak; a CPU without bf16 of its own takes seconds for a step of that size.
        width, samples = (512, 256) if place.kind == "cuda" else (64, 16)
        model = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)).to(
            session.device
        )
        session.prepare(model)
        optimizer = torch.optim.AdamW(model.parameters())
        session.track(model=model, optimizer=optimizer)
        x = torch.randn(samples, width, device=session.device)
        for step in session.steps(60, count_flops=True, samples_per_step=samples):
            session.backward(model(x).square().mean())
            session.optimizer_step(optimizer, clip_norm=1.0)
            if step == 30:
                asked = {"id": "r1", "ranks": (0,), "steps": 4, "deadline_steady_s": steady_s() + 60}
                (folder.with_suffix(".asked") / "profile.json").write_text(json.dumps(asked))
    until(lambda: (folder / "profile.json").exists() and json.loads((folder / "profile.json").read_text())["state"] in ("done", "failed"))
    points: dict[str, float] = {}
    for line in lines(folder, "m"):
        points |= line[3]
    print(points)
    assert {"step/total_ms", "step/forward_ms", "step/backward_ms", "step/optimizer_ms", "step/flops", "gradient_norm"} <= points.keys()
    assert 0 < points["gradient_norm"] <= 1.01 and points["samples_per_s"] > 0
    assert 0 < points["step/forward_ms"] + points["step/backward_ms"] + points["step/optimizer_ms"] <= points["step/total_ms"] * 1.05
    (recorded,) = [event for event in lines(folder, "e") if event[1] == "TraceRecorded"]
    trace = json.loads(gzip.decompress(place.store.get(f"artifacts/j/{recorded[2]['sha256']}")))["traceEvents"]
    kernels = [event for event in trace if event.get("cat") == "kernel"]
    assert bool(kernels) == (place.kind == "cuda")
    if place.kind == "cuda":
        assert 0 < points["mfu"] < 1, f"{torch.cuda.get_device_name()} has a published peak"


def test_the_self_test_of_a_healthy_device_passes(place: Place) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(CheckFailedError, match="torch sees 0 devices"):
            accelerator(0, "GPU-x")
        return
    assert "exact products" in accelerator(0, "GPU-x")
