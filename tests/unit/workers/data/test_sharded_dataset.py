"""A published dataset by sample number: from a folder or a store, through the node's cache; damage is read again, a store that is away is
waited for, and a disk that is full is done without."""

import multiprocessing
import os
import pickle
import random
import resource
import threading
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.profiles import examples
from trainhouse.checkpointing.errors import ObjectStoreUnavailableError
from trainhouse.events.model.dataset_keys import index_key, shard_key
from trainhouse.workers.data import InvalidDataError
from trainhouse.workers.data.errors import DamagedShardError
from trainhouse.workers.data.shard_sources import FolderSource, StoreSource
from trainhouse.workers.data.sharded_dataset import KEY, BadSample, ShardedDataset
from trainhouse.workers.data.shards import Shard, ShardWriter
from trainhouse.workers.data.shards.node_cache import NodeCache

PROJECT = "language"

Expected = list[dict[str, object]]


class CountingStore(MemoryObjectStore):
    """A store that counts the bytes that were fetched, and is away for the next `away` requests."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[tuple[str, int]] = []
        self.away = 0

    def get(self, key: str) -> bytes:
        self._answer()
        content = super().get(key)
        self.fetched.append((key, len(content)))
        return content

    def get_range(self, key: str, start: int, length_bytes: int) -> bytes:
        self._answer()
        content = super().get(key)[start : start + length_bytes]
        self.fetched.append((key, len(content)))
        return content

    def _answer(self) -> None:
        if self.away:
            self.away -= 1
            raise ObjectStoreUnavailableError("memory: get did not succeed within 1 s; is the store up?")


def written(folder: Path, sizes: list[int], seed: int = 1) -> tuple[list[Shard], Expected]:
    """Shards of so many samples each, and the samples."""
    chance = random.Random(seed)
    expected: Expected = []
    with ShardWriter(folder) as writer:
        for size in sizes:
            for _ in range(size):
                fields = {"bin": chance.randbytes(chance.randint(0, 3000)), "cls": str(len(expected)).encode()}
                writer.add(f"s{len(expected):06}", fields)
                expected.append({KEY: f"s{len(expected):06}", **fields})
            writer.cut()
    return writer.shards, expected


def stored(folder: Path, shards: list[Shard]) -> CountingStore:
    objects = CountingStore()
    for shard in shards:
        objects.put(shard_key(PROJECT, shard.sha256), (folder / shard.tar_name).read_bytes())
        objects.put(index_key(PROJECT, shard.sha256), (folder / shard.index_name).read_bytes())
    return objects


@settings(max_examples=examples(10))
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(64, 9000), st.integers(3000, 60_000), st.integers(1, 3))
@example([2, 1], 1, 60_000, 2)  # of many samples, so small pieces take minutes
def test_every_source_gives_every_sample(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], piece_bytes: int, cache_bytes: int, threads: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    shards, expected = written(folder, sizes)
    objects = stored(folder, shards)
    cache = NodeCache(tmp_path_factory.mktemp("cache"), cache_bytes)
    sources = [FolderSource(folder), StoreSource(objects, PROJECT, None)]
    sources += [StoreSource(objects, PROJECT, cache, whole=whole, piece_bytes=piece_bytes) for whole in (True, False)]
    order = random.Random(1).sample(range(len(expected)), len(expected))
    for source in sources:
        dataset = ShardedDataset(shards, source, threads=threads)
        assert len(dataset) == len(expected)
        assert dataset.__getitems__(order) == [expected[index] for index in order]
        assert dataset[-1] == expected[-1]
        kept = [path for path in cache.folder.iterdir() if path.suffix not in (".lock", ".count")]
        assert sum(path.stat().st_size for path in kept) <= cache_bytes


def test_a_pass_through_the_cache_fetches_each_byte_once_and_without_it_what_is_needed(tmp_path: Path) -> None:
    shards, expected = written(tmp_path, [40, 3, 20])
    objects = stored(tmp_path, shards)
    content = sum(shard.size_bytes for shard in shards)
    indexes = sum((tmp_path / shard.index_name).stat().st_size for shard in shards)
    for _ in range(2):  # two ranks of one node, one after the other
        dataset = ShardedDataset(shards, StoreSource(objects, PROJECT, NodeCache(tmp_path / "cache", 1 << 20), piece_bytes=4096))
        assert dataset.__getitems__(list(range(63))) == expected
    assert content * 0.9 < sum(size for _, size in objects.fetched) - indexes <= content
    objects.fetched.clear()
    dataset = ShardedDataset(shards, StoreSource(objects, PROJECT, NodeCache(tmp_path / "other", 1 << 20), whole=False))
    dataset.__getitems__(list(range(0, 63, 8)))
    needed = sum(len(each["bin"]) + len(each["cls"]) + 1024 for each in expected[::8])  # type: ignore[arg-type]
    assert sum(size for key, size in objects.fetched if key.endswith(".tar")) < needed


def test_a_cache_stays_within_its_bytes_and_keeps_what_was_used_last(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, 10_000)
    for number in range(30):
        cache.get_or_fetch(f"piece{number}", lambda: bytes(1000))
        os.utime(tmp_path / f"piece{number}", (number, number))
        assert sum(path.stat().st_size for path in tmp_path.glob("piece*")) <= 10_000
    assert cache.get("piece29") == bytes(1000) and cache.get("piece0") is None
    assert cache.get_or_fetch("large", lambda: bytes(20_000)) == bytes(20_000) and cache.get("large") is None


def test_a_cache_of_a_share_of_the_disk_is_as_large_when_it_is_opened_again(tmp_path: Path) -> None:
    assert NodeCache.of_free_bytes(tmp_path / "cache", 0.0).most_bytes == 1
    cache = NodeCache(tmp_path / "cache", 1 << 20)
    cache.get_or_fetch("piece", lambda: bytes(1000))
    assert (cache.folder / "space.count").read_bytes() == b"1000"
    (cache.folder / "space.count").write_bytes(b"%d" % 10**18)
    assert NodeCache.of_free_bytes(cache.folder, 0.5).most_bytes > 10**18 // 2


def test_processes_and_threads_fetch_a_piece_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    fetched = context.Value("i", 0)

    def fetch() -> bytes:
        with fetched.get_lock():
            fetched.value += 1
        return bytes(1000)

    def read() -> None:
        threads = [threading.Thread(target=lambda: [cache.get_or_fetch(f"p{n}", fetch) for n in range(20)]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    cache = NodeCache(tmp_path, 1 << 20)
    processes = [context.Process(target=read) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert fetched.value == 20


def test_what_a_killed_writer_left_is_not_read_and_goes(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, 5000)
    left = tmp_path / ".dead.part"
    left.write_bytes(bytes(4000))
    for number in range(6):
        cache.get_or_fetch(f"piece{number}", lambda: bytes(1000))
    assert not left.exists() and cache.get("piece5") == bytes(1000)


def test_a_disk_that_takes_no_more_is_done_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards, expected = written(tmp_path, [10])
    objects = stored(tmp_path, shards)
    (tmp_path / "file").write_bytes(b"")  # a folder cannot be made of it, also not by root
    dataset = ShardedDataset(shards, StoreSource(objects, PROJECT, NodeCache(tmp_path / "file", 1 << 20)))
    assert dataset.__getitems__(list(range(10))) == expected
    (line,) = capsys.readouterr().err.splitlines()
    assert "the cache of shards in" in line and "File exists" in line and "free space there, or give it another folder" in line


def test_a_disk_that_fills_while_a_piece_is_written_leaves_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cache = NodeCache(tmp_path, 1 << 20)

    def read() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # for this process the disk takes no more of a file
        assert cache.get_or_fetch("small", lambda: b"1") == b"1"
        assert cache.get_or_fetch("large", lambda: bytes(5000)) == bytes(5000)
        assert not cache.is_on and cache.get("small") == b"1"

    process = multiprocessing.get_context("fork").Process(target=read)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert "File too large" in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix not in (".lock", ".count")) == ["small"]


def test_a_cache_is_its_users_alone(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path / "cache", 1 << 20)
    old_umask = os.umask(0)
    try:
        cache.get_or_fetch("piece", lambda: b"sample")
    finally:
        os.umask(old_umask)
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in cache.folder.iterdir()} == {0o600}


@pytest.mark.parametrize("how", ["link", "writable", "of another user"])
def test_a_folder_that_others_may_change_is_no_cache(tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder, target = tmp_path / "cache", tmp_path / "real"
    target.mkdir(mode=0o700)
    if how == "link":
        folder.symlink_to(target)
    else:
        folder.mkdir(mode=0o700)
        target = folder
    (target / "piece").write_bytes(b"poison")
    if how == "writable":
        folder.chmod(0o770)
    if how == "of another user":
        if os.geteuid():
            pytest.skip("only root may give a folder away")
        os.chown(folder, 65_534, 65_534)
    cache = NodeCache(folder, 1 << 20)
    assert cache.get("piece") is None
    assert cache.get_or_fetch("piece", lambda: b"sample") == b"sample" and cache.get_or_fetch("other", lambda: b"2") == b"2"
    assert [path.name for path in target.iterdir()] == ["piece"]
    assert "must be a folder of this user's own that no other may write to" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["space.count", "space.lock", "piece"])
def test_a_link_in_the_cache_is_not_followed(tmp_path: Path, name: str) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "cache"
    victim.write_bytes(b"precious")
    folder.mkdir(mode=0o700)
    (folder / name).symlink_to(victim)
    cache = NodeCache.of_free_bytes(folder, 0.5)
    assert cache.get_or_fetch("piece", lambda: b"sample") == b"sample"
    assert victim.read_bytes() == b"precious"


def test_an_index_that_was_checked_is_not_changed_by_the_cache(tmp_path: Path) -> None:
    shards, expected = written(tmp_path, [10])
    cache = NodeCache(tmp_path / "cache", 1 << 20)
    dataset = ShardedDataset(shards, StoreSource(stored(tmp_path, shards), PROJECT, cache))
    other = ShardedDataset(shards, StoreSource(stored(tmp_path, shards), PROJECT, cache))
    assert dataset[3] == other[3] == expected[3]
    (path,) = cache.folder.glob("*.idx")
    path.write_bytes(b"")  # in place: a mapping of it would end this process
    assert dataset[4] == expected[4]
    assert ShardedDataset(shards, StoreSource(stored(tmp_path, shards), PROJECT, cache))[4] == expected[4]


def test_indexes_in_memory_are_bounded_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards, expected = written(tmp_path, [5] * 12)
    index_bytes = (tmp_path / shards[0].index_name).stat().st_size
    monkeypatch.setattr("trainhouse.workers.data.sharded_dataset.MOST_INDEX_BYTES", 4 * index_bytes)
    dataset = ShardedDataset(shards, StoreSource(stored(tmp_path, shards), PROJECT, NodeCache(tmp_path / "cache", 1 << 20)))
    assert dataset.__getitems__(list(range(60))) == expected
    assert sum(index.memory_bytes for index, _ in dataset._reader()._open.values()) <= 4 * index_bytes
    assert len(dataset._reader()._open) >= 3
    monkeypatch.setattr("trainhouse.workers.data.sharded_dataset.MOST_INDEX_BYTES", 1)
    assert dataset.__getitems__(list(range(60))) == expected and len(dataset._reader()._open) == 1
    mapped = ShardedDataset(shards, FolderSource(tmp_path))
    assert mapped.__getitems__(list(range(60))) == expected and len(mapped._reader()._open) == 12


def test_a_damaged_piece_of_the_cache_is_fetched_again(tmp_path: Path) -> None:
    shards, expected = written(tmp_path, [10])
    cache = NodeCache(tmp_path / "cache", 1 << 20)
    source = StoreSource(stored(tmp_path, shards), PROJECT, cache)
    assert ShardedDataset(shards, source)[3] == expected[3]
    for path in cache.folder.glob(f"{shards[0].sha256}*"):
        path.write_bytes(path.read_bytes()[:-3] + b"\0\0\1")
    for path in cache.folder.glob("*.0"):
        path.write_bytes(path.read_bytes()[:1200])
    assert ShardedDataset(shards, source).__getitems__(list(range(10))) == expected


def test_a_bad_sample_leaves_its_place_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards, expected = written(tmp_path, [4, 4])
    path = tmp_path / shards[0].tar_name
    content = path.read_bytes()
    path.write_bytes(content[:520] + b"###" + content[523:])
    dataset = ShardedDataset(shards, FolderSource(tmp_path), "books@1.0.0 train")
    first, second, other = dataset.__getitems__([0, 1, 6])
    assert isinstance(first, BadSample) and first.index == 0 and "is damaged: the" in first.reason
    assert (second, other) == (expected[1], expected[6])
    assert "sample 0 of books@1.0.0 train is left out:" in capsys.readouterr().err
    with pytest.raises(
        DamagedShardError, match="another checksum than the index gives; fetch the shard again, or remove it from the store and publish"
    ):
        dataset[0]
    path.write_bytes(content[:2000])
    with pytest.raises(DamagedShardError, match="is truncated: sample 's000003' is"):
        ShardedDataset(shards, FolderSource(tmp_path))[3]
    (tmp_path / shards[1].index_name).write_bytes((tmp_path / shards[0].index_name).read_bytes())
    with pytest.raises(DamagedShardError, match="is the index of another shard"):
        ShardedDataset(shards, FolderSource(tmp_path))[5]


def test_a_store_that_is_away_is_waited_for_and_the_cache_is_read_meanwhile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards, expected = written(tmp_path, [10, 10])
    objects = stored(tmp_path, shards)
    dataset = ShardedDataset(shards, StoreSource(objects, PROJECT, NodeCache(tmp_path / "cache", 1 << 20)))
    assert dataset[0] == expected[0]
    objects.away = 10**6
    assert dataset.__getitems__(list(range(10))) == expected[:10]
    objects.away = 1
    assert dataset[15] == expected[15]
    assert "the loader waits for the store, its shards are not at fault: memory: get did not" in capsys.readouterr().err
    objects.away = 10**6
    impatient = ShardedDataset(shards, StoreSource(objects, PROJECT, None, patience_s=0.0))
    began_s = time.monotonic()
    with pytest.raises(ObjectStoreUnavailableError):
        impatient[0]
    assert time.monotonic() - began_s < 30


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    shards, _ = written(tmp_path, [3])
    with pytest.raises(InvalidDataError, match="books train has no samples: publish a split that has some, or name another one"):
        ShardedDataset([], FolderSource(tmp_path), "books train")
    with pytest.raises(DamagedShardError, match=r"\.idx is not there, and the version's manifest names it; copy it there"):
        ShardedDataset(shards, FolderSource(tmp_path / "other"))[0]
    with pytest.raises(DamagedShardError, match="the manifest names it, and it is not in the store; publish the version again"):
        ShardedDataset(shards, StoreSource(MemoryObjectStore(), PROJECT, None))[0]
    with pytest.raises(IndexError, match="sample 3 of 3"):
        ShardedDataset(shards, FolderSource(tmp_path), "books train")[3]


def test_a_process_opens_files_of_its_own_and_another_gets_none(tmp_path: Path) -> None:
    shards, expected = written(tmp_path, [5] * 80)
    dataset = ShardedDataset(shards, FolderSource(tmp_path))
    assert dataset.__getitems__(list(range(400))) == expected
    assert len(dataset._reader()._open) == 64
    again = pickle.loads(pickle.dumps(dataset))
    assert again._reader_of is None and again[7] == expected[7] and again.identity == dataset.identity
    assert ShardedDataset(shards[::-1], FolderSource(tmp_path)).identity != dataset.identity
