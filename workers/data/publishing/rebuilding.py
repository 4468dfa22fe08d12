"""Damaged shards of a version, written into the store again from its source or from copies.

Holds: a shard gets the bytes that its manifest names, or none: what is written has their hashes.
"""

import hashlib
import mmap
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import PurePosixPath
from typing import Final

import orjson

from trainhouse.checkpointing.stores.object_store import Body, ObjectStat, ObjectStore
from trainhouse.events.model.dataset import DataShard, Manifest
from trainhouse.workers.data.publishing.bounded_files import SourceFile, SourceRoot
from trainhouse.workers.data.publishing.publication import Publication, Terms
from trainhouse.workers.data.publishing.sources import source_of
from trainhouse.workers.data.publishing.split_rule import SplitRule
from trainhouse.workers.data.publishing.time_split import TimeSplitRule
from trainhouse.workers.data.stored_versions import objects_of, problems_of, shards_of

_PIECE_BYTES: Final = 8 << 20


def rebuild_shards(
    objects: ObjectStore, project: str, manifest: Manifest, chosen: Sequence[str], source: SourceRoot | None, shard_bytes: int
) -> dict[str, list[str]]:
    """Writes those of the chosen shards that are damaged; returns the faults of those that still are. Raises InvalidDataError."""
    by_hash = {shard.sha256: shard for _, shard in shards_of(manifest)}
    shards = [by_hash[each] for each in chosen if each in by_hash]
    damaged = {shard.sha256: problems for shard in shards if (problems := problems_of(objects, project, shard))}
    if source is None or not damaged:
        return damaged
    wanted = [by_hash[each] for each in damaged]
    copies = {file.name: file for file in source.files()}
    if any(f"{shard.sha256}.tar" in copies for shard in wanted):
        for shard in wanted:
            _copy(objects, project, shard, copies)
    else:
        receiver = _Missing(objects, _hashes(project, wanted))
        terms = Terms(manifest.licence, manifest.purposes)
        rule = TimeSplitRule if "by_time" in orjson.loads(manifest.split_rule) else SplitRule
        Publication(source_of(source), rule.of_json(manifest.split_rule), terms, shard_bytes).publish(receiver, project)
    return {shard.sha256: problems for shard in wanted if (problems := problems_of(objects, project, shard))}


class _Missing:
    """The store as a publication is to see it: it has nothing, and takes the wanted objects alone."""

    def __init__(self, objects: ObjectStore, wanted: Mapping[str, str]) -> None:
        self._objects, self._wanted = objects, wanted

    def stat(self, key: str) -> ObjectStat | None:
        """Returns None: what is there may be damaged."""
        return None

    def get_range(self, key: str, start: int, length_bytes: int) -> bytes:
        return self._objects.get_range(key, start, length_bytes)

    def put(self, key: str, body: Body) -> None:
        """Writes the object if it is wanted, and has the wanted hash."""
        if hashlib.sha256(body).hexdigest() == self._wanted.get(key):
            self._objects.put(key, body)


def _hashes(project: str, shards: Sequence[DataShard]) -> dict[str, str]:
    """Hash of each object of the shards, by its key."""
    return {key: sha256 for shard in shards for key, sha256 in objects_of(project, shard).items()}


def _copy(objects: ObjectStore, project: str, shard: DataShard, copies: Mapping[str, SourceFile]) -> None:
    """Sends a shard and its index from their files, as far as both are there and whole; the index first."""
    hashes = objects_of(project, shard)
    receiver = _Missing(objects, hashes)
    for key in reversed(hashes):
        copy = copies.get(PurePosixPath(key).name)
        if copy is None or not copy.size_bytes:
            continue
        with ExitStack() as opened:
            spool = opened.enter_context(tempfile.TemporaryFile(prefix="trainhouse-rebuild-"))
            shutil.copyfileobj(opened.enter_context(copy.open()), spool, _PIECE_BYTES)
            spool.flush()
            content = opened.enter_context(mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ))
            receiver.put(key, opened.enter_context(memoryview(content)))
