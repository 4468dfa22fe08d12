"""Imports of DCP and Hugging Face folders: jobs start from them, with the bits that were there; nothing of a folder runs as code."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.chain.chunks import ChunkStore
from trainhouse.checkpointing.chain.restore_candidates import checkpoint_named
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import InvalidStateError, ObjectStoreRefusedError
from trainhouse.checkpointing.exchange.contents import Contents
from trainhouse.checkpointing.exchange.export import Format, export_to_folder, plan_of
from trainhouse.checkpointing.exchange.importing import ImportSettings, import_folder
from trainhouse.checkpointing.results import RestoreReport
from trainhouse.events.model.resume_ref import parse_resume_from
from trainhouse.workers.session.saving.tracked_state import Tracked

torch.set_num_threads(1)


class Loader:
    """A loader with a place of its own in the data of a rank."""

    place = 7

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


class Training:
    """A model that trains, as a session tracks it."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 300), torch.nn.Dropout(0.2), torch.nn.Linear(300, 400))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.5)
        self.loader = Loader()
        self.tracked = Tracked(self.model, self.optimizer, self.schedule, self.loader)

    def train(self, steps: int) -> Training:
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.model(torch.randn(8, 6)).square().mean().backward()
            self.optimizer.step()
            self.schedule.step()
        return self

    def weights(self) -> bytes:
        return b"".join(t.numpy().tobytes() for t in self.model.state_dict().values())

    def moments(self) -> bytes:
        return b"".join(v.numpy().tobytes() for s in self.optimizer.state_dict()["state"].values() for v in s.values())


def started_from(objects: MemoryObjectStore, name: str, training: Training) -> RestoreReport:
    at = Checkpointer(CheckpointerSettings("child", 1, 0, "spec"), objects)
    return at.restore(training.tracked.shared(), training.tracked.put_back_own, name)


def test_an_export_of_ours_comes_back_bit_for_bit_and_trains_on_alike(tmp_path: Path) -> None:
    objects, first = MemoryObjectStore(), Training(1).train(5)
    first.loader.place = 11
    at = Checkpointer(CheckpointerSettings("gpt", 1, 0, "spec"), objects)
    at.save(first.tracked.shared(), first.tracked.of_this_rank(), 5, 1.0, metrics={"loss": 0.25})
    manifest, chunks = checkpoint_named(objects, parse_resume_from("gpt")), ChunkStore(objects, "gpt")
    export_to_folder(manifest, chunks, plan_of(Contents(manifest, chunks), Format.DCP), Format.DCP, tmp_path / "out")
    elsewhere = MemoryObjectStore()
    imported = import_folder(tmp_path / "out", elsewhere, ImportSettings("old", "lm", "somewhere"))
    assert (imported.step, imported.metrics, imported.imported_from) == (5, {"loss": 0.25}, "somewhere")
    at_five, at_nine = (first.weights(), first.moments()), first.train(4).weights()
    second = Training(2)
    assert started_from(elsewhere, "old@1", second).step == 5
    assert (second.weights(), second.moments(), second.loader.place) == (*at_five, 11)
    assert second.train(4).weights() == at_nine  # generators, too


@pytest.mark.parametrize("bare", [False, True])
def test_a_dcp_folder_of_plain_torch(tmp_path: Path, bare: bool) -> None:
    old = Training(1).train(3)
    states = {"model": old.model.state_dict(), "optimizer": get_optimizer_state_dict(old.model, old.optimizer)}
    dcp.save(dict(old.model.state_dict()) if bare else states, checkpoint_id=tmp_path / "dcp")
    objects, new = MemoryObjectStore(), Training(2)
    import_folder(tmp_path / "dcp", objects, ImportSettings("old", "lm", "dcp", step=3))
    assert started_from(objects, "old@step:3", new).restored == 1
    assert new.weights() == old.weights()
    assert new.moments() == (b"" if bare else old.moments())
    new.train(1)


def test_a_folder_of_hugging_face_in_shards(tmp_path: Path) -> None:
    old = Training(1).train(3).model.state_dict()
    for number, names in enumerate((list(old)[:1], list(old)[1:])):
        save_file({name: old[name] for name in names}, tmp_path / f"model-{number}.safetensors")
    (tmp_path / "config.json").write_text('{"hidden": 300}')
    objects, new = MemoryObjectStore(), Training(2)
    manifest = import_folder(tmp_path, objects, ImportSettings("hf", "lm", "hf"))
    assert started_from(objects, "hf", new).step == 0
    assert all(new.model.state_dict()[name].equal(tensor) for name, tensor in old.items())
    assert (new.moments(), new.loader.place) == (b"", 7)
    chunks = ChunkStore(objects, "hf")
    export_to_folder(manifest, chunks, plan_of(Contents(manifest, chunks), Format.HF), Format.HF, tmp_path / "o")
    assert (tmp_path / "o" / "config.json").exists()


def test_a_tensor_in_pieces_and_a_scalar_of_hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainhouse.checkpointing.state.balance.MAX_PIECE_BYTES", 1000)
    tensors = {"w": torch.arange(3000.0).reshape(100, 30), "s": torch.tensor(3.0), "e": torch.empty(0, 4)}
    save_file(tensors, tmp_path / "model.safetensors")
    objects = MemoryObjectStore()
    manifest = import_folder(tmp_path, objects, ImportSettings("hf", "lm", "hf"))
    assert len(manifest.tensors["model.w"].pieces) > 5
    state: dict[str, Any] = {"model": {name: torch.zeros_like(t) for name, t in tensors.items()}}
    Checkpointer(CheckpointerSettings("child", 1, 0, "spec"), objects).restore(state, lambda own: None, "hf")
    assert all(state["model"][name].equal(tensor) for name, tensor in tensors.items())


def test_what_cannot_be_imported_says_why(tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    settings = ImportSettings("old", "lm", "here")
    with pytest.raises(InvalidStateError, match=r"holds neither \.metadata .* nor \*\.safetensors"):
        import_folder(tmp_path, objects, settings)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(InvalidStateError, match=r"model\.safetensors is no whole safetensors file"):
        import_folder(tmp_path, objects, settings)
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"w": "model.safetensors", "v": "other.safetensors"}}')
    with pytest.raises(InvalidStateError, match=r"is not whole: .* names v, which no file holds"):
        import_folder(tmp_path, objects, settings)
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(InvalidStateError, match=r"here holds none of \['optimizer'\]"):
        import_folder(tmp_path, objects, ImportSettings("old", "lm", "here", only=frozenset({"optimizer"})))
    assert list(objects.list("")) == []
    Checkpointer(CheckpointerSettings("ran", 1, 0, "spec"), objects).save({"w": torch.ones(2)}, {}, 1, 1.0)
    with pytest.raises(InvalidStateError, match="ran is a job that ran; import under another id"):
        import_folder(tmp_path, objects, ImportSettings("ran", "lm", "here"))
    import_folder(tmp_path, objects, settings)
    with pytest.raises(ObjectStoreRefusedError, match="of another one"):
        import_folder(tmp_path, objects, ImportSettings("old", "other", "here"))


class Attack:
    """Runs a command where it is unpickled without care."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self._command,)


@pytest.mark.parametrize("where", ["metadata", "value"])
def test_nothing_of_a_folder_runs(tmp_path: Path, where: str) -> None:
    attack = Attack(f"touch {tmp_path}/ran")
    folder = tmp_path / "dcp"
    dcp.save({"model": {"w": torch.ones(2)}, "x": attack if where == "value" else 1}, checkpoint_id=folder)
    if where == "metadata":
        (folder / ".metadata").write_bytes(pickle.dumps(attack))
    with pytest.raises(InvalidStateError, match=r"names posix\.system|cannot be read"):
        import_folder(folder, MemoryObjectStore(), ImportSettings("old", "lm", "here"))
    assert not (tmp_path / "ran").exists()
