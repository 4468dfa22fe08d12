"""Fetches from the store alone: whole or not at all, going on where they were killed, and each byte what the version has."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.chain.chunks import chunk_key, prefix_of
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import DamagedError, ExportError, InvalidStateError, NoModelError, ObjectStoreUnavailableError
from trainhouse.checkpointing.exchange import file_writer
from trainhouse.checkpointing.exchange.export import PROVENANCE, Format
from trainhouse.checkpointing.lease.lease_facts import owned
from trainhouse.checkpointing.models.fetch import checkpoint_of, fetch
from trainhouse.checkpointing.models.named_version import NamedVersion, find_version, parse_reference
from trainhouse.checkpointing.models.stage_chain import StagedVersion, StageRecord, append, stage_key
from trainhouse.checkpointing.models.verify import identify
from trainhouse.checkpointing.models.version_content import VersionParts, prepare_version
from trainhouse.checkpointing.stores.object_store import ObjectStat
from trainhouse.events.model.model_content import content_key
from trainhouse.events.model.resume_ref import parse_resume_from

torch.set_num_threads(1)
EVALUATION = "ef" * 32


class KilledError(BaseException):
    """The process ended here."""


class Store(MemoryObjectStore):
    """Ends its process before the read with the number `killed_at`, whichever thread makes it; counts reads."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.killed_at, self.ranges = 0, -1, 0

    def _call(self) -> None:
        self.calls += 1
        if 0 <= self.killed_at < self.calls:
            raise KilledError

    def get(self, key: str) -> bytes:
        self._call()
        return super().get(key)

    def get_range(self, key: str, start: int, length_bytes: int) -> bytes:
        self._call()
        self.ranges += 1
        return MemoryObjectStore.get(self, key)[start : start + length_bytes]

    def stat(self, key: str) -> ObjectStat | None:
        self._call()
        return super().stat(key)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        self._call()
        return super().list(prefix, start_after)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "BLOCK_BYTES", 200_000)


def weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    found = {f"layers.{n}.weight": torch.randn(300, 300, generator=generator) for n in range(4)}
    return found | {"norm": torch.ones(7, dtype=torch.bfloat16), "bias": torch.arange(5.0)}


def trained(objects: Store, tmp_path: Path, epoch: int = 1, **more: Any) -> tuple[NamedVersion, dict[str, Path]]:
    """Registers a checkpoint, with an optimizer's state beside the weights, as version 1 of `gpt`, the champion."""
    owned(objects, "gpt-1", "default", 0)
    state = {"model": weights(), "optimizer": {"m": torch.full((50,), 0.5)}, "extra.config": {"hidden": 8}, **more}
    Checkpointer(CheckpointerSettings("gpt-1", epoch, 0, "spec"), objects).save(state, {}, 10, 1.0, metrics={"loss": 0.5})
    (tmp_path / "tokenizer.json").write_text('{"vocab":{"a":0}}')
    files = {"tokenizer.json": tmp_path / "tokenizer.json"}
    parts = VersionParts(files, framework="torch 2.9", licence="apache-2.0", datasets=("text@1.0.0",), notes="the first")
    prepared = prepare_version(objects, "default", parse_resume_from("gpt-1"), parts)
    staged = StagedVersion(version=1, semver="1.0.0", content=prepared.sha256, evaluations=(EVALUATION,))
    record = StageRecord(project="default", name="gpt", decision=1, kind="registered", subject=staged, staging=staged, at_ms=10**12)
    append(objects, record)
    append(objects, record.model_copy(update={"decision": 2, "kind": "promoted", "champion": staged, "staging": None}))
    return find_version(objects, parse_reference("gpt@champion")), files


@pytest.fixture
def objects() -> Store:
    return Store()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("selector", ["champion", "1", "v1", "1.0.0"])
def test_weights_tokenizer_and_provenance_come_from_the_store(objects: Store, tmp_path: Path, selector: str) -> None:
    trained(objects, tmp_path)
    out = tmp_path / "out"
    done = fetch(objects, find_version(objects, parse_reference(f"gpt@{selector}")), Format.SAFETENSORS, out)
    assert sorted(file.name for file in done.files) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert same(load_file(out / "model.safetensors"), weights())
    assert json.loads((out / "config.json").read_text()) == {"hidden": 8} and "vocab" in (out / "tokenizer.json").read_text()
    with safe_open(out / "model.safetensors", "pt") as opened:
        metadata = opened.metadata()
    assert metadata["trainhouse.model"] == "model:gpt@1" and metadata["trainhouse.licence"] == "apache-2.0"
    assert metadata["trainhouse.datasets"] == "text@1.0.0" and metadata["trainhouse.evaluations"] == EVALUATION
    described = orjson.loads((out / PROVENANCE).read_bytes())
    assert described["version"]["model"] == "model:gpt@1" and described["version"]["notes"] == "the first"
    assert described["checkpoint"] == "gpt-1@1"
    assert [file["name"] for file in described["files"]] == ["tokenizer.json"]
    assert [file["name"] for file in described["weights"]] == ["config.json", "model.safetensors"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("kind", list(Format))
def test_every_format_is_fetched_and_identified(objects: Store, tmp_path: Path, kind: Format) -> None:
    version, _ = trained(objects, tmp_path)
    out = tmp_path / "out"
    fetch(objects, version, kind, out, shard_bytes=500_000)
    verdict = identify(objects, out)
    assert verdict.version is not None and verdict.version.lineage_id == "model:gpt@1" and verdict.problems == ()


def test_a_fetch_again_reads_only_chunks_that_others_share(objects: Store, tmp_path: Path) -> None:
    version, _ = trained(objects, tmp_path)
    first = fetch(objects, version, Format.SAFETENSORS, tmp_path / "out")
    (tmp_path / ".out.partial").mkdir()
    objects.ranges = 0
    again = fetch(objects, version, Format.SAFETENSORS, tmp_path / "out")
    assert again.was_there and again.files == first.files and objects.ranges <= 1 and not (tmp_path / ".out.partial").exists()
    with (tmp_path / "out" / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    with pytest.raises(ExportError, match="changed since"):
        fetch(objects, version, Format.SAFETENSORS, tmp_path / "out")


def test_killed_at_every_call_the_folder_is_absent_and_the_next_fetch_goes_on(objects: Store, tmp_path: Path) -> None:
    version, _ = trained(objects, tmp_path)
    objects.calls = 0
    fetch(objects, version, Format.SAFETENSORS, tmp_path / "whole")
    calls, whole = objects.calls, contents(tmp_path / "whole")
    assert calls > 12
    for killed_at in range(calls):
        out = tmp_path / f"out-{killed_at}"
        objects.calls, objects.killed_at = 0, killed_at
        with pytest.raises(KilledError):
            fetch(objects, version, Format.SAFETENSORS, out)
        assert not out.exists()
        objects.killed_at = -1
        fetch(objects, version, Format.SAFETENSORS, out)
        assert contents(out) == whole and not (tmp_path / f".{out.name}.partial").exists()
        shutil.rmtree(out)


def test_a_fetch_goes_on_from_the_chunks_that_it_has(objects: Store, tmp_path: Path) -> None:
    version, _ = trained(objects, tmp_path)
    objects.ranges = 0
    fetch(objects, version, Format.SAFETENSORS, tmp_path / "whole")
    ranges = objects.ranges
    objects.calls, objects.killed_at = 0, 10**9
    last = interrupted_at(objects, version, tmp_path / "out")
    objects.killed_at, objects.ranges = -1, 0
    fetch(objects, version, Format.SAFETENSORS, tmp_path / "out")
    assert 0 < objects.ranges < ranges and last > 0 and contents(tmp_path / "out") == contents(tmp_path / "whole")


def interrupted_at(objects: Store, version: NamedVersion, out: Path) -> int:
    """Kills fetches later and later, until one leaves chunks behind; returns how many it noted."""
    for killed_at in range(8, 100):
        objects.calls, objects.killed_at = 0, killed_at
        with pytest.raises(KilledError):
            fetch(objects, version, Format.SAFETENSORS, out)
        progress = out.parent / f".{out.name}.partial" / "progress"
        lines = [line for line in progress.read_text().split("\n")[1:] if line] if progress.exists() else []
        if len(lines) >= 2:
            return len(lines)
    return 0


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("ruin", ["zeros", "cut", "junk in progress", "another version's progress", "a link"])
def test_what_a_killed_fetch_left_is_looked_at_again(objects: Store, tmp_path: Path, ruin: str) -> None:
    version, _ = trained(objects, tmp_path)
    fetch(objects, version, Format.SAFETENSORS, tmp_path / "whole")
    out, partial = tmp_path / "out", tmp_path / ".out.partial"
    assert interrupted_at(objects, version, out)
    objects.killed_at = -1
    file, progress = partial / "files" / "model.safetensors", partial / "progress"
    match ruin:
        case "zeros":
            file.write_bytes(bytes(file.stat().st_size))
        case "cut":
            os.truncate(file, file.stat().st_size // 2)
        case "junk in progress":
            progress.write_bytes(progress.read_bytes() + b"\xff\x00 1 2\n0 abc model.safetensors\n3 " + b"ab" * 32)
        case "another version's progress":
            progress.write_text("ab" * 32 + "\n")
            (partial / "files" / "old.txt").write_text("of another version")
        case _:
            elsewhere = tmp_path / "elsewhere"
            elsewhere.write_bytes(b"mine")
            file.unlink()
            file.symlink_to(elsewhere)
            with pytest.raises(ExportError):
                fetch(objects, version, Format.SAFETENSORS, out)
            assert elsewhere.read_bytes() == b"mine"
            file.unlink()
    fetch(objects, version, Format.SAFETENSORS, out)
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize("ruin", ["changed", "cut", "missing", "tokenizer", "content"])
def test_damage_in_the_store_leaves_no_folder(objects: Store, tmp_path: Path, ruin: str) -> None:
    version, _ = trained(objects, tmp_path)
    key = content_key("default", version.staged.content)
    if ruin == "tokenizer":
        key = next(stat.key for stat in objects.list("project-artifacts/default/objects/"))
    elif ruin != "content":
        manifest = checkpoint_of(objects, version.staged.content, prepared_content(objects, version))
        key = chunk_key(max(manifest.chunks, key=lambda chunk: chunk.size_bytes).sha256, prefix_of(manifest))
    body = objects.get(key)
    objects.delete(key) if ruin == "missing" else objects.put(key, body[:-9] if ruin == "cut" else body[::-1])
    with pytest.raises(DamagedError):
        fetch(objects, version, Format.SAFETENSORS, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    objects.put(key, body)
    fetch(objects, version, Format.SAFETENSORS, tmp_path / "out")
    assert identify(objects, tmp_path / "out").version is not None


def prepared_content(objects: Store, version: NamedVersion) -> Any:
    from trainhouse.checkpointing.models.version_content import read_content

    return read_content(objects, "default", version.staged.content)


def test_a_folder_that_has_something_is_left_alone(objects: Store, tmp_path: Path) -> None:
    version, _ = trained(objects, tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(ExportError, match="not an empty folder"):
        fetch(objects, version, Format.SAFETENSORS, tmp_path / "out")
    assert contents(tmp_path / "out") == {"mine.txt": b"mine"}


@pytest.mark.parametrize("text", ["gpt", "gpt@", "gpt@latest", "gpt@0", "@1", "a b@1", "gpt@1.2", "x/..@1"])
def test_what_names_no_version_says_what_to_write(text: str) -> None:
    with pytest.raises(InvalidStateError, match="write NAME"):
        parse_reference(text)


@pytest.mark.parametrize("text", ["gpt@staging", "gpt@2", "gpt@9.9.9", "bert@champion", "bert@1", "other/gpt@champion"])
def test_a_version_that_is_not_there_is_refused(objects: Store, tmp_path: Path, text: str) -> None:
    trained(objects, tmp_path)
    with pytest.raises(NoModelError, match="trainhouse models"):
        find_version(objects, parse_reference(text))


def test_a_damaged_newest_record_names_no_champion(objects: Store, tmp_path: Path) -> None:
    trained(objects, tmp_path)
    objects.put(stage_key("default", "gpt", 1), b"{")
    with pytest.raises(DamagedError):
        find_version(objects, parse_reference("gpt@champion"))


def test_a_state_without_a_model_gives_all_its_tensors(objects: Store, tmp_path: Path) -> None:
    owned(objects, "job", "default", 0)
    Checkpointer(CheckpointerSettings("job", 1, 0, "spec"), objects).save({"w": torch.ones(3)}, {}, 1, 1.0)
    prepared = prepare_version(objects, "default", parse_resume_from("job"), VersionParts())
    staged = StagedVersion(version=1, semver="1.0.0", content=prepared.sha256)
    fetch(objects, NamedVersion("default", "m", staged), Format.SAFETENSORS, tmp_path / "out")
    assert load_file(tmp_path / "out" / "model.safetensors")["w"].tolist() == [1, 1, 1]


def test_a_configuration_of_people_goes_before_the_tracked_one(objects: Store, tmp_path: Path) -> None:
    trained(objects, tmp_path)
    (tmp_path / "config.json").write_text('{"mine":1}')
    parts = VersionParts({"config.json": tmp_path / "config.json"})
    prepared = prepare_version(objects, "default", parse_resume_from("gpt-1"), parts)
    staged = StagedVersion(version=2, semver="1.0.1", content=prepared.sha256)
    fetch(objects, NamedVersion("default", "gpt", staged), Format.SAFETENSORS, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {"mine": 1}


def test_one_weights_file_is_identified_alone_also_under_another_name(objects: Store, tmp_path: Path) -> None:
    version, _ = trained(objects, tmp_path)
    out = tmp_path / "out"
    fetch(objects, version, Format.SAFETENSORS, out, shard_bytes=500_000)
    shards = sorted(out.glob("*.safetensors"))
    assert len(shards) > 1
    for shard in shards:
        renamed = tmp_path / "renamed.safetensors"
        shutil.copy(shard, renamed)
        for path in (shard, renamed):
            found = identify(objects, path).version
            assert found is not None and found.lineage_id == "model:gpt@1"


def flip_last(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))


def edit_header(path: Path, change: Callable[[dict[str, str]], object]) -> None:
    body = path.read_bytes()
    size = struct.unpack("<Q", body[:8])[0]
    header = json.loads(body[8 : 8 + size])
    change(header["__metadata__"])
    content = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(content)) + content + body[8 + size :])


def saved_again(path: Path) -> None:
    save_file(load_file(path), path)


@pytest.mark.parametrize(
    "ruin",
    [
        flip_last,
        lambda path: os.truncate(path, path.stat().st_size - 1),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\xff" * 64),
        lambda path: path.write_bytes(struct.pack("<Q", 2) + b"[]"),
        lambda path: edit_header(path, lambda metadata: metadata.update({"trainhouse.licence": "mit"})),
        lambda path: edit_header(path, lambda metadata: metadata.update({"trainhouse.version": "2"})),
        lambda path: edit_header(path, lambda metadata: metadata.update({"trainhouse.evaluations": "ab" * 32})),
        lambda path: edit_header(path, lambda metadata: metadata.update({"trainhouse.name": "../x"})),
        lambda path: edit_header(path, lambda metadata: metadata.update({"trainhouse.shard_bytes": "-1"})),
        lambda path: edit_header(path, lambda metadata: metadata.update({"trainhouse.mine": "1"})),
        lambda path: edit_header(path, lambda metadata: metadata.clear()),
        saved_again,
    ],
)
def test_a_file_that_was_changed_is_no_version(objects: Store, tmp_path: Path, ruin: Callable[[Path], object]) -> None:
    version, _ = trained(objects, tmp_path)
    fetch(objects, version, Format.SAFETENSORS, tmp_path / "out")
    file = tmp_path / "out" / "model.safetensors"
    ruin(file)
    for path in (file, tmp_path / "out"):
        verdict = identify(objects, path)
        assert verdict.version is None and verdict.problems


def test_a_folder_that_lacks_or_changes_a_file_is_no_version_and_more_files_are_named(objects: Store, tmp_path: Path) -> None:
    version, _ = trained(objects, tmp_path)
    out = tmp_path / "out"
    fetch(objects, version, Format.SAFETENSORS, out)
    (out / "README.md").write_text("card")
    verdict = identify(objects, out)
    assert verdict.version is not None and verdict.others == ("README.md",)
    described = (out / PROVENANCE).read_bytes()
    (out / PROVENANCE).write_bytes(described.replace(b"the first", b"the other"))
    assert identify(objects, out).version is None
    (out / PROVENANCE).write_bytes(described)
    (out / "tokenizer.json").write_text("{}")
    assert identify(objects, out).problems[1:] == ("tokenizer.json has other contents",)
    (out / "tokenizer.json").unlink()
    assert identify(objects, out).problems[1:] == ("tokenizer.json is missing",)
    (out / PROVENANCE).unlink()
    assert identify(objects, out).version is None


def test_a_store_that_is_away_is_not_taken_for_no_version(objects: Store, tmp_path: Path) -> None:
    version, _ = trained(objects, tmp_path)
    fetch(objects, version, Format.SAFETENSORS, tmp_path / "out")

    class Away(Store):
        def get(self, key: str) -> bytes:
            raise ObjectStoreUnavailableError("away")

    away = Away()
    away._objects = objects._objects
    with pytest.raises(ObjectStoreUnavailableError):
        identify(away, tmp_path / "out")
