"""Publishing: the same input has the same id anywhere, splits are by hash, shards are of one size, and bad sources are refused."""

import csv
import gzip
import io
import json
import os
import random
import resource
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.chain.retention import sweep
from trainhouse.cli.data.dataset_access import explained
from trainhouse.cli.shared.exit_codes import CliError
from trainhouse.events.model.dataset import Manifest
from trainhouse.events.model.dataset_keys import index_key, manifest_key, profiles_key, shard_key
from trainhouse.events.model.dataset_profile import MOST_PROFILES_BYTES
from trainhouse.workers.data import stored_versions
from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError
from trainhouse.workers.data.published_data import stored_sample
from trainhouse.workers.data.publishing import bounded_files, parquet_rows, publication, sample_fields
from trainhouse.workers.data.publishing.bounded_files import LocalRoot, SourceChangedError
from trainhouse.workers.data.publishing.publication import Publication, Terms
from trainhouse.workers.data.publishing.rebuilding import rebuild_shards
from trainhouse.workers.data.publishing.sources import source_of
from trainhouse.workers.data.publishing.split_rule import SplitRule
from trainhouse.workers.data.shard_sources import StoreSource
from trainhouse.workers.data.shards import Sample, Shard, read_sample
from trainhouse.workers.data.shards.members import sample_bytes
from trainhouse.workers.data.stored_versions import problems_of, read_manifest, read_profiled, shards_of

PROJECT = "language"
BOTH = SplitRule.parse("train=0.9,validation=0.1")


def published(
    root: Path,
    objects: MemoryObjectStore | None = None,
    rule: SplitRule | None = None,
    terms: Terms | None = None,
    shard_bytes: int = 1 << 20,
) -> Manifest:
    publication = Publication(source_of(LocalRoot(root)), rule or SplitRule(), terms or Terms(), shard_bytes)
    return publication.publish(objects if objects is not None else MemoryObjectStore(), PROJECT)


def samples_of(objects: MemoryObjectStore, manifest: Manifest, split: str = "train") -> Iterator[Sample]:
    source = StoreSource(objects, PROJECT, None)
    for each in manifest.splits[split].shards:
        shard = Shard.of(each)
        index = source.index(shard)
        yield from (read_sample(source.content(shard), index.locate(n)) for n in range(len(index)))


def images(root: Path, count: int = 60, seed: int = 1, size: int = 3000) -> Path:
    """A folder of pictures with their captions, made in an order of the seed."""
    names = [f"{n % 5}/picture-{n:04d}" for n in range(count)]
    random.Random(seed).shuffle(names)
    for name in names:
        path = root / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(name).randbytes(size))
        path.with_suffix(".TXT").write_text(f"caption of {name}")
        os.utime(path, (seed, seed))
    return root


def rows(count: int = 200) -> list[dict[str, Any]]:
    return [{"text": f"row {n}", "speaker": f"s{n % 17}", "n": n, "score": n / 4 if n % 3 else None} for n in range(count)]


def jsonl(path: Path, given: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    return path


def test_two_folders_of_equal_files_have_one_id_whatever_their_order_and_times(tmp_path: Path) -> None:
    ids = {published(images(tmp_path / str(seed), seed=seed), rule=BOTH).sha256() for seed in (1, 2)}
    assert len(ids) == 1


def test_an_id_is_that_of_before_there_were_distributions_which_are_beside_the_manifest(tmp_path: Path) -> None:
    objects, source = MemoryObjectStore(), jsonl(tmp_path / "a.jsonl", rows(50))
    sha256 = published(source, objects).sha256()
    assert sha256 == "407f5548dea3908f1073ddb93f7ca7766d9a72ff62479426ecf785ec37fa651a"  # pragma: allowlist secret
    assert b"profiles" not in objects.get(manifest_key(PROJECT, sha256))
    whole = objects.get(profiles_key(PROJECT, sha256))
    profiles = read_profiled(objects, PROJECT, sha256).profiles
    assert profiles is not None and profiles.splits["train"]["json.speaker"].samples == 50 and profiles.canonical_json() == whole
    objects.delete(profiles_key(PROJECT, sha256))
    assert read_profiled(objects, PROJECT, sha256).profiles is None
    published(source, objects)
    assert objects.get(profiles_key(PROJECT, sha256)) == whole
    sweep(objects, grace_s=0)
    assert objects.stat(profiles_key(PROJECT, sha256)) is not None
    for damaged in (b"{", b'{"splits": 1}', b" " * (MOST_PROFILES_BYTES + 1), whole.replace(b'"samples":50', b'"samples":51')):
        objects.put(profiles_key(PROJECT, sha256), damaged)
        with pytest.raises(DamagedShardError, match=r"profiles\.json has no profiles"):
            read_profiled(objects, PROJECT, sha256)


def test_a_change_of_one_byte_or_of_the_terms_is_another_version(tmp_path: Path) -> None:
    root = images(tmp_path / "a")
    one = published(root).sha256()
    assert published(root, terms=Terms(licence="MIT")).sha256() != one
    assert published(root, rule=BOTH).sha256() != one
    (root / "0/picture-0000.TXT").write_text("other")
    assert published(root).sha256() != one


def test_a_member_with_the_name_of_a_column_is_refused(tmp_path: Path) -> None:
    for n in range(4):
        (tmp_path / f"{n}.json").write_text('{"txt": "a"}' if n < 3 else "{}")
        (tmp_path / f"{n}.json.TXT").write_text("b")
    with pytest.raises(InvalidDataError, match=r"both a member and a column of json are called 'json.txt'; rename one"):
        published(tmp_path)


def test_samples_of_a_folder_come_back_from_its_shards_in_the_order_of_their_keys(tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    manifest = published(images(tmp_path / "a"), objects, shard_bytes=50_000)
    found = list(samples_of(objects, manifest))
    assert [s.key for s in found] == sorted(f"{n % 5}/picture-{n:04d}" for n in range(60)) and manifest.row_count == 60
    assert all(s.fields == {"jpg": random.Random(s.key).randbytes(3000), "txt": f"caption of {s.key}".encode()} for s in found)
    assert [(f.name, f.type, f.optional) for f in manifest.fields] == [("jpg", "image", False), ("txt", "text", False)]
    figures = manifest.splits["train"].statistics["jpg"]
    assert (figures.samples, figures.bytes, figures.least_bytes, figures.most_bytes) == (60, 180_000, 3000, 3000)
    assert read_manifest(objects, PROJECT, manifest.sha256()) == manifest
    assert len(manifest.splits["train"].shards) > 3
    assert [stored_sample(objects, PROJECT, manifest.splits["train"], n) for n in range(60)] == found
    with pytest.raises(IndexError):
        stored_sample(objects, PROJECT, manifest.splits["train"], 60)


@pytest.mark.parametrize("key", ["a", "x" * 96, "x" * 97, "ä", "d/" + "y" * 120])
def test_the_measured_size_of_a_sample_is_what_it_takes_in_a_shard(tmp_path: Path, key: str) -> None:
    path = tmp_path / f"{key}.bin" if "/" not in key else tmp_path / "d" / f"{key[2:]}.bin"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(700))
    [shard] = published(tmp_path).splits["train"].shards
    assert shard.bytes == sample_bytes(key, {"bin": bytes(700)}) + 1024


def test_shards_are_within_five_percent_of_each_other(tmp_path: Path) -> None:
    manifest = published(images(tmp_path / "a", count=400, size=1000), rule=BOTH, shard_bytes=100_000)
    for split in manifest.splits.values():
        sizes = [s.bytes for s in split.shards]
        mean = sum(sizes) / len(sizes)
        assert len(sizes) >= 2 and max(abs(size - mean) for size in sizes) < 0.05 * mean, sizes


def test_one_large_sample_leaves_the_shards_after_it_equal(tmp_path: Path) -> None:
    (tmp_path / "0000.bin").write_bytes(bytes(600_000))
    for n in range(1, 401):
        (tmp_path / f"{n:04d}.bin").write_bytes(bytes(900))
    large, *others = [s.samples for s in published(tmp_path, shard_bytes=100_000).splits["train"].shards]
    assert large == 1 and sum(others) == 400 and max(others) - min(others) <= 0.1 * max(others), others


def _as_csv(path: Path, given: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(given[0]))
        writer.writeheader()
        writer.writerows(given)
    return path


def _as_parquet(path: Path, given: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(given), path, row_group_size=64)
    return path


def _as_gzip(path: Path, given: list[dict[str, Any]]) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in given).encode()))
    return path


def _as_folder(path: Path, given: list[dict[str, Any]]) -> Path:
    path.mkdir()
    jsonl(path / "b.jsonl", given[100:])
    jsonl(path / "a.jsonl", given[:100])
    return path


@pytest.mark.parametrize(
    ("name", "write"),
    [("r.jsonl", jsonl), ("r.csv", _as_csv), ("r.parquet", _as_parquet), ("r.jsonl.gz", _as_gzip), ("r", _as_folder)],
)
def test_rows_of_every_kind_come_back(tmp_path: Path, name: str, write: Callable[[Path, list[dict[str, Any]]], Path]) -> None:
    objects = MemoryObjectStore()
    manifest = published(write(tmp_path / name, rows()), objects)
    found = [json.loads(s.fields["json"]) for s in samples_of(objects, manifest)]
    if name.endswith(".csv"):
        assert found == [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows()]
        return
    assert found == rows()
    types = {f.name: (f.type, f.optional) for f in manifest.fields}
    assert types == {
        "json": ("json", False), "json.n": ("int", False), "json.score": ("float", True), "json.speaker": ("text", False),
        "json.text": ("text", False),
    }  # fmt: skip


def test_long_values_and_empty_lines_of_csv_are_read(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(f"a,b\n{'x' * 200_000},1\n\ny,2\n\n")
    objects = MemoryObjectStore()
    found = [json.loads(s.fields["json"]) for s in samples_of(objects, published(tmp_path / "r.csv", objects))]
    assert found == [{"a": "x" * 200_000, "b": "1"}, {"a": "y", "b": "2"}]


def test_columns_of_bytes_are_fields_of_their_own(tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    manifest = published(_as_parquet(tmp_path / "r.parquet", [{"jpg": b"\xff\xd8", "label": 3}]), objects)
    [sample] = samples_of(objects, manifest)
    assert sample.fields == {"jpg": b"\xff\xd8", "json": b'{"label":3}'}


def test_null_bytes_are_left_out(tmp_path: Path) -> None:
    table = pa.table({"img": pa.array([b"1", None], pa.binary()), "label": [3, None]})
    pq.write_table(table, tmp_path / "r.parquet")
    objects = MemoryObjectStore()
    found = [s.fields for s in samples_of(objects, published(tmp_path / "r.parquet", objects))]
    assert found == [{"img": b"1", "json": b'{"label":3}'}, {"json": b'{"label":null}'}]


def test_times_keep_their_nanoseconds(tmp_path: Path) -> None:
    units = [1_700_000_000_123_456_789, 1_700_000_000_000_000_000, -1, None]
    table = pa.table(
        {
            "at": pa.array(units, pa.timestamp("ns")),
            "utc": pa.array(units, pa.timestamp("ns", "UTC")),
            "list": pa.array([[1_700_000_000_123_456_000], [], None, None], pa.list_(pa.timestamp("ns"))),
        }
    )
    pq.write_table(table, tmp_path / "r.parquet")
    objects = MemoryObjectStore()
    found = [json.loads(s.fields["json"]) for s in samples_of(objects, published(tmp_path / "r.parquet", objects))]
    texts = ["2023-11-14T22:13:20.123456789", "2023-11-14T22:13:20", "1969-12-31T23:59:59.999999999"]
    assert [row["at"] for row in found] == [*texts, None]
    assert [row["utc"] for row in found] == [*(f"{text}+00:00" for text in texts), None]
    assert [row["list"] for row in found] == [["2023-11-14T22:13:20.123456"], [], None, None]


@pytest.mark.parametrize(
    ("columns", "names", "why"),
    [
        ([pa.array([1.0, float("nan")])], ["score"], "column 'score' has a value that is not finite"),
        ([pa.array([[1.0], [float("-inf")]])], ["scores"], "column 'scores' has a value that is not finite"),
        ([pa.array([{"a": [float("inf")]}])], ["deep"], "column 'deep' has a value that is not finite"),
        ([pa.array([float("nan")], pa.float16())], ["half"], "column 'half' has a value that is not finite"),
        ([pa.array([b"1"]), pa.array([b"2"])], ["Img", "img"], "columns 'Img' and 'img' would be one field"),
        ([pa.array([b"1"], pa.binary(1)), pa.array([1])], ["json", "n"], "a column of bytes is called json"),
        ([pa.array([1]), pa.array([2])], ["a", "a"], "two columns are called 'a'"),
        ([pa.array([[1]], pa.list_(pa.timestamp("ns")))], ["when"], "column 'when'"),
        ([pa.array([1 << 40], pa.timestamp("s"))], ["when"], "column 'when'"),
        ([pa.array([1], pa.duration("s"))], ["long"], "values of type timedelta"),
        ([pa.array(["x" * 2000])], ["text"], "a sample of .* bytes"),
    ],
)
def test_values_of_parquet_that_would_change_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: list[pa.Array], names: list[str], why: str
) -> None:
    monkeypatch.setattr(sample_fields, "MOST_SAMPLE_BYTES", 1000)
    pq.write_table(pa.table(columns, names=names), tmp_path / "r.parquet")
    with pytest.raises(InvalidDataError, match=why):
        published(tmp_path / "r.parquet")


def tar(path: Path, members: list[tuple[str, bytes]], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as file:  # type: ignore[call-overload]
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 17
            file.addfile(info, io.BytesIO(content))
    return path


def test_samples_of_tars_keep_their_keys_apart(tmp_path: Path) -> None:
    root = tmp_path / "tars"
    root.mkdir()
    tar(root / "b.tar.gz", [("0.txt", b"third")], "w:gz")
    tar(root / "a.tar", [("0.txt", b"first"), ("0.cls", b"1"), ("./1.txt", b"second")])
    objects = MemoryObjectStore()
    found = list(samples_of(objects, published(root, objects)))
    assert [(s.key, s.fields["txt"]) for s in found] == [("a/0", b"first"), ("a/1", b"second"), ("b/0", b"third")]


def test_a_group_is_never_in_two_splits_and_shares_are_about_right(tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    rule = SplitRule.parse("train=0.5,test=0.5", by="speaker")
    manifest = published(jsonl(tmp_path / "r.jsonl", rows(2000)), objects, rule)
    speakers = {split: {json.loads(s.fields["json"])["speaker"] for s in samples_of(objects, manifest, split)} for split in manifest.splits}
    assert not speakers["train"] & speakers["test"] and len(speakers["train"] | speakers["test"]) == 17
    alone = published(jsonl(tmp_path / "s.jsonl", rows(2000)), rule=BOTH)
    assert 140 < alone.splits["validation"].samples < 260


def test_a_row_stays_in_its_split_when_others_come(tmp_path: Path) -> None:
    def of_validation(given: list[dict[str, Any]], name: str) -> set[bytes]:
        objects = MemoryObjectStore()
        manifest = published(jsonl(tmp_path / name, given), objects, BOTH)
        return {s.fields["json"] for s in samples_of(objects, manifest, "validation")}

    assert of_validation(rows(500), "a.jsonl") <= of_validation(list(reversed(rows(600))), "b.jsonl")


def test_what_the_store_has_is_not_sent_again_and_a_kill_leaves_no_manifest(tmp_path: Path) -> None:
    class Counting(MemoryObjectStore):
        puts = 0
        left = 3

        def put(self, key: str, body: Any) -> None:
            if self.left == 0:
                raise ConnectionError("killed here")
            self.left -= 1
            self.puts += 1
            super().put(key, body)

    objects, root = Counting(), images(tmp_path / "a")
    with pytest.raises(ConnectionError):
        published(root, objects, shard_bytes=50_000)
    assert not list(objects.list("datasets/language/manifests/")) and len(list(objects.list("datasets/"))) == 3
    objects.left = -1
    manifest = published(root, objects, shard_bytes=50_000)
    shards = manifest.splits["train"].shards
    assert objects.puts == 2 * len(shards) + 2
    assert published(root, objects, shard_bytes=50_000) == manifest and objects.puts == 2 * len(shards) + 2
    assert objects.stat(manifest_key(PROJECT, manifest.sha256())) is not None


def test_a_source_that_changes_while_it_is_published_is_refused(tmp_path: Path) -> None:
    for name, change in {
        "appended": lambda p: p.open("a").write('{"text": "late"}\n'),
        "touched": lambda p: os.utime(p, (1, 1)),
        "gone": lambda p: p.unlink(),
    }.items():
        path = jsonl(tmp_path / f"{name}.jsonl", rows(50))
        objects = MemoryObjectStore()

        def late(*_: Any, change: Callable[[Path], Any] = change, path: Path = path, left: list[int] = [1]) -> None:  # noqa: B006
            if left:
                left.clear()
                change(path)

        publication = Publication(source_of(LocalRoot(path)), SplitRule(), Terms())
        measure = publication._measure
        publication._measure = lambda measure=measure, late=late: (measure(), late())[0]  # type: ignore[method-assign]
        with pytest.raises(SourceChangedError, match=r"publish again"):
            publication.publish(objects, PROJECT)
        assert not list(objects.list("datasets/language/manifests/"))


def test_a_file_that_is_added_while_a_folder_is_published_is_noticed(tmp_path: Path) -> None:
    root = images(tmp_path / "a", count=5)
    source = source_of(LocalRoot(root))
    (root / "late.jpg").write_bytes(b"late")
    objects = MemoryObjectStore()
    with pytest.raises(SourceChangedError, match="publish again"):
        Publication(source, SplitRule(), Terms()).publish(objects, PROJECT)
    assert not list(objects.list("datasets/language/manifests/"))


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([("../x.txt", b"")], "leads out of the tar"),
        ([("/etc/x.txt", b"")], "leads out of the tar"),
        ([("a/../../x.txt", b"")], "leads out of the tar"),
        ([("README", b"")], "called KEY.EXTENSION"),
        ([("a.txt", b"1"), ("a.txt", b"2")], "has a field txt already"),
        ([("a.txt", b"1"), ("b.txt", b"1"), ("a.txt", b"2")], "sort the tar by name"),
        ([("a.jpg", b"1"), ("b.jpg", b"1"), ("a.txt", b"2"), ("b.txt", b"2")], "files of 2 samples are apart"),
        ([("a.json", b"{")], "its json is none"),
    ],
)
def test_tars_that_are_bad_are_refused(tmp_path: Path, members: list[tuple[str, bytes]], why: str) -> None:
    with pytest.raises(InvalidDataError, match=why):
        published(tar(tmp_path / "x.tar", members))


def _one_bit_wrong(whole: bytes) -> bytes:
    """The tenth header, of members of two blocks, is damaged."""
    at = 9 * 1024 + 100
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


@pytest.mark.parametrize("packed", [False, True], ids=["tar", "tar.gz"])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_one_bit_wrong, "damaged or cut short at byte 9216"),
        (lambda whole: whole[: 9 * 1024 + 200], "damaged or cut short at byte 9216"),
        (lambda whole: whole[: 9 * 1024], "damaged or cut short at byte 9216"),
        (lambda whole: whole[: 20 * 1024 + 512], "damaged or cut short at byte 20480"),
        (lambda whole: whole + whole, "goes on after its end"),
        (lambda whole: whole + b"1", "goes on after its end"),
    ],
    ids=["bit", "in a header", "at an edge", "in the end", "two", "byte"],
)
def test_a_tar_that_is_damaged_cut_or_two_in_one_is_refused_and_never_a_part_of_it(
    tmp_path: Path, change: Callable[[bytes], bytes], why: str, packed: bool
) -> None:
    whole = tar(tmp_path / "w.tar", [(f"{n:02d}.txt", b"text") for n in range(20)]).read_bytes()
    assert published(tmp_path / "w.tar").row_count == 20
    path = tmp_path / ("x.tar.gz" if packed else "x.tar")
    path.write_bytes(gzip.compress(change(whole)) if packed else change(whole))
    with pytest.raises(InvalidDataError, match=why):
        published(path)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_headers_of_a_tar_have_a_bound(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("long")
    info.type, info.size = kind, 64 << 20
    with (tmp_path / "x.tar").open("wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.truncate(65 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidDataError, match="header of more than"):
            published(tmp_path / "x.tar")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_chain_of_headers_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type = tarfile.XHDTYPE
    (tmp_path / "x.tar").write_bytes(info.tobuf() * 5000)
    with pytest.raises(InvalidDataError, match=r"no whole tar|header of more than"):
        published(tmp_path / "x.tar")


def test_links_and_halves_of_tars_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "l.tar", "w") as file:
        info = tarfile.TarInfo("a.txt")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(info)
    with pytest.raises(InvalidDataError, match="is a link or a device"):
        published(tmp_path / "l.tar")
    whole = tar(tmp_path / "w.tar", [("a.txt", bytes(5000))]).read_bytes()
    (tmp_path / "h.tar").write_bytes(whole[:2000])
    with pytest.raises(InvalidDataError, match="no whole tar"):
        published(tmp_path / "h.tar")
    root = images(tmp_path / "a", count=2)
    (root / "out.txt").symlink_to("/etc/hostname")
    with pytest.raises(InvalidDataError, match="leads out of"):
        published(root)


def test_what_unpacks_to_too_much_is_refused_before_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_files, "SURELY_UNPACKED_BYTES", 1 << 16)
    monkeypatch.setattr(parquet_rows, "SURELY_UNPACKED_BYTES", 1 << 16)
    bomb = tmp_path / "b.jsonl.gz"
    bomb.write_bytes(gzip.compress(b'{"a":1}\n' * 1_000_000))
    with pytest.raises(InvalidDataError, match="unpacks to more than"):
        published(bomb)
    pq.write_table(pa.table({"a": pa.array(["x" * 1000] * 100_000)}), tmp_path / "b.parquet", compression="zstd", use_dictionary=False)
    with pytest.raises(InvalidDataError, match="unpacks to"):
        published(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.jsonl", '{"a": 1}\n[2]\n', "a.jsonl:2: a row is an object"),
        ("a.jsonl", '{"a": 1}\n{"a"\n', "a.jsonl:2: it is no JSON"),
        ("a.csv", "a,b\n1\n", "a.csv:2: 1 values for 2 columns"),
        ("a.csv", "a,a\n1,2\n", "has to name each column"),
        ("a.parquet", "none", "no Parquet file"),
        ("a.tar", "none", "no whole tar"),
        ("a.bin", "none", "publish a folder, or a file that ends in"),
        ("a.jsonl", "", "split train of .* is empty"),
    ],
)
def test_files_that_are_bad_are_refused_with_their_line(tmp_path: Path, name: str, content: str, why: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidDataError, match=why):
        published(tmp_path / name)


def test_names_that_are_not_utf_8_are_refused(tmp_path: Path) -> None:
    root = images(tmp_path / "a", count=2)
    (root / os.fsdecode(b"caf\xe9.txt")).write_text("text")
    with pytest.raises(InvalidDataError, match=r"caf\\udce9.*UTF-8"):
        published(root)
    folder = tmp_path / "tars"
    folder.mkdir()
    tar(folder / os.fsdecode(b"\xe9.tar"), [("a.txt", b"1")])
    with pytest.raises(InvalidDataError, match="UTF-8"):
        published(folder)
    with pytest.raises(InvalidDataError, match=r"caf\\udce9.*UTF-8"):
        published(tar(tmp_path / "x.tar", [(os.fsdecode(b"caf\xe9.txt"), b"1")]))


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tar", "a.jsonl.gz"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/proc/self/mem")  # a read at 0, which is not mapped, ends in an error, for root as well
    with pytest.raises(InvalidDataError, match=rf"{name}: .*Input/output error"):
        published(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    root = images(tmp_path / "a", count=5)
    (root / "3").chmod(0)
    try:
        with pytest.raises(InvalidDataError, match="/3: it cannot be read: Permission denied"):
            published(root)
    finally:
        (root / "3").chmod(0o700)


def test_shards_that_have_no_room_are_one_sentence(tmp_path: Path) -> None:
    root = images(tmp_path / "a")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(CliError, match="set TMPDIR to a folder with room"), explained():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
        try:
            published(root)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    "text",
    [
        "train",
        "train=0.5",
        "train=0.5,train=0.5",
        "a=0.7,b=0.7",
        "a=x",
        "=1",
        "a=2,b=-1",
        "a/b=1",
        ",".join(f"s{n}=1/17" for n in range(17)),
        "train=1e-99999999",
        "train=1e99999999",
        f"train=1/{'9' * 10_000}",
        "zug training=1",
    ],
)
def test_splits_whose_shares_are_not_one_are_refused(text: str) -> None:
    with pytest.raises(InvalidDataError, match="split"):
        SplitRule.parse(text)


def test_a_sample_without_the_column_to_split_by_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match="has no value 'speaker' in its json"):
        published(jsonl(tmp_path / "r.jsonl", [{"text": "x"}]), rule=SplitRule.parse("a=0.5,b=0.5", by="speaker"))


def test_a_sweep_of_the_store_leaves_versions_alone(tmp_path: Path) -> None:
    now = [1e9]
    objects = MemoryObjectStore(lambda: now[0])
    manifest = published(images(tmp_path / "a"), objects)
    now[0] += 1e7
    before = [found.key for found in objects.list("")]
    sweep(objects)
    assert [found.key for found in objects.list("")] == before and read_manifest(objects, PROJECT, manifest.sha256()) == manifest


def test_damage_in_the_store_is_found(tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    manifest = published(images(tmp_path / "a"), objects)
    [(_, shard)] = shards_of(manifest)
    assert problems_of(objects, PROJECT, shard) == []
    content = bytearray(objects.get(shard_key(PROJECT, shard.sha256)))
    content[700] ^= 1
    objects.put(shard_key(PROJECT, shard.sha256), content)
    objects.delete(index_key(PROJECT, shard.sha256))
    assert [p.partition(" ")[2] for p in problems_of(objects, PROJECT, shard)] == ["has other contents than its hash says", "is missing"]
    objects.put(manifest_key(PROJECT, manifest.sha256()), b"{}")
    with pytest.raises(DamagedShardError, match="other contents than its name says"):
        read_manifest(objects, PROJECT, manifest.sha256())


def test_an_index_that_is_another_is_replaced_by_the_next_publication(tmp_path: Path) -> None:
    objects = MemoryObjectStore()
    manifest = published(images(tmp_path / "a"), objects)
    [(_, shard)] = shards_of(manifest)
    key = index_key(PROJECT, shard.sha256)
    objects.put(key, bytes(len(objects.get(key))))
    assert published(images(tmp_path / "b"), objects) == manifest
    assert problems_of(objects, PROJECT, shard) == []


def test_a_manifest_beyond_its_bound_is_neither_published_nor_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = MemoryObjectStore()
    manifest = published(images(tmp_path / "a"), objects)
    monkeypatch.setattr(stored_versions, "MOST_MANIFEST_BYTES", 100)
    with pytest.raises(DamagedShardError, match="a manifest 100 at most"):
        read_manifest(objects, PROJECT, manifest.sha256())
    monkeypatch.setattr(publication, "MOST_MANIFEST_BYTES", 100)
    with pytest.raises(InvalidDataError, match="and may have 100"):
        published(images(tmp_path / "b"), objects)


@pytest.mark.parametrize("by_copies", [True, False])
def test_damaged_shards_are_written_again_from_their_source_or_from_copies_and_never_otherwise(tmp_path: Path, by_copies: bool) -> None:
    objects, source = MemoryObjectStore(), images(tmp_path / "images")
    rule = SplitRule.parse("train=0.7,test=0.3")
    manifest = Publication(source_of(LocalRoot(source)), rule, Terms("MIT", ("research",)), 64 << 10).publish(objects, "default")
    shards = [shard for _, shard in shards_of(manifest)]
    cut, missing, index_gone, whole = shards[:4]
    assert SplitRule.of_json(manifest.split_rule) == rule
    copies = tmp_path / "copies"
    copies.mkdir()
    for shard in shards:
        (copies / f"{shard.sha256}.tar").write_bytes(objects.get(shard_key("default", shard.sha256)))
        (copies / f"{shard.sha256}.idx").write_bytes(objects.get(index_key("default", shard.sha256)))
    before = {key: objects.get(key) for key in (stat.key for stat in objects.list(""))}
    objects.put(shard_key("default", cut.sha256), b"\0" * cut.bytes)
    objects.delete(shard_key("default", missing.sha256))
    objects.delete(index_key("default", index_gone.sha256))
    chosen = [shard.sha256 for shard in (cut, missing, index_gone, whole)]
    assert list(rebuild_shards(objects, "default", manifest, chosen, None, 64 << 10)) == chosen[:3]
    other = jsonl(tmp_path / "other.jsonl", rows())
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / f"{cut.sha256}.tar").write_bytes(b"\1" * cut.bytes)
    for wrong in (other, tmp_path / "wrong"):
        assert list(rebuild_shards(objects, "default", manifest, chosen, LocalRoot(wrong), 64 << 10)) == chosen[:3]
    assert objects.get(shard_key("default", cut.sha256)) == b"\0" * cut.bytes, "other bytes are never written"
    assert rebuild_shards(objects, "default", manifest, chosen, LocalRoot(copies if by_copies else source), 64 << 10) == {}
    assert {key: objects.get(key) for key in (stat.key for stat in objects.list(""))} == before
