"""Exports of a version: tars as they were published, Parquet that is published as the same samples, and damage that is refused."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import webdataset

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.dataset import Manifest
from trainhouse.events.model.dataset_keys import shard_key
from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError
from trainhouse.workers.data.exporting import Progress, export_mds, export_parquet, export_wds
from trainhouse.workers.data.publishing.bounded_files import LocalRoot
from trainhouse.workers.data.publishing.publication import Publication, Terms
from trainhouse.workers.data.publishing.sources import source_of
from trainhouse.workers.data.publishing.split_rule import SplitRule
from trainhouse.workers.data.stored_versions import read_profiled

ROWS = [
    {
        "text": f"row {n}",
        "n": n,
        "score": n / 4,
        "mixed": n if n % 2 else n / 2,
        "tags": ["a", n],
        "ok": n % 3 == 0,
        "some": n if n % 5 else None,
    }
    for n in range(500)
]


Export = Callable[[ObjectStore, str, Manifest, Path, Progress], list[Path]]


def published(objects: MemoryObjectStore, path: Path, rows: list[Any], shard_bytes: int = 100_000) -> Manifest:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Publication(source_of(LocalRoot(path)), SplitRule.parse("train=0.8,test=0.2"), Terms(), shard_bytes).publish(objects, "p")


def quiet(done: int, total: int) -> None:
    assert 0 < done <= total


def test_tars_are_those_of_the_store_and_webdataset_reads_them(tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    manifest = published(objects, tmp_path / "r.jsonl", ROWS)
    files = export_wds(objects, "p", manifest, tmp_path / "out", quiet)
    assert len(files) == sum(len(s.shards) for s in manifest.splits.values()) > 3
    assert [file.read_bytes() for file in files] == [
        objects.get(shard_key("p", shard.sha256)) for _, split in sorted(manifest.splits.items()) for shard in split.shards
    ]
    read = [json.loads(sample["json"]) for sample in webdataset.WebDataset([str(f) for f in files], shardshuffle=False)]
    assert sorted(read, key=lambda row: row["n"]) == ROWS
    # A file that is whole stays; another one is fetched anew.
    first, damaged = files[0].stat().st_ino, files[1].read_bytes()
    files[1].write_bytes(damaged[:-1] + b"x")
    assert export_wds(objects, "p", manifest, tmp_path / "out", quiet) == files
    assert files[0].stat().st_ino == first and files[1].read_bytes() == damaged
    assert sorted(f for f in (tmp_path / "out").rglob("*.tar*")) == sorted(files)


def test_parquet_has_typed_columns_and_all_rows(tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    manifest = published(objects, tmp_path / "r.jsonl", ROWS)
    files = export_parquet(objects, "p", manifest, tmp_path, quiet)
    table = pq.read_table(files[0]).schema
    assert {f.name: str(f.type) for f in table} == {
        "__key__": "string", "mixed": "double", "n": "int64", "ok": "bool", "score": "double", "some": "int64", "tags": "string",
        "text": "string",
    }  # fmt: skip
    rows = sorted((row for file in files for row in pq.read_table(file).to_pylist()), key=lambda row: row["n"])
    assert [row | {"tags": json.loads(row["tags"])} for row in rows] == [row | {"__key__": f"{row['n']:012d}"} for row in ROWS]
    assert not [*tmp_path.rglob("*.part"), *tmp_path.glob(".trainhouse-shard")]


def test_members_are_bytes_in_parquet_and_are_published_as_the_same_fields(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for n in range(40):
        (folder / f"p{n:02d}.jpg").write_bytes(b"\xff\xd8" * (n + 1))
        (folder / f"p{n:02d}.cls").write_text(str(n % 3))
    objects = MemoryObjectStore()
    manifest = Publication(source_of(LocalRoot(folder)), SplitRule(), Terms()).publish(objects, "p")
    [file] = export_parquet(objects, "p", manifest, tmp_path, quiet)
    assert pq.read_table(file).to_pylist()[1] == {"__key__": "p01", "cls": b"1", "jpg": b"\xff\xd8" * 2}
    again = Publication(source_of(LocalRoot(file)), SplitRule(), Terms()).publish(objects, "p")
    assert {f.name for f in again.fields} == {"cls", "jpg", "json", "json.__key__"}
    one, other = (read_profiled(objects, "p", version.sha256()).profiles for version in (manifest, again))
    assert one is not None and other is not None and one.splits["train"]["jpg"] == other.splits["train"]["jpg"]


def test_samples_that_parquet_cannot_hold_are_refused_and_leave_no_file(tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    large = published(objects, tmp_path / "l.jsonl", [{"n": n + 2**63} for n in range(50)])
    with pytest.raises(InvalidDataError, match="more than 64 bits with a sign hold; export it as wds"):
        export_parquet(objects, "p", large, tmp_path / "out", quiet)
    assert not [*(tmp_path / "out").rglob("*.parquet*")]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"n": 0.5}', f'{{"n": {2**53 + 1}}}'], rf"'n' is {2**53 + 1}, which a column of floats would change; export it as wds"),
        (['{"n": 0.5}', f'{{"n": {2**64 - 1}}}'], rf"'n' is {2**64 - 1}, which a column of floats would change; export it as wds"),
        ([f'{{"n": {"[" * 300}{"]" * 300}}}'], r"'n' has more levels than can be written as JSON; export it as wds"),
    ],
)
def test_values_that_a_column_would_change_are_refused(tmp_path: Path, lines: list[str], message: str) -> None:
    objects, source = MemoryObjectStore(), tmp_path / "r.jsonl"
    source.write_text("\n".join(lines))
    manifest = Publication(source_of(LocalRoot(source)), SplitRule(), Terms()).publish(objects, "p")
    with pytest.raises(InvalidDataError, match=message):
        export_parquet(objects, "p", manifest, tmp_path / "out", quiet)


def test_a_damaged_or_missing_shard_is_refused(tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    manifest = published(objects, tmp_path / "r.jsonl", ROWS)
    key = shard_key("p", manifest.splits["test"].shards[0].sha256)
    objects.put(key, objects.get(key)[:-1] + b"x")
    for export in (export_wds, export_parquet):
        with pytest.raises(DamagedShardError, match="has other contents than its hash says"):
            export(objects, "p", manifest, tmp_path / export.__name__, quiet)
    objects.delete(key)
    with pytest.raises(DamagedShardError, match="is missing; publish the version again"):
        export_wds(objects, "p", manifest, tmp_path / "b", quiet)
    assert not list(tmp_path.rglob("*.tar"))


@pytest.mark.parametrize(("export", "ending"), [(export_wds, "tar"), (export_parquet, "parquet")])
def test_a_folder_with_files_of_another_version_is_refused(tmp_path: Path, export: Export, ending: str) -> None:
    objects, out = MemoryObjectStore(), tmp_path / "out"
    large, small = (published(objects, tmp_path / "r.jsonl", ROWS[:count]) for count in (500, 200))
    files = export(objects, "p", large, out, quiet)
    before = {file: file.read_bytes() for file in files}
    with pytest.raises(InvalidDataError, match=rf"{out} has test/test-000000\.{ending}, of another version .*; give an empty"):
        export(objects, "p", small, out, quiet)
    assert {file: file.read_bytes() for file in out.rglob(f"*.{ending}*")} == before
    # The same version goes on, in either format; another one takes the folder once it has no such file.
    assert export(objects, "p", large, out, quiet) == files
    assert len(export_wds(objects, "p", large, out, quiet)) == len(files)
    for file in (*out.rglob("*.tar"), *out.rglob("*.parquet")):
        file.unlink()
    assert sorted(export(objects, "p", small, out, quiet)) == sorted(out.rglob(f"*.{ending}"))
    # Files of no export are refused too.
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.tar").touch()
    with pytest.raises(InvalidDataError, match=r"own has mine\.tar"):
        export(objects, "p", small, tmp_path / "own", quiet)


@pytest.mark.parametrize("export", [export_wds, export_parquet, export_mds])
def test_a_shard_that_a_killed_export_left_is_removed(tmp_path: Path, export: Export) -> None:
    source, out = tmp_path / "r.jsonl", tmp_path / "out"
    program = f"""
import os, signal
from pathlib import Path
from tests.unit.workers.data.test_exporting import ROWS, MemoryObjectStore, export_parquet, published

class Ending(MemoryObjectStore):
    def get_range(self, key, start, length):
        if key.endswith(".idx"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().get_range(key, start, length)

objects = Ending()
manifest = published(objects, Path({str(source)!r}), ROWS)
export_parquet(objects, "p", manifest, Path({str(out)!r}), lambda *_: None)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    [shard] = out.rglob("*.tar")
    objects = MemoryObjectStore()
    export(objects, "p", published(objects, source, ROWS), out, quiet)
    assert not shard.parent.exists()
