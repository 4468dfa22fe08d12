"""Exports: what torch, safetensors and zip tools read of them equals what was saved, whatever the pieces; failures leave no folder."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.waiting import until
from trainhouse.checkpointing.chain.chunks import ChunkStore
from trainhouse.checkpointing.chain.manifest import Chunk, Manifest, Piece, Span, TensorRecord
from trainhouse.checkpointing.chain.restore_candidates import checkpoint_named
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import DamagedError, ExportError, InvalidStateError
from trainhouse.checkpointing.exchange import file_writer
from trainhouse.checkpointing.exchange.contents import Contents
from trainhouse.checkpointing.exchange.export import PROVENANCE, Format, export_to_folder, plan_of
from trainhouse.checkpointing.exchange.importing import ImportSettings, import_folder
from trainhouse.events.model.resume_ref import parse_resume_from

torch.set_num_threads(1)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.uint8, torch.float8_e4m3fn, torch.complex64)


class Config:
    """A model's configuration as a tracked part."""

    def state_dict(self) -> dict[str, Any]:
        return {"architectures": ["Small"], "hidden": 8}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class ByName:
    """An optimizer whose state is by the names of parameters."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._of = (model, optimizer)

    def state_dict(self) -> dict[str, Any]:
        return get_optimizer_state_dict(*self._of)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def trained() -> dict[str, Any]:
    """A state with most kinds of values: dots in names, moments, scalars, an empty tensor, every dtype."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 300), torch.nn.BatchNorm1d(300), torch.nn.Linear(300, 400))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()
    kinds = {str(dtype): torch.arange(24).reshape(2, 3, 4).to(dtype) for dtype in DTYPES}
    odd = {"empty": torch.empty(0, 3), "scalar": torch.tensor(2.5), "list": [torch.ones(2), 7, "x"]}
    return {"model": model, "optimizer": ByName(model, optimizer), "extra.config": Config(), "kinds": kinds, "odd": odd}


def saved(state: dict[str, Any]) -> tuple[MemoryObjectStore, Manifest]:
    objects = MemoryObjectStore()
    Checkpointer(CheckpointerSettings("gpt", 1, 0, "spec"), objects).save(state, {"order": np.arange(3)}, 10, 1.0, metrics={"loss": 0.5})
    return objects, checkpoint_named(objects, parse_resume_from("gpt@step:10"))


def exported(objects: MemoryObjectStore, manifest: Manifest, kind: Format, out: Path, shard_bytes: int = 10**9) -> Path:
    chunks = ChunkStore(objects, manifest.job_id)
    export_to_folder(manifest, chunks, plan_of(Contents(manifest, chunks), kind, shard_bytes), kind, out)
    return out


def values_of(state: dict[str, Any]) -> dict[str, Any]:
    return {name: part.state_dict() if hasattr(part, "state_dict") else part for name, part in state.items()}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and one.contiguous().view(-1).view(torch.uint8).equal(other.contiguous().view(-1).view(torch.uint8))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def flat(values: dict[str, Any]) -> dict[str, torch.Tensor]:
    flattened, _ = dcp._nested_dict.flatten_state_dict(values)
    return {name: value for name, value in flattened.items() if isinstance(value, torch.Tensor)}


def test_torch_loads_its_file_with_weights_only_and_mapped(tmp_path: Path) -> None:
    state = trained()
    out = exported(*saved(state), Format.TORCH, tmp_path / "out")
    for mmap in (False, True):
        assert same(values_of(state), torch.load(out / "checkpoint.pt", weights_only=True, mmap=mmap))
    assert zipfile.ZipFile(out / "checkpoint.pt").testzip() is None
    own = torch.load(out / "ranks" / "00000.pt", weights_only=False)
    assert own["order"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("shard_bytes", [10**9, 20_000])
def test_plain_torch_loads_a_dcp_folder(tmp_path: Path, shard_bytes: int) -> None:
    state = values_of(trained())
    out = exported(*saved(state), Format.DCP, tmp_path / "out", shard_bytes)
    assert (len(list(out.glob("*.distcp"))) > 1) == (shard_bytes == 20_000)
    fresh = torch.nn.Sequential(torch.nn.Linear(6, 300), torch.nn.BatchNorm1d(300), torch.nn.Linear(300, 400))
    target = {"model": fresh.state_dict(), "odd": {"scalar": torch.tensor(0.0), "list": [torch.zeros(2), 0, ""]}}
    dcp.load(target, checkpoint_id=out)
    assert same(dict(target["model"]), dict(state["model"])) and same(target["odd"]["scalar"], torch.tensor(2.5))
    assert target["odd"]["list"][1:] == [7, "x"]
    dcp_to_torch_save(out, tmp_path / "whole.pt")
    whole = torch.load(tmp_path / "whole.pt", weights_only=False)
    assert same(state["optimizer"]["param_groups"], whole["optimizer"]["param_groups"]) and same(state["kinds"], whole["kinds"])


@pytest.mark.parametrize("shard_bytes", [10**9, 20_000])
def test_the_safetensors_library_loads_all_tensors(tmp_path: Path, shard_bytes: int) -> None:
    state = values_of(trained())
    out = exported(*saved(state), Format.SAFETENSORS, tmp_path / "out", shard_bytes)
    files = sorted(out.glob("*.safetensors"))
    loaded = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert same(flat(state), loaded)
    if len(files) == 1:
        assert files[0].name == "model.safetensors"
        return
    index = orjson.loads((out / "model.safetensors.index.json").read_bytes())
    assert index["weight_map"].keys() == loaded.keys() and set(index["weight_map"].values()) == {file.name for file in files}
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in loaded.values())


def test_hf_holds_the_weights_and_configuration_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    state = trained()
    out = exported(*saved(state), Format.HF, tmp_path / "out")
    model = state["model"].state_dict()
    assert same(dict(model), load_file(out / "model.safetensors"))
    assert orjson.loads((out / "config.json").read_bytes()) == Config().state_dict()
    fresh = torch.nn.Sequential(torch.nn.Linear(6, 300), torch.nn.BatchNorm1d(300), torch.nn.Linear(300, 400)).state_dict()
    dcp.load(fresh, storage_reader=dcp.HuggingFaceStorageReader(str(out)))
    assert same(dict(fresh), dict(model))
    facts = orjson.loads((out / PROVENANCE).read_bytes())
    assert "optimizer" in facts["left_out"]
    assert (facts["checkpoint"], facts["step"], facts["metrics"]) == ("gpt@1", 10, {"loss": 0.5})
    assert {file["name"]: file["size_bytes"] for file in facts["files"]} == {
        path.name: path.stat().st_size for path in out.iterdir() if path.name != PROVENANCE
    }


@pytest.mark.parametrize("kind", [Format.SAFETENSORS, Format.TORCH, Format.DCP])
def test_pieces_of_any_shape_come_together(tmp_path: Path, kind: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes of three dimensions, as tensor parallelism and FSDP make them together, read in blocks that cut them anywhere."""
    monkeypatch.setattr(file_writer, "BLOCK_BYTES", 37)
    whole = torch.arange(6 * 5 * 7, dtype=torch.int32).reshape(6, 5, 7)
    objects, manifest = saved({"model": {"w": whole}})
    boxes = [((r, c, d), (3, w, e)) for r in (0, 3) for c, w in ((0, 2), (2, 3)) for d, e in ((0, 4), (4, 3))]
    bodies = [whole[tuple(slice(o, o + s) for o, s in zip(*box, strict=True))].contiguous().numpy().tobytes() for box in boxes]
    chunks = ChunkStore(objects, "gpt")
    first = chunks.send([b"".join(bodies[:3])], frozenset())[0].chunk
    rest = [sent.chunk for sent in chunks.send(bodies[3:], frozenset())]
    pieces = []
    for number, ((offsets, sizes), body) in enumerate(zip(boxes, bodies, strict=True)):
        at = sum(map(len, bodies[:number])) if number < 3 else 0
        chunk = len(manifest.chunks) + max(0, number - 2)
        pieces.append(Piece(offsets=offsets, sizes=sizes, span=Span(chunk=chunk, offset=at, size_bytes=len(body))))
    record = TensorRecord(dtype="int32", shape=(6, 5, 7), pieces=tuple(pieces))
    cut = manifest.model_copy(update={"tensors": {"model.w": record}, "chunks": (*manifest.chunks, first, *rest)})
    out = exported(objects, cut, kind, tmp_path / "out")
    if kind is Format.SAFETENSORS:
        assert load_file(out / "model.safetensors")["model.w"].equal(whole)
    elif kind is Format.TORCH:
        assert torch.load(out / "checkpoint.pt")["model"]["w"].equal(whole)
    else:
        target = {"model": {"w": torch.zeros_like(whole)}}
        dcp.load(target, checkpoint_id=out)
        assert target["model"]["w"].equal(whole)


def test_a_damaged_chunk_names_tensor_and_file_and_leaves_no_folder(tmp_path: Path) -> None:
    objects, manifest = saved(trained())
    record = manifest.tensors["model.2\\.weight"]
    chunk = manifest.chunks[record.pieces[0].span.chunk]
    (key,) = [found.key for found in objects.list("jobs/gpt/chunks/") if found.key.endswith(chunk.sha256)]
    objects.put(key, bytes(chunk.size_bytes))
    with pytest.raises(DamagedError, match=r"gpt@1: chunk .* hash to .*; it holds .*model.2.*\.weight.* of model.safetensors"):
        exported(objects, manifest, Format.HF, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_refused_and_an_empty_one_taken(tmp_path: Path) -> None:
    objects, manifest = saved(trained())
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "x").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ExportError, match=r"used exists and is not an empty folder; name another one"):
        exported(objects, manifest, Format.HF, tmp_path / "used")
    left = tmp_path / ".empty.partial"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"of an export that was killed")
    assert (exported(objects, manifest, Format.HF, tmp_path / "empty") / PROVENANCE).exists()
    assert not left.exists()


def test_a_state_that_a_format_cannot_hold_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidStateError, match=r"w is of complex128, .*use --format dcp or torch"):
        exported(*saved({"w": torch.zeros(2, dtype=torch.complex128)}), Format.SAFETENSORS, tmp_path / "out")
    with pytest.raises(InvalidStateError, match=r"gpt@1 holds \['w'\], and no model"):
        exported(*saved({"w": torch.zeros(2)}), Format.HF, tmp_path / "out")
    with pytest.raises(InvalidStateError, match="two values of one name"):
        exported(*saved({"a.b": torch.zeros(2), "a": {"b": torch.zeros(2)}}), Format.DCP, tmp_path / "out")


@pytest.mark.parametrize("kind", [Format.SAFETENSORS, Format.TORCH, Format.DCP])
@pytest.mark.parametrize(
    "change",
    [
        {"offsets": (-1,)},
        {"offsets": (10**6,)},
        {"offsets": (0, 0)},
        {"sizes": (0,)},
        {"sizes": (-10,)},
        {"sizes": (2,)},
        {"sizes": (2, 5)},
        {"span": {"offset": 10**6}},
        {"span": {"chunk": 99}},
        {"span": {"size_bytes": 8}, "sizes": (2,)},
        {"shape": (20,)},
        {"shape": (-10,)},
        {"shape": (2, 5)},
        {"shape": ()},
        {"pieces": 0},
        {"pieces": 2},
        {"dtype": "load"},
    ],
    ids=str,
)
def test_a_manifest_whose_numbers_do_not_fit_is_refused_before_a_file_is_written(tmp_path: Path, kind: Format, change: Any) -> None:
    objects, manifest = saved({"model": {"w": torch.arange(10.0)}})
    record = manifest.tensors["model.w"].model_dump()
    (piece,) = record["pieces"]
    piece["span"] |= change.get("span", {})
    piece |= {key: value for key, value in change.items() if key in ("offsets", "sizes")}
    record |= {key: value for key, value in change.items() if key in ("shape", "dtype")}
    record["pieces"] = [piece] * change.get("pieces", 1)
    broken = manifest.model_copy(update={"tensors": {"model.w": TensorRecord.model_validate(record)}})
    with pytest.raises(DamagedError, match=r"gpt@1: model\.w: "):
        exported(objects, broken, kind, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_that_lacks_what_its_state_names_is_refused(tmp_path: Path) -> None:
    objects, manifest = saved({"model": {"w": torch.arange(10.0)}})
    away = Span(chunk=99, offset=0, size_bytes=1)
    for change, name in (({"tensors": {}}, r"no tensors model\.w"), ({"structure": away}, "structure"), ({"ranks": (away,)}, "of rank 0")):
        with pytest.raises(DamagedError, match=f"gpt@1.*{name}"):
            exported(objects, manifest.model_copy(update=change), Format.TORCH, tmp_path / "out")


@pytest.mark.parametrize(
    ("value", "refusal"),
    [
        ((1, torch.ones(3)), "carry of gpt@1 is a tuple with tensors"),
        ({0: torch.ones(2)}, "carry of gpt@1 is a mapping with keys that are no strings with tensors"),
        ({"in": [(2, torch.ones(2))]}, r"carry\.in\.\[0\] of gpt@1 is a tuple with tensors"),
    ],
    ids=str,
)
def test_tensors_that_dcp_would_lose_are_refused_by_name(tmp_path: Path, value: Any, refusal: str) -> None:
    objects, manifest = saved({"model": {"w": torch.ones(2)}, "carry": value})
    with pytest.raises(InvalidStateError, match=rf"{refusal} in it, which dcp cannot hold; use --format torch"):
        exported(objects, manifest, Format.DCP, tmp_path / "out")
    out = exported(objects, manifest, Format.TORCH, tmp_path / "out")
    assert same(torch.load(out / "checkpoint.pt", weights_only=True)["carry"], value)


@pytest.mark.parametrize(
    "value",
    [
        {2: 1, 4: 1},
        {},
        {"a": {}, "b": [], "c": {"d": {}}, "e": [{}, [{3: 4}], {"f": {}}]},
        [{"lr": 1.0}, {2: 1}],
        [torch.ones(2), {2: 1}, {}],
        {"x": (1, {}), True: None},
    ],
    ids=str,
)
def test_mappings_that_flat_names_do_not_hold_come_back_from_dcp(tmp_path: Path, value: Any) -> None:
    out = exported(*saved({"model": {"w": torch.ones(2)}, "odd": value, "empty": {}}), Format.DCP, tmp_path / "out")
    elsewhere = MemoryObjectStore()
    manifest = import_folder(out, elsewhere, ImportSettings("old", "lm", "x"))
    back = exported(elsewhere, manifest, Format.TORCH, tmp_path / "back")
    assert same(torch.load(back / "checkpoint.pt", weights_only=True), {"model": {"w": torch.ones(2)}, "odd": value, "empty": {}})


def test_a_link_in_the_place_of_unfinished_files_is_refused(tmp_path: Path) -> None:
    objects, manifest = saved({"w": torch.ones(2)})
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "thesis").touch()
    (tmp_path / ".out.partial").symlink_to(kept)
    with pytest.raises(ExportError, match=r"\.out\.partial is a link.*remove it"):
        exported(objects, manifest, Format.DCP, tmp_path / "out")
    assert [path.name for path in kept.iterdir()] == ["thesis"]
    (tmp_path / ".out.partial").unlink()
    (tmp_path / ".out.partial").mkdir()
    (tmp_path / ".out.partial" / "ranks").symlink_to(kept)
    exported(objects, manifest, Format.DCP, tmp_path / "out")
    assert [path.name for path in kept.iterdir()] == ["thesis"]


def test_links_are_followed_and_places_that_cannot_be_replaced_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects, manifest = saved({"w": torch.ones(2)})
    for name in ("here", "empty"):
        (tmp_path / name).mkdir()
    for name, target in (("to_empty", "empty"), ("to_new", "new"), ("loop", "loop")):
        (tmp_path / name).symlink_to(tmp_path / target)
    exported(objects, manifest, Format.DCP, tmp_path / "to_empty")
    exported(objects, manifest, Format.DCP, tmp_path / "to_new")
    assert all((tmp_path / name / PROVENANCE).exists() and not (tmp_path / name).is_symlink() for name in ("empty", "new"))
    monkeypatch.chdir(tmp_path / "here")
    for place, reason in (
        (Path(), "is the current folder"),
        (Path("/proc"), "is a mount point"),
        (tmp_path / "loop", "is a link to itself"),
    ):
        with pytest.raises(ExportError, match=f"{reason}.*name a"):
            exported(objects, manifest, Format.DCP, place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "here", "loop", "new", "to_empty", "to_new"]


@pytest.mark.parametrize("value", [2**70, "\ud800", "\u00e9"], ids=ascii)
def test_a_configuration_of_large_numbers_and_odd_strings_comes_out_of_json_alike(tmp_path: Path, value: Any) -> None:
    out = exported(*saved({"model": {"w": torch.ones(2)}, "config": {"a": [value]}}), Format.HF, tmp_path / "out")
    assert json.loads((out / "config.json").read_bytes()) == {"a": [value]}


def test_a_configuration_that_json_does_not_hold_is_left_out(tmp_path: Path) -> None:
    out = exported(*saved({"model": {"w": torch.ones(2)}, "config": {"a": float("nan")}}), Format.HF, tmp_path / "out")
    assert not (out / "config.json").exists()
    left_out = orjson.loads((out / PROVENANCE).read_bytes())["left_out"]
    assert left_out[:2] == ["config", "config.json: no configuration that JSON holds is tracked"]


def test_a_chunk_longer_or_shorter_than_its_manifest_says_is_damage() -> None:
    objects = MemoryObjectStore()
    chunks = ChunkStore(objects, "gpt")
    chunk = chunks.send([b"0123456789"], frozenset())[0].chunk
    assert [chunks.block(chunk, "jobs/gpt/chunks/", at, size) for at, size in ((0, 4), (4, 4), (8, 2))] == [b"0123", b"4567", b"89"]
    with pytest.raises(DamagedError, match="ends after 10 of 11 bytes"):
        chunks.block(Chunk(sha256=chunk.sha256, size_bytes=11), "jobs/gpt/chunks/", 8, 3)
    with pytest.raises(DamagedError, match="missing"):
        chunks.block(Chunk(sha256="0" * 64, size_bytes=11), "jobs/gpt/chunks/", 0, 4)


def test_memory_does_not_grow_with_the_checkpoint(tmp_path: Path) -> None:
    """Tensors, chunks and files are larger than all that the export may hold at a time."""
    objects, manifest = saved({"model": {"w": torch.zeros(1)}})
    size = 3 * file_writer.MEMORY_BYTES
    source = OneLargeChunk(objects, size)
    piece = Piece(offsets=(0,), sizes=(size,), span=Span(chunk=len(manifest.chunks), offset=0, size_bytes=size))
    record = TensorRecord(dtype="uint8", shape=(size,), pieces=(piece,))
    chunk = Chunk(sha256=source.sha256, size_bytes=size)
    large = manifest.model_copy(update={"tensors": {"model.w": record}, "chunks": (*manifest.chunks, chunk)})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    chunks = ChunkStore(source, "gpt")
    export_to_folder(large, chunks, plan_of(Contents(large, chunks), Format.TORCH), Format.TORCH, tmp_path / "out")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < file_writer.MEMORY_BYTES, f"{grown / 2**20:.0f} MiB"
    assert torch.load(tmp_path / "out" / "checkpoint.pt", mmap=True)["model"]["w"][-1] == 7


class OneLargeChunk(MemoryObjectStore):
    """A store with one chunk that is made as it is read: all sevens."""

    def __init__(self, objects: MemoryObjectStore, size_bytes: int) -> None:
        super().__init__()
        self._objects = objects._objects
        self._size_bytes = size_bytes
        digest = hashlib.sha256()
        for _ in range(size_bytes // 2**20):
            digest.update(b"\7" * 2**20)
        self.sha256 = digest.hexdigest()

    def get_range(self, key: str, start: int, length_bytes: int) -> bytes:
        if key.endswith(self.sha256):
            return b"\7" * min(length_bytes, self._size_bytes - start)
        return super().get_range(key, start, length_bytes)


def test_a_full_disk_is_a_sentence_and_leaves_no_folder(tmp_path: Path) -> None:
    objects, manifest = saved(trained())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(ExportError, match=r"no space for the export at .*out \(.*\); free some, or name another place"):
            exported(objects, manifest, Format.TORCH, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


class Stalling(MemoryObjectStore):
    """A store that says that it was asked, and then never answers."""

    def __init__(self, objects: MemoryObjectStore, asked: Path) -> None:
        super().__init__()
        self._objects = objects._objects
        self._asked = asked

    def get_range(self, key: str, start: int, length_bytes: int) -> bytes:
        self._asked.touch()
        return threading.Event().wait() and b""


def test_a_killed_export_leaves_no_folder_of_its_name_and_the_next_one_succeeds(tmp_path: Path) -> None:
    objects, manifest = saved(trained())
    child = os.fork()
    if child == 0:
        exported(Stalling(objects, tmp_path / "asked"), manifest, Format.DCP, tmp_path / "out")
        os._exit(1)
    until((tmp_path / "asked").exists, 60)
    with pytest.raises(ExportError, match=r"another export into .* is under way"):
        exported(objects, manifest, Format.DCP, tmp_path / "out")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert not (tmp_path / "out").exists()
    out = exported(objects, manifest, Format.DCP, tmp_path / "out")
    assert sorted(path.name for path in out.iterdir()) == [".metadata", "__0_0.distcp", "ranks", PROVENANCE]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["asked", "out"]
