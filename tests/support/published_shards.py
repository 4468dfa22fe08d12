"""Small published versions whose samples are numbers, in shards of any sizes."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.dataset_versions import manifest
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.dataset_keys import index_key, manifest_key, shard_key
from trainhouse.workers.data import open_folder
from trainhouse.workers.data.sharded_dataset import ShardedDataset
from trainhouse.workers.data.shards import ShardWriter


def written(folder: Path, sizes: Sequence[int]) -> ShardedDataset:
    """Shards of so many samples, each its number as `cls`; they are read in the order of their files' names."""
    folder.mkdir(exist_ok=True)
    number = 0
    with ShardWriter(folder) as writer:
        for size in sizes:
            for _ in range(size):
                writer.add(f"s{number}", {"cls": str(number).encode()})
                number += 1
            writer.cut()
    return open_folder(folder)


def published(folder: Path, sizes: Sequence[int], objects: ObjectStore, project: str = "default") -> str:
    """The name by its hash of a version that has these as its split `train`."""
    shards = written(folder, sizes).shards
    for shard in shards:
        objects.put(shard_key(project, shard.sha256), (folder / shard.tar_name).read_bytes())
        objects.put(index_key(project, shard.sha256), (folder / shard.index_name).read_bytes())
    facts = [{"sha256": s.sha256, "index_sha256": s.index_sha256, "bytes": s.size_bytes, "samples": s.samples} for s in shards]
    size, samples = sum(s.size_bytes for s in shards), sum(sizes)
    train = {"shards": facts, "samples": samples, "bytes": size}
    version = manifest(splits={"train": train}, row_count=samples, bytes=size)
    objects.put(manifest_key(project, version.sha256()), version.canonical_json())
    return f"numbers@sha256:{version.sha256()}"
