"""Sources in an object store, the fake and a real S3 server: ids are those of folders, a change is refused by key."""

from __future__ import annotations

import gzip
import json
import random
import tarfile
import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.contract.test_object_store import settings_of
from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.errors import ObjectChangedError
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.events.model.dataset import Manifest
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.publishing import stored_files
from trainhouse.workers.data.publishing.bounded_files import LocalRoot, SourceChangedError, SourceRoot
from trainhouse.workers.data.publishing.publication import Publication, Terms
from trainhouse.workers.data.publishing.sources import source_of
from trainhouse.workers.data.publishing.split_rule import SplitRule
from trainhouse.workers.data.publishing.stored_files import StoredRoot

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack
Store = MemoryObjectStore | S3ObjectStore


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "memory":
        return MemoryObjectStore()
    server: StoreServer = request.getfixturevalue("object_store_endpoint")
    return S3ObjectStore(settings_of(server))


@pytest.fixture
def prefix() -> str:
    return f"sources/{uuid.uuid4().hex}"


def put(store: Store, prefix: str, folder: Path) -> StoredRoot:
    """The files of a folder, in the store."""
    for path in folder.rglob("*"):
        if path.is_file():
            store.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return StoredRoot(store, prefix)


def published(root: SourceRoot) -> Manifest:
    return Publication(source_of(root), SplitRule.parse("train=0.8,test=0.2"), Terms("MIT")).publish(MemoryObjectStore(), "p")


def pictures(folder: Path) -> None:
    for n in range(40):
        path = folder / f"{n % 3}" / f"picture-{n}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(random.Random(n).randbytes(5000))
        path.with_suffix(".txt").write_text(f"caption {n}" if n else "")


def rows(folder: Path) -> None:
    lines = [json.dumps({"n": n, "text": f"row {n}"}) + "\n" for n in range(4000)]
    (folder / "a.jsonl").write_text("".join(lines[:2000]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[2000:]).encode()))


def tables(folder: Path) -> None:
    (folder / "a.csv").write_text("n,text\n" + "".join(f'{n},"über {n}"\n' for n in range(3000)))


def parquet(folder: Path) -> None:
    for name in ("a", "b"):
        values = {"n": list(range(3000)), "jpg": [random.Random(n).randbytes(50) for n in range(3000)]}
        pq.write_table(pa.table(values), folder / f"{name}.parquet", row_group_size=500)


def tars(folder: Path) -> None:
    loose = folder.with_name("loose")
    loose.mkdir()
    pictures(loose)
    with tarfile.open(folder / "a.tar", "w") as file:
        file.add(loose, ".")


@pytest.mark.parametrize("make", [pictures, rows, tables, parquet, tars])
def test_an_id_is_that_of_the_same_files_in_a_folder(
    store: Store, prefix: str, tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_files, "PIECE_BYTES", 10_000)
    folder = tmp_path / "source"
    folder.mkdir()
    make(folder)
    (folder / ".hidden").write_text("not a sample")
    root = put(store, prefix, folder)
    store.put(f"{prefix}-other/x.jsonl", b'{"n": 1}\n')
    assert published(root).sha256() == published(LocalRoot(folder)).sha256()


def test_one_object_is_a_source(store: Store, prefix: str, tmp_path: Path) -> None:
    rows(tmp_path)
    put(store, prefix, tmp_path)
    for name in ("a.jsonl", "b.jsonl.gz"):
        assert published(StoredRoot(store, f"{prefix}/{name}")).sha256() == published(LocalRoot(tmp_path / name)).sha256()
    store.put(f"{prefix}/c.bin", b"1")
    with pytest.raises(InvalidDataError, match=r"c\.bin: publish a folder, or a file that ends in"):
        source_of(StoredRoot(store, f"{prefix}/c.bin"))
    with pytest.raises(InvalidDataError, match=r"none: there is no such object, and none below"):
        source_of(StoredRoot(store, f"{prefix}/none"))


@pytest.mark.parametrize("change", ["another", "longer", "gone", "more"])
@pytest.mark.parametrize("late", [False, True])
def test_a_change_while_it_is_published_is_refused_by_its_key(store: Store, prefix: str, tmp_path: Path, change: str, late: bool) -> None:
    """Also one that comes after the last read."""
    rows(tmp_path)
    root = put(store, prefix, tmp_path)
    key = f"{prefix}/{'c' if change == 'more' else 'a'}.jsonl"

    def act() -> None:
        if change == "gone":
            store.delete(key)
        else:
            before = b"" if change == "more" else store.get(key)
            store.put(key, before.replace(b"row 7", b"row 8") if change == "another" else before + b'{"n": 1}\n')

    objects = MemoryObjectStore()
    publication = Publication(source_of(root), SplitRule(), Terms())
    step = "_write" if late else "_measure"
    before = getattr(publication, step)
    setattr(publication, step, lambda *given: (before(*given), act())[0])
    with pytest.raises(SourceChangedError, match=rf"{key}.*publish again"):
        publication.publish(objects, "p")
    assert not list(objects.list("datasets/p/manifests/"))


def test_a_range_is_of_the_content_that_was_listed(store: Store, prefix: str) -> None:
    store.put(prefix, b"0123456789")
    found = store.stat(prefix)
    assert found is not None and found.etag and [each.etag for each in store.list(prefix)] == [found.etag]
    assert store.get_same_range(prefix, 2, 3, found.etag) == b"234"
    store.put(prefix, b"9876543210")
    for _ in range(2):
        with pytest.raises(ObjectChangedError, match=prefix):
            store.get_same_range(prefix, 2, 3, found.etag)
        store.delete(prefix)


def test_memory_is_bounded_by_a_piece_and_not_by_the_object() -> None:
    store = MemoryObjectStore()
    line = json.dumps({"text": "x" * 1000}).encode() + b"\n"
    store.put("s/a.jsonl", line * (96 * 1024))
    files = source_of(StoredRoot(store, "s"))
    tracemalloc.start()
    try:
        assert sum(1 for _ in files.samples()) == 96 * 1024
        assert tracemalloc.get_traced_memory()[1] < 3 * stored_files.PIECE_BYTES
    finally:
        tracemalloc.stop()


def test_a_key_that_is_no_path_in_a_folder_is_refused_and_marks_of_folders_are_none() -> None:
    store = MemoryObjectStore()
    store.put("s/", b"")
    store.put("s/a/", b"")
    store.put("s/a/x.txt", b"1")
    assert [file.name for file in StoredRoot(store, "s").files()] == ["a/x.txt"]
    store.put("s/../y.txt", b"1")
    with pytest.raises(InvalidDataError, match="cannot be a file in a folder"):
        StoredRoot(store, "s").files()
