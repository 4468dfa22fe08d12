"""Imports of folders that are not whole, lead elsewhere or were changed, and into ids that are taken: refused, nothing is written."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.chain.chunks import ChunkStore
from trainhouse.checkpointing.chain.commits import CommitChain, Writer
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.chain.restore_candidates import checkpoint_named
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import InvalidStateError, ObjectStoreRefusedError
from trainhouse.checkpointing.exchange.contents import Contents
from trainhouse.checkpointing.exchange.download import download
from trainhouse.checkpointing.exchange.export import Format, export_to_folder, plan_of
from trainhouse.checkpointing.exchange.importing import ImportSettings, import_folder
from trainhouse.checkpointing.lease.lease_facts import owner_key
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId
from trainhouse.events.model.resume_ref import parse_resume_from
from trainhouse.workers.session.saving.tracked_state import Tracked

torch.set_num_threads(1)


def imported(
    folder: Path, objects: MemoryObjectStore, job: str = "old", project: str = "lm", only: frozenset[str] = frozenset()
) -> Manifest:
    return import_folder(folder, objects, ImportSettings(job, project, "here", only=only))


def refused(folder: Path, words: str, only: frozenset[str] = frozenset()) -> None:
    """An import fails with these words, and leaves nothing."""
    objects = MemoryObjectStore()
    with pytest.raises(InvalidStateError, match=words):
        imported(folder, objects, only=only)
    assert list(objects.list("")) == []


def restored(objects: MemoryObjectStore, state: dict[str, Any], name: str = "old@1") -> dict[str, Any]:
    Checkpointer(CheckpointerSettings("child", 1, 0, "spec"), objects).restore(state, lambda own: None, name)
    return state


def export(state: dict[str, Any], kind: Format, out: Path) -> Path:
    objects = MemoryObjectStore()
    Checkpointer(CheckpointerSettings("gpt", 1, 0, "spec"), objects).save(state, {}, 5, 1.0)
    manifest, chunks = checkpoint_named(objects, parse_resume_from("gpt")), ChunkStore(objects, "gpt")
    export_to_folder(manifest, chunks, plan_of(Contents(manifest, chunks), kind), kind, out)
    return out


def rewrite(folder: Path, **changes: Any) -> Metadata:
    """Changes fields of a folder's metadata; returns it."""
    path = folder / ".metadata"
    found = dataclasses.replace(pickle.loads(path.read_bytes()), **changes)
    path.write_bytes(pickle.dumps(found))
    return found


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A DCP folder of one tensor."""
    dcp.save({"model": {"w": torch.arange(1000.0)}}, checkpoint_id=tmp_path / "plain")
    return tmp_path / "plain"


def test_tensors_within_pickled_values_come_along(tmp_path: Path) -> None:
    dcp.save({"model": {"w": torch.ones(2)}, "carry": (1, torch.full((3,), 7.0))}, checkpoint_id=tmp_path / "dcp")
    objects = MemoryObjectStore()
    imported(tmp_path / "dcp", objects)
    state = restored(objects, {"model": {"w": torch.zeros(2)}, "carry": (0, torch.zeros(3))})
    assert state["carry"][0] == 1 and state["carry"][1].equal(torch.full((3,), 7.0))


def test_a_rate_that_is_a_tensor_comes_along(tmp_path: Path) -> None:
    def made(seed: int) -> Tracked:
        torch.manual_seed(seed)
        model = torch.nn.Linear(3, 3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01 * seed), capturable=False, foreach=False)
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        return Tracked(model, optimizer)

    old, new = made(1), made(2)
    state = {"model": old.models[0].state_dict(), "optimizer": get_optimizer_state_dict(old.models[0], old.optimizers[0])}
    dcp.save(state, checkpoint_id=tmp_path / "dcp")
    objects = MemoryObjectStore()
    imported(tmp_path / "dcp", objects)
    restored(objects, new.shared())
    assert float(new.optimizers[0].param_groups[0]["lr"]) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("shape", "boxes"),
    [
        ([100_000], [(0, 1000)]),  # a hole
        ([1000], [(0, 1000), (0, 1000)]),
        ([1000], [(0, 500), (499, 501), (0, 0)]),
        ([1000], [(500, 1000)]),  # out of bounds
        ([1000], [(-1, 1000)]),
        ([1000, 1], [(0, 1000)]),
        ([1000], []),
        ([], []),
    ],
)
def test_pieces_that_do_not_fill_a_tensor_once(plain: Path, shape: list[int], boxes: list[tuple[int, int]]) -> None:
    old = rewrite(plain).state_dict_metadata["model.w"]
    chunks = [ChunkStorageMetadata(torch.Size([start]), torch.Size([size])) for start, size in boxes if start >= 0]
    chunks += [ChunkStorageMetadata((start,), torch.Size([size])) for start, size in boxes if start < 0]  # type: ignore[arg-type]
    rewrite(plain, state_dict_metadata={"model.w": TensorStorageMetadata(old.properties, torch.Size(shape), chunks)})
    refused(plain, "the pieces of model.w do not fill it exactly once")


def test_a_shape_that_no_file_could_hold(plain: Path) -> None:
    old = rewrite(plain).state_dict_metadata["model.w"]
    huge = torch.Size([2**45])
    changed = TensorStorageMetadata(old.properties, huge, [ChunkStorageMetadata(torch.Size([0]), huge)])
    rewrite(plain, state_dict_metadata={"model.w": changed})
    refused(plain, r"model\.w of \(35184372088832,\) takes 140737488355328 bytes, and its files hold \d+")


@pytest.mark.parametrize("place", ["../secret/{}", "{folder}/secret/{}"])
def test_metadata_that_names_files_elsewhere(plain: Path, place: str) -> None:
    dcp.save({"model": {"w": torch.full((1000,), 42.0)}}, checkpoint_id=plain.parent / "secret")
    stored = rewrite(plain.parent / "secret").storage_data
    names = {i: place.format(info.relative_path, folder=plain.parent) for i, info in stored.items()}
    rewrite(plain, storage_data={i: dataclasses.replace(info, relative_path=names[i]) for i, info in stored.items()})
    refused(plain, "leads out of .*plain; copy the folder")


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "trainhouse.json"])
def test_links_out_of_a_dcp_folder(plain: Path, name: str) -> None:
    outside = plain.parent / "outside"
    if (plain / name).exists():
        (plain / name).rename(outside)
    (plain / name).symlink_to(outside)
    refused(plain, "leads out of .*plain; copy the folder")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "model.safetensors.index.json"])
def test_links_out_of_a_folder_of_hugging_face(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    save_file({"w": torch.ones(2)}, folder / "model.safetensors")
    save_file({"w": torch.ones(2)}, tmp_path / "outside")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "outside")
    refused(folder, "leads out of .*hf; copy the folder")
    (folder / name).unlink()
    save_file({"w": torch.ones(2)}, folder / "model.safetensors")
    save_file({"w": torch.ones(2)}, folder / "other")
    (folder / "linked.safetensors").symlink_to(folder / "other")
    (folder / "model.safetensors").unlink()
    assert list(imported(folder, MemoryObjectStore()).tensors) == ["model.w"]


@pytest.mark.parametrize(("kind", "file"), [(Format.HF, "model.safetensors"), (Format.DCP, "__0_0.distcp"), (Format.DCP, "ranks/00000.pt")])
def test_a_flipped_bit_of_an_export(tmp_path: Path, kind: Format, file: str) -> None:
    out = export({"model": {"w": torch.arange(1000.0)}}, kind, tmp_path / "out")
    content = bytearray((out / file).read_bytes())
    content[len(content) // 2] ^= 1
    (out / file).write_bytes(content)
    refused(out, f"{file} is not what was exported")
    (out / file).unlink()
    refused(out, f"is not whole: trainhouse.json names {file}, which is not there|holds neither")


def test_states_of_ranks_that_an_export_does_not_name(tmp_path: Path) -> None:
    out = export({"model": {"w": torch.ones(2)}}, Format.DCP, tmp_path / "out")
    (out / "ranks" / "00001.pt").write_bytes((out / "ranks" / "00000.pt").read_bytes())
    assert imported(out, MemoryObjectStore()).world_size == 1


@pytest.mark.parametrize("facts", [{"step": -1}, {"step": None}, {"metrics": {"loss": None}}, {"metrics": []}, {"files": [1]}])
def test_provenance_that_makes_no_sense(tmp_path: Path, facts: dict[str, Any]) -> None:
    out = export({"model": {"w": torch.ones(2)}}, Format.HF, tmp_path / "out")
    path = out / "trainhouse.json"
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | facts))
    refused(out, f"trainhouse.json: {next(iter(facts))}.*remove trainhouse.json to import")


def test_shards_that_are_missing_and_files_that_no_index_names(tmp_path: Path) -> None:
    first, index = tmp_path / "model-00001-of-00002.safetensors", tmp_path / "model.safetensors.index.json"
    save_file({"a": torch.ones(2)}, first)
    refused(tmp_path, "is not whole: model-00001-of-00002.safetensors is one of 2 files")
    save_file({"a": torch.ones(2)}, tmp_path / "consolidated.safetensors")
    index.write_text('{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}')
    refused(tmp_path, "is not whole: .* names b, which no file holds")
    save_file({"b": torch.ones(2)}, tmp_path / "model-00002-of-00002.safetensors")
    assert sorted(imported(tmp_path, MemoryObjectStore()).tensors) == ["model.a", "model.b"]
    for wrong in ('{"weight_map": [["a"]]}', '{"weight_map": null}', '{"weight_map": {}}', '{"weight_map": {"a": 1}}'):
        index.write_text(wrong)
        refused(tmp_path, "has no weight_map of tensors to files")
    index.write_text('{"weight_map": {"a": "../a.safetensors"}}')
    refused(tmp_path, "leads out of")


def test_folders_without_tensors(tmp_path: Path, plain: Path) -> None:
    rewrite(plain, state_dict_metadata={})
    refused(plain, "describes no tensors")
    dcp.save({"model": {"steps": 3}}, checkpoint_id=tmp_path / "numbers")
    refused(tmp_path / "numbers", "the part model of here holds no tensors")
    (tmp_path / "hf").mkdir()
    save_file({}, tmp_path / "hf" / "model.safetensors")
    refused(tmp_path / "hf", "the part model of here holds no tensors")


def test_metadata_of_a_newer_python(plain: Path) -> None:
    named = pickle.dumps(Path("/x"), protocol=0).replace(b"cpathlib\n", b"cpathlib._local\n")
    assert b"pathlib._local" in named
    (plain / ".metadata").write_bytes(named)
    refused(plain, "is no metadata of torch's, but a PosixPath")


def test_damaged_metadata_is_refused_or_harmless(plain: Path) -> None:
    path, dice = plain / ".metadata", Random(1)
    content = path.read_bytes()
    for _ in range(200):
        damaged = bytearray(content)
        damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        path.write_bytes(damaged)
        objects = MemoryObjectStore()
        try:
            imported(plain, objects)
        except InvalidStateError:
            assert list(objects.list("jobs/old/commits/")) == []


@pytest.mark.parametrize(
    "paths", [[1], {"model.w": ()}, {"model.w": [1]}, {"model.w": ("model", 2**40)}, {"model.w": ("model", -1)}, {"model.w": (0,)}]
)
def test_paths_that_are_none(plain: Path, paths: Any) -> None:
    rewrite(plain, planner_data=paths)
    refused(plain, r"\.metadata: (its planner_data is a list|the path of model.w is)")


def test_a_recipe_of_pytorch_in_its_wrapper(tmp_path: Path) -> None:
    def made(seed: int) -> Tracked:
        torch.manual_seed(seed)
        model = torch.nn.Linear(3, 3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        return Tracked(model, optimizer)

    old, new = made(1), made(2)
    state = {"model": old.models[0].state_dict(), "optim": get_optimizer_state_dict(old.models[0], old.optimizers[0])}
    dcp.save({"app": state}, checkpoint_id=tmp_path / "dcp")
    objects = MemoryObjectStore()
    imported(tmp_path / "dcp", objects)
    restored(objects, new.shared())
    for mine, theirs in zip((old.models[0], old.optimizers[0]), (new.models[0], new.optimizers[0]), strict=True):
        found, expected = (
            [t for t in torch.utils._pytree.tree_leaves(of.state_dict()) if isinstance(t, torch.Tensor)] for of in (theirs, mine)
        )
        assert len(found) == len(expected) and all(a.equal(b) for a, b in zip(found, expected, strict=True))
    only = MemoryObjectStore()
    assert set(imported(tmp_path / "dcp", only, only=frozenset({"model"})).tensors) == {"model.weight", "model.bias"}
    refused(tmp_path / "dcp", r"holds none of \['modle'\]; it has model, optimizer", frozenset({"model", "modle"}))
    refused(tmp_path / "dcp", "without its part model; it has model, optimizer", frozenset({"optimizer"}))


def test_an_id_that_is_taken_keeps_its_owner(plain: Path) -> None:
    objects = MemoryObjectStore()
    Checkpointer(CheckpointerSettings("ran", 1, 0, "spec"), objects).save({"w": torch.ones(2)}, {}, 1, 1.0)
    before = list(objects.list(""))
    with pytest.raises(InvalidStateError, match="ran is a job that ran; import under another id"):
        imported(plain, objects, "ran", "others")
    assert [stat.key for stat in objects.list("")] == [stat.key for stat in before]
    assert objects.stat(owner_key("ran")) is None
    imported(plain, objects)
    with pytest.raises(InvalidStateError, match="old has an imported checkpoint; import under another id"):
        imported(plain, objects)
    with pytest.raises(ObjectStoreRefusedError, match="job old is not of project 'others', but of another one"):
        imported(plain, objects, project="others")


def test_a_failed_import_takes_no_number(plain: Path) -> None:
    objects = MemoryObjectStore()
    content = bytearray((plain / "__0_0.distcp").read_bytes())
    (plain / "__0_0.distcp").write_bytes(b"x" * len(content))
    with pytest.raises(InvalidStateError, match="cannot be read"):
        imported(plain, objects)
    (plain / "__0_0.distcp").write_bytes(content)
    assert imported(plain, objects).commit == 1
    CommitChain(objects, Writer(JobId.parse("cut"), Epoch(0), AttemptNumber(0), "gone")).claim(1.0)  # killed right before its commit
    assert imported(plain, objects, "cut").commit == 2


def test_folder_marks_of_a_bucket_are_no_files(tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    for key, content in (("p/", b""), ("p/inner/", b""), ("p/inner/a", b"1")):
        objects.put(key, content)
    assert download(objects, "p/", tmp_path) == 1
    assert (tmp_path / "inner" / "a").read_bytes() == b"1"
