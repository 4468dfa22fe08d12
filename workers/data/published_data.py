"""Published versions as map-style datasets: from a split's name to its shards in the store, through the node's cache.

Holds: the version is named by the hash of its manifest, so what is read is what was named.
"""

import os
import tempfile
from pathlib import Path, PurePosixPath
from typing import Final

import psutil

from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.dataset import DataSplit
from trainhouse.events.model.dataset_keys import datasets_prefix
from trainhouse.events.model.version_names import VersionName
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.settings import DataSettings
from trainhouse.workers.data.shard_sources import FolderSource, StoreSource
from trainhouse.workers.data.sharded_dataset import KEY, ShardedDataset
from trainhouse.workers.data.shards import Sample, Shard, ShardIndex
from trainhouse.workers.data.shards.node_cache import NodeCache
from trainhouse.workers.data.stored_versions import read_manifest

FREE_SHARE: Final = 0.5
MOST_MEMORY_BYTES: Final = 2**30
"""Of a cache in memory, unless both folder and size were set: it counts for the job's limit."""


def open_split(
    version: str,
    project: str,
    split: str,
    objects: ObjectStore,
    settings: DataSettings,
    *,
    whole: bool = True,
    reader: str | None = None,
) -> ShardedDataset:
    """The samples of one split of `version`, NAME@sha256:…, as it was published in `project`. `whole`: this node reads most of each
    shard. `reader`: the project of the job, whose cache is used where it reads another's version. Raises InvalidDataError,
    DamagedShardError, CheckpointError."""
    sha256 = VersionName.parse(version).sha256
    if not sha256:
        raise InvalidDataError(f"{version}: name the version by its hash, as NAME@sha256:…; `trainhouse data show` shows it")
    manifest = read_manifest(objects, project, sha256)
    if split not in manifest.splits:
        raise InvalidDataError(f"{version} has no split {split!r}: name one of {', '.join(sorted(manifest.splits))}")
    # What ranks of one project write into a cache, none of another reads.
    source = StoreSource(objects, project, open_cache(settings, reader or project), whole=whole, manifest_sha256=sha256)
    shards, name = _shards(manifest.splits[split]), f"{version}, split {split}"
    return ShardedDataset(shards, source, name, settings.reads, version=version, split=split)


def stored_sample(objects: ObjectStore, project: str, split: DataSplit, position: int) -> Sample:
    """The sample at `position` of a split, by its shard's index and one ranged GET. Raises IndexError, DamagedShardError."""
    fields = ShardedDataset(_shards(split), StoreSource(objects, project, None, patience_s=0.0))[position]
    return Sample(fields.pop(KEY), fields)


def open_folder(folder: Path) -> ShardedDataset:
    """The samples of all shards in a local folder, by the names of their files. Raises InvalidDataError, DamagedShardError."""
    shards = []
    for path in sorted(folder.glob("*.idx")):
        index = ShardIndex.load(path)
        shards.append(Shard(index.shard_sha256, index.sha256, index.shard_bytes, index.samples))
    return ShardedDataset(shards, FolderSource(folder), str(folder))


def _shards(split: DataSplit) -> list[Shard]:
    return [Shard.of(each) for each in split.shards]


def open_cache(settings: DataSettings, project: str) -> NodeCache | None:
    """The project's cache on this node as the settings say; None where it is to have no bytes."""
    word = PurePosixPath(datasets_prefix(project)).name
    # Beside others' in a folder where only its owner may remove it, not below one that another user may have made.
    own = Path(tempfile.gettempdir()) / f"trainhouse-shards-{os.geteuid()}-{word}"
    folder = own if settings.cache_dir is None else settings.cache_dir / word
    most_bytes = None if settings.cache_gib is None else int(settings.cache_gib * 2**30)
    if most_bytes == 0:
        return None
    cache = NodeCache.of_free_bytes(folder, FREE_SHARE) if most_bytes is None else NodeCache(folder, most_bytes)
    if (most_bytes is None or settings.cache_dir is None) and _is_in_memory(folder):
        cache.most_bytes = min(cache.most_bytes, MOST_MEMORY_BYTES)
    return cache


def _is_in_memory(folder: Path) -> bool:
    """Returns whether the folder lies, or would, in a file system whose bytes are the memory of the processes that write there."""
    real, deepest, kind = folder.resolve(), 0, ""
    try:
        parts = psutil.disk_partitions(all=True)
    except OSError:  # a confined process that may not read them
        return False
    for part in parts:
        depth = len(Path(part.mountpoint).parts)
        if depth >= deepest and real.is_relative_to(part.mountpoint):  # of several at one place the last one is seen
            deepest, kind = depth, part.fstype
    return kind in ("tmpfs", "ramfs")
