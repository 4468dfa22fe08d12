"""MDS: what MosaicML Streaming 0.13.0 wrote into tests/data/mds is read, and an export is laid out as its writer does."""

from __future__ import annotations

import io
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.unit.workers.data.test_exporting import ROWS, published, quiet
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.exporting import export_mds
from trainhouse.workers.data.publishing import mds_rows
from trainhouse.workers.data.publishing.bounded_files import LocalRoot
from trainhouse.workers.data.publishing.publication import Publication, Terms
from trainhouse.workers.data.publishing.sample_fields import Fields
from trainhouse.workers.data.publishing.sources import source_of
from trainhouse.workers.data.publishing.split_rule import SplitRule

GOLDEN = Path(__file__).parents[3] / "data" / "mds"
SPLITS = {"train": 12, "validation": 5, "gz": 3, "br": 3, "bz2": 3}


def read(place: Path) -> list[tuple[str, Fields]]:
    return list(source_of(LocalRoot(place)).samples())


@pytest.mark.parametrize("split", SPLITS)
def test_what_streaming_wrote_is_read_compressed_or_not(split: str) -> None:
    """Twelve samples in three shards of a split without compression; others by zstd, gz, br and bz2."""
    source = source_of(LocalRoot(GOLDEN / split))
    found = list(source.samples())
    assert source.kind == "mds" and [key for key, _ in found] == [f"{n:012d}" for n in range(SPLITS[split])]
    for n, (_, fields) in enumerate(found):
        assert sorted(fields) == ["blob", "fixed.npy", "grid.npy", "image.jpg", "json", "thumb.png", "tokens.npy"]
        assert fields["blob"] == bytes([n]) * n and fields["image.jpg"][:3] == b"\xff\xd8\xff" and fields["thumb.png"][1:4] == b"PNG"
        assert orjson.loads(fields["json"]) == {
            "text": f"größe {n}",
            "n": n - 5,
            "small": n,
            "score": n / 4,
            "half": n / 2,
            "big": 2**62 + n,
            "exact": f"{n / 4:g}",
            "more": {"a": [n, None]} if n else None,
        }
        arrays = {name: np.load(io.BytesIO(fields[f"{name}.npy"])) for name in ("tokens", "grid", "fixed")}
        assert arrays["tokens"].dtype == np.uint16 and arrays["tokens"].tolist() == list(range(n + 1))
        assert arrays["grid"].dtype == np.int32 and arrays["grid"].tolist() == [[n] * (n + 1)] * 2
        assert arrays["fixed"].tolist() == [[n, 0], [0, n]]


def test_a_folder_of_splits_has_their_names_in_its_keys() -> None:
    keys = [key for key, _ in read(GOLDEN)]
    assert len(keys) == sum(SPLITS.values()) and "validation/000000000004" in keys


def copied(tmp_path: Path, split: str = "train") -> Path:
    return shutil.copytree(GOLDEN / split, tmp_path / split)


def index_with(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        index = json.loads((folder / "index.json").read_bytes())
        change(index["shards"][0])
        (folder / "index.json").write_text(json.dumps(index))

    return act


def byte_at(place: int) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        path = folder / "shard.00000.mds"
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)

    return act


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (byte_at(-1), "its sha1 is not that of its index"),
        (byte_at(0), r"it has \d+ samples, not"),
        (byte_at(8), "damaged"),
        (lambda folder: (folder / "shard.00001.mds").unlink(), r"shard\.00001\.mds: index\.json names it, and it is not there"),
        (lambda folder: (folder / "shard.00009.mds").touch(), r"shard\.00009\.mds: no index\.json names it"),
        (lambda folder: (folder / "index.json").write_text("{"), "it is no index of MDS shards"),
        (lambda folder: (folder / "index.json").write_text("[]"), "it is no index of MDS shards"),
        (index_with(lambda shard: shard.update(version=1)), "is of format mds 1"),
        (index_with(lambda shard: shard["raw_data"].update(bytes=1)), "bytes, not the 1 of its index"),
        (index_with(lambda shard: shard["column_encodings"].__setitem__(0, "pkl")), "encoding pkl, which is not read: pickles run code"),
        (index_with(lambda shard: shard["column_encodings"].__setitem__(0, "pil")), "encoding pil, which is not read"),
    ],
)
def test_damaged_folders_are_refused(tmp_path: Path, change: Callable[[Path], None], why: str) -> None:
    folder = copied(tmp_path)
    change(folder)
    with pytest.raises(InvalidDataError, match=why):
        read(folder)


@pytest.mark.parametrize("split", ["validation", "gz", "br", "bz2"])
def test_compressed_shards_that_are_cut_short_or_unpack_to_too_much_are_refused(tmp_path: Path, split: str) -> None:
    folder = copied(tmp_path, split)
    [path] = (path for path in folder.iterdir() if path.name != "index.json")
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(half)
    index_with(lambda shard: shard["zip_data"].update(bytes=len(half)))(folder)
    with pytest.raises(InvalidDataError, match=r"is damaged"):
        read(folder)
    index_with(lambda shard: shard["raw_data"].update(bytes=1 << 32))(folder)
    with pytest.raises(InvalidDataError, match="it unpacks to 4294967296 bytes"):
        read(folder)


def test_an_export_is_read_back_as_the_same_samples(tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    manifest = published(objects, tmp_path / "r.jsonl", ROWS)
    files = export_mds(objects, "p", manifest, tmp_path / "out", quiet)
    assert {file.parent.name for file in files if file.name == "index.json"} == {"train", "test"}
    found = {key.partition("/")[2]: orjson.loads(fields["json"]) for key, fields in read(tmp_path / "out")}
    assert [found[f"{n:012d}"] for n in range(len(ROWS))] == ROWS


def test_members_are_columns_by_their_kind_and_come_back_as_they_were(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for n in range(20):
        (folder / f"p{n:02d}.jpg").write_bytes(b"\xff\xd8" * (n + 1))
        (folder / f"p{n:02d}.cls").write_text(str(n % 3))
        (folder / f"p{n:02d}.bin").write_bytes(b"\xff" * n)
    objects = MemoryObjectStore()
    manifest = Publication(source_of(LocalRoot(folder)), SplitRule(), Terms()).publish(objects, "p")
    export_mds(objects, "p", manifest, tmp_path / "out", quiet)
    [shard] = json.loads((tmp_path / "out/train/index.json").read_bytes())["shards"]
    assert dict(zip(shard["column_names"], shard["column_encodings"], strict=True)) == {
        "__key__": "str",
        "bin": "bytes",
        "cls": "str",
        "jpg": "jpeg",
    }
    found = dict(read(tmp_path / "out"))
    assert found["p07"] == {"bin": b"\xff" * 7, "jpg": b"\xff\xd8" * 8, "json": b'{"cls":"1"}'}


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([{"n": 2**63}], r"'n' is no value of a column of int .*; export it as wds"),
        ([{"n": 0.5}, {"n": 2**53 + 1}], r"'n' is no value of a column of float64 .*which it would change"),
        ([{"__key__": "a"}], "'__key__' would be two columns"),
    ],
)
def test_samples_that_mds_cannot_hold_are_refused_and_leave_no_index(tmp_path: Path, rows: list[Any], why: str) -> None:
    objects, source = MemoryObjectStore(), tmp_path / "r.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    manifest = Publication(source_of(LocalRoot(source)), SplitRule(), Terms()).publish(objects, "p")
    with pytest.raises(InvalidDataError, match=why):
        export_mds(objects, "p", manifest, tmp_path / "out", quiet)
    assert not [*(tmp_path / "out").rglob("*.mds*"), *(tmp_path / "out").rglob("index.json")]


def test_a_field_that_some_samples_lack_is_refused_and_a_column_is_null(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "a.txt").write_text("1")
    (folder / "b.md").write_text("1")
    objects = MemoryObjectStore()
    manifest = Publication(source_of(LocalRoot(folder)), SplitRule(), Terms()).publish(objects, "p")
    with pytest.raises(InvalidDataError, match="'md' is not in each sample"):
        export_mds(objects, "p", manifest, tmp_path / "out", quiet)


ODD: list[Any] = [None, -1, 1.5, 2**70, float("inf"), "../x", [], {}, True, "ndarray:object:1"]


def refused_or_read(place: Path, index: Any) -> str:
    """The refusal; empty where the index is one after all. No other error comes."""
    (place / "index.json").write_text(json.dumps(index))
    try:
        read(place)
    except InvalidDataError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ["samples", "column_sizes", "column_names", "column_encodings", "raw_data", "zip_data", "compression"])
def test_an_index_with_a_value_of_another_type_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    place = tmp_path / "one"
    shutil.copytree(GOLDEN / "train", place)
    first = json.loads((place / "index.json").read_text())["shards"][0]
    for each in ("1", "2"):
        (place / f"shard.0000{each}.mds").unlink()
    for odd in ODD:
        for changed in (odd, [odd] * len(first["column_names"]), {"basename": odd, "bytes": odd, "hashes": odd}):
            reason = refused_or_read(place, {"shards": [first | {name: changed}]})
            assert not reason or "index.json" in reason or "shard.00000" in reason


def test_what_is_no_index_is_refused_by_its_name(tmp_path: Path) -> None:
    place = tmp_path / "one"
    shutil.copytree(GOLDEN / "train", place)
    for odd in ODD:
        for whole in (odd, {"shards": odd}, {"shards": [odd]}):
            assert "index.json" in (reason := refused_or_read(place, whole)) or ".mds" in reason


def shard_of(place: Path, columns: list[tuple[str, str]], samples: int, body_bytes: int) -> None:
    """A shard whose header has so many samples, each with nothing in it but the last."""
    config = b"{}"
    first = 4 + 4 * (samples + 1) + len(config)
    places = [first] * samples + [first + body_bytes]
    content = struct.pack(f"<{samples + 2}I", samples, *places) + config + bytes(body_bytes)
    place.mkdir()
    (place / "s.mds").write_bytes(content)
    entry = {"format": "mds", "version": 2, "samples": samples, "compression": None, "zip_data": None}
    entry |= {"column_names": [name for name, _ in columns], "column_encodings": [kind for _, kind in columns]}
    entry |= {"column_sizes": [None] * len(columns), "raw_data": {"basename": "s.mds", "bytes": len(content), "hashes": {}}}
    (place / "index.json").write_text(json.dumps({"shards": [entry], "version": 2}))


def test_more_samples_than_a_shard_has_bytes_for_are_refused_before_they_are_counted(tmp_path: Path) -> None:
    shard_of(tmp_path / "none", [], 1000, 0)
    with pytest.raises(InvalidDataError, match=r"s\.mds.*no columns"):
        read(tmp_path / "none")
    shard_of(tmp_path / "few", [("a", "int32"), ("b", "bytes")], 1000, 999)
    with pytest.raises(InvalidDataError, match=r"s\.mds.*1000 samples.*bytes"):
        read(tmp_path / "few")


def test_the_samples_of_a_shard_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mds_rows, "MOST_SAMPLES", 3)
    with pytest.raises(InvalidDataError, match=r"shard\.00000\.mds.*at most 3"):
        read(GOLDEN / "train")


def test_a_damaged_gzip_stream_is_refused_by_its_name(tmp_path: Path) -> None:
    place = tmp_path / "gz"
    shutil.copytree(GOLDEN / "gz", place)
    content = bytearray((place / "shard.00000.mds.gz").read_bytes())
    for at in range(20, len(content) - 8):
        content[at] ^= 0xFF
    (place / "shard.00000.mds.gz").write_bytes(content)
    with pytest.raises(InvalidDataError, match=r"shard\.00000\.mds\.gz is damaged"):
        read(place)
