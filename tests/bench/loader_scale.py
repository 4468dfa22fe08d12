"""Costs of the loader as data and nodes grow: resume at 90 % of 10^4 and of 10^8 samples, local and off a real S3 store; bytes that
are fetched over those that are needed, of 1 to 64 emulated nodes; memory of a worker process over three passes; memory of a node beside
indexes of many samples.

A version of 10^8 samples names one shard of 10,000 so often as it takes, for the resume; for memory each shard has an index of its own,
over one tar. TRAINHOUSE_BENCH_INDEX_SAMPLES is their number: 10^6 by default; 10^8 take 7 GB of disk. Emulated nodes have a cache each,
and a pass over TRAINHOUSE_BENCH_NODE_SAMPLES samples of 2 to 100 KB, 2,000 by default.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from tests.bench import loader_store, report
from tests.bench.loader_store import PROJECT, loader, opened, publish, written
from tests.bench.peers.stateful_loader import as_list
from tests.support.fakes.folder_store import FolderObjectStore
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.deploy.local.servers.seaweedfs import StoreServer
from trainhouse.events.model.dataset_keys import index_key, shard_key
from trainhouse.workers.data.batches import Share
from trainhouse.workers.data.data_loader import MapStyle, Reading, make_loader
from trainhouse.workers.data.shard_sources import FolderSource, StoreSource
from trainhouse.workers.data.sharded_dataset import ShardedDataset
from trainhouse.workers.data.shards import Shard, ShardIndex
from trainhouse.workers.data.shards.node_cache import NodeCache

INDEX_SAMPLES = int(float(os.environ.get("TRAINHOUSE_BENCH_INDEX_SAMPLES", "1e6")))
NODE_SAMPLES = int(os.environ.get("TRAINHOUSE_BENCH_NODE_SAMPLES", "2000"))
OF_SHARD, SIZES, NODES, BATCH = 10_000, (10**4, 10**8), (1, 2, 4, 16, 64), 64
PASSES, WORKERS, MANY_BATCHES = 3, 2, 400


def run() -> None:
    """Prints the four figures."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        shard = written(folder / "one", [100] * OF_SHARD, 1 << 30)[0]
        _resume(folder, shard)
        _index(folder, shard)
        shutil.rmtree(folder / "one")
        _nodes(folder)
        _memory(folder)


def _resume(folder: Path, shard: Shard) -> None:
    local, off_store = dict[str, float](), dict[str, float]()
    with StoreServer(folder / "store") as server:
        secret: Any = server.secret_key
        settings = StoreSettings(endpoint=server.endpoint, bucket=server.bucket, access_key=server.access_key, secret_key=secret)
        for size in SIZES:
            shards = [shard] * (size // OF_SHARD)
            version = publish(S3ObjectStore(settings), folder / "one", shards)
            local[str(size)] = _resume_s(size, lambda shards=shards: ShardedDataset(shards, FolderSource(folder / "one")))  # type: ignore[misc]
            objects, cache = S3ObjectStore(settings), folder / f"cache-{size}"
            off_store[str(size)] = _resume_s(
                size,
                lambda objects=objects, version=version, cache=cache: opened(objects, version, cache),  # type: ignore[misc]
                lambda cache=cache: shutil.rmtree(cache),  # type: ignore[misc]
            )
    report.line("loader_scale_resume", unit="s", local=local, s3=off_store, aim={"local": 0.1, "s3": 0.3})


def _resume_s(size: int, dataset: Any, forget: Any = lambda: None) -> float:
    """From nothing opened to the first batch after 90 %, in this process, the second time: the first one imports and connects."""
    seconds = 0.0
    for _ in range(2):
        state = make_loader(dataset(), Share(BATCH), 1, True, None, Reading(0, None, as_list)).state_dict()
        forget() if seconds else None
        began = time.perf_counter()
        after = make_loader(dataset(), Share(BATCH), 1, True, None, Reading(0, None, as_list))
        after.load_state_dict(state | {"position": size * 9 // 10})
        next(after)
        seconds = time.perf_counter() - began
    return seconds


class _Counting(FolderObjectStore):
    """A store that counts the bytes that it gives."""

    given_bytes = 0

    def get(self, key: str) -> bytes:
        content = super().get(key)
        self.given_bytes += len(content)
        return content

    def get_range(self, key: str, start: int, length_bytes: int) -> bytes:
        content = super().get_range(key, start, length_bytes)
        self.given_bytes += len(content)
        return content


def _nodes(folder: Path) -> None:
    """Of one pass, over all nodes; a node of several fetches each sample alone, as sessions do."""
    lengths = loader_store.sizes()[:NODE_SAMPLES]
    shards = written(folder / "nodes", lengths)
    store = _Counting(folder / "counted")
    for shard in shards:
        store.put(shard_key(PROJECT, shard.sha256), (folder / "nodes" / shard.tar_name).read_bytes())
        store.put(index_key(PROJECT, shard.sha256), (folder / "nodes" / shard.index_name).read_bytes())
    found = dict[str, float]()
    for nodes in NODES:
        store.given_bytes = needed = 0
        for node in range(nodes):
            cache = NodeCache(folder / f"node-{nodes}-{node}", 1 << 30)
            source = StoreSource(store, PROJECT, cache, whole=nodes == 1)
            batches = make_loader(ShardedDataset(shards, source), Share(BATCH, node, nodes), 1, True, None, Reading(0, None, as_list))
            for _ in range(NODE_SAMPLES // BATCH):
                needed += sum(len(sample["bin"]) for sample in next(batches))
            shutil.rmtree(cache.folder, ignore_errors=True)
        found[str(nodes)] = store.given_bytes / needed
    report.line("loader_fetched", unit="bytes fetched / needed", nodes=found, samples=NODE_SAMPLES, aim=1.1)


def _memory(folder: Path) -> None:
    """Of each worker process at the end of each pass, off a store through a cache."""
    store, shards = FolderObjectStore(folder / "counted"), _listed(folder / "nodes")
    cache = NodeCache(folder / "cache-memory", 1 << 30)
    batches = loader(ShardedDataset(shards, StoreSource(store, PROJECT, cache)), BATCH, WORKERS)
    found = list[list[float]]()
    for _ in range(PASSES):
        _take(batches, NODE_SAMPLES // BATCH)
        found.append([round(own_mb(child), 1) for child in psutil.Process().children(recursive=True)])
    report.line("loader_memory", unit="MB of each worker after each pass", trainhouse=found)


def _index(folder: Path, shard: Shard) -> None:
    """Memory that a node's two worker processes and their parent have more once samples from everywhere were read, shared pages once."""
    content, many = (folder / "one" / shard.index_name).read_bytes(), folder / "many"
    many.mkdir()
    shards = list[Shard]()
    for number in range(max(1, INDEX_SAMPLES // OF_SHARD)):
        sha256 = f"{number:064x}"
        # The header's hash is the shard's; nothing else in an index depends on it.
        own = content[:8] + bytes.fromhex(sha256) + content[40:]
        (many / f"{sha256}.idx").write_bytes(own)
        (many / f"{sha256}.tar").symlink_to(folder / "one" / shard.tar_name)
        shards.append(Shard(sha256, hashlib.sha256(own).hexdigest(), shard.size_bytes, shard.samples))
    before = own_mb(psutil.Process())
    dataset: MapStyle = ShardedDataset(shards, FolderSource(many))
    batches = loader(dataset, BATCH, WORKERS)
    next(batches)
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    at_first = sum(map(own_mb, processes))
    _take(batches, MANY_BATCHES)
    at_last = sum(map(own_mb, processes))
    size = sum(path.stat().st_size for path in many.glob("*.idx"))
    report.line(
        "loader_index",
        unit="MB of a node",
        samples=sum(each.samples for each in shards),
        index_mb=size / 1e6,
        parent_before=before,
        after_one_batch=at_first,
        after_many=at_last,
        aim=1000,
    )
    shutil.rmtree(many)


def _listed(folder: Path) -> list[Shard]:
    indexes = [ShardIndex.load(path) for path in sorted(folder.glob("*.idx"))]
    return [Shard(index.shard_sha256, index.sha256, index.shard_bytes, index.samples) for index in indexes]


def _take(batches: Iterator[Any], count: int) -> None:
    for _ in range(count):
        next(batches)


def own_mb(process: psutil.Process) -> float:
    """Memory of a process, of pages that it shares its part."""
    return float(process.memory_full_info().pss) / 1e6
