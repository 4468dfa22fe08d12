"""Sources of a version's shards: a folder, or an object store through the node's cache.

Holds: nothing is opened before the first read, so a process made by fork has connections of its own.
Never: takes a store that is away for a shard that is damaged: it is waited for. An object that the store does not have is damaged, if
the store has the version's manifest.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

from trainhouse.checkpointing.errors import ObjectMissingError, ObjectStoreUnavailableError
from trainhouse.checkpointing.stores.object_store import ObjectStore, exists
from trainhouse.events.model.bad_shard import ShardFault
from trainhouse.events.model.dataset_keys import index_key, manifest_key, shard_key
from trainhouse.workers.data.errors import DamagedShardError
from trainhouse.workers.data.shards.index import Located, ShardIndex
from trainhouse.workers.data.shards.node_cache import NodeCache
from trainhouse.workers.data.shards.sample import ShardBytes, ShardFile
from trainhouse.workers.data.shards.writer import Shard

T = TypeVar("T")
PIECE_BYTES: Final = 4 << 20
PATIENCE_S: Final = 3600.0
_PAUSE_S: Final = 1.0


class ShardSource(Protocol):
    """Reads shards by their manifest's facts. Safe to share by threads."""

    def index(self, shard: Shard) -> ShardIndex:
        """The shard's index. Raises DamagedShardError."""
        ...

    def content(self, shard: Shard) -> ShardBytes:
        """The shard's bytes. Raises DamagedShardError."""
        ...

    def forget(self, shard: Shard, located: Located | None) -> None:
        """Drops what may be bad copies of the index and, where it was located, of the sample."""
        ...


class FolderSource:
    """Shards in a local folder, `<sha256>.tar` and `<sha256>.idx`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def index(self, shard: Shard) -> ShardIndex:
        path = self._folder / shard.index_name
        try:
            return _checked(ShardIndex.load(path), shard)
        except FileNotFoundError:
            raise _not_there(path) from None

    def content(self, shard: Shard) -> ShardBytes:
        path = self._folder / shard.tar_name
        try:
            return ShardFile(path)
        except FileNotFoundError:
            raise _not_there(path) from None

    def forget(self, shard: Shard, located: Located | None) -> None:
        """Nothing: a file is its own only copy."""


class StoreSource:
    """Shards in an object store. `whole`: this node reads most samples of a shard, so that pieces of it are fetched and kept; else each
    sample is fetched alone, and only what other samples have brought is read from the cache. `manifest_sha256`: the version's; a store that
    does not have it is away, whatever else it says that it does not have."""

    def __init__(
        self,
        objects: ObjectStore,
        project: str,
        cache: NodeCache | None,
        *,
        whole: bool = True,
        piece_bytes: int = PIECE_BYTES,
        patience_s: float = PATIENCE_S,
        manifest_sha256: str = "",
    ) -> None:
        self._objects, self._project, self._cache = objects, project, cache
        self._whole, self._piece_bytes, self._patience_s = whole, piece_bytes, patience_s
        self._manifest_key = manifest_key(project, manifest_sha256) if manifest_sha256 else ""

    def index(self, shard: Shard) -> ShardIndex:
        key = index_key(self._project, shard.sha256)

        def fetch() -> bytes:
            content = self._patient(lambda: self._objects.get(key))
            _checked(ShardIndex(content, self._objects.uri(key)), shard)
            return content

        if self._cache is None:
            return ShardIndex(fetch(), self._objects.uri(key))
        # Held in this process's memory: a mapped file of the cache could be changed, or cut, once it was compared.
        return _checked(ShardIndex(self._cache.get_or_fetch(shard.index_name, fetch), self._objects.uri(key)), shard)

    def content(self, shard: Shard) -> ShardBytes:
        return _CachedShard(self, shard)

    def forget(self, shard: Shard, located: Located | None) -> None:
        if self._cache is None:
            return
        self._cache.drop(shard.index_name)
        if located is not None:
            for number in self._pieces(located.start, located.length_bytes):
                self._cache.drop(_piece_name(shard, number))

    def name_of(self, shard: Shard) -> str:
        """The shard's address."""
        return self._objects.uri(shard_key(self._project, shard.sha256))

    def read(self, shard: Shard, start: int, length_bytes: int) -> bytes:
        """Bytes of the shard, off the cache where they are there."""
        if self._cache is None:
            return self._fetch(shard, start, length_bytes)
        keep = self._whole and self._cache.is_on
        found = [self._part(shard, number, start, start + length_bytes, keep) for number in self._pieces(start, length_bytes)]
        parts = [part for part in found if part is not None]
        return b"".join(parts) if len(parts) == len(found) else self._fetch(shard, start, length_bytes)

    def _pieces(self, start: int, length_bytes: int) -> range:
        return range(start // self._piece_bytes, (start + max(1, length_bytes) - 1) // self._piece_bytes + 1)

    def _part(self, shard: Shard, number: int, start: int, end: int, keep: bool) -> bytes | None:
        """Returns the bytes between `start` and `end` that are in one piece; None where it is not there, and not to be fetched."""
        assert self._cache is not None
        begin = number * self._piece_bytes
        first, after = max(start, begin) - begin, min(end, begin + self._piece_bytes) - begin
        name = _piece_name(shard, number)
        if not keep:
            return self._cache.get(name, first, after - first)
        return self._cache.get_or_fetch(name, lambda: self._fetch(shard, begin, self._piece_bytes), first, after - first)

    def _fetch(self, shard: Shard, start: int, length_bytes: int) -> bytes:
        return self._patient(lambda: self._objects.get_range(shard_key(self._project, shard.sha256), start, length_bytes))

    def _patient(self, ask: Callable[[], T]) -> T:
        """Asks until the store answers, `patience_s` at most."""
        began_s = time.monotonic()
        while True:
            try:
                return self._ask(ask)
            except ObjectMissingError as error:
                raise DamagedShardError(
                    f"{error}: the manifest names it, and it is not in the store; publish the version again, or give the store that has it",
                    ShardFault.MISSING,
                    expected="an object, as the manifest names it",
                    seen="no such object",
                ) from error
            except ObjectStoreUnavailableError as error:
                if time.monotonic() - began_s >= self._patience_s:
                    raise
                print(f"trainhouse: the loader waits for the store, its shards are not at fault: {error}", file=sys.stderr, flush=True)
                time.sleep(min(_PAUSE_S, self._patience_s))

    def _ask(self, ask: Callable[[], T]) -> T:
        """Asks once. Raises ObjectMissingError, ObjectStoreUnavailableError: also where a store has nothing, as behind a wrong proxy."""
        try:
            return ask()
        except ObjectMissingError as error:
            if not self._manifest_key or exists(self._objects, self._manifest_key):
                raise
            raise ObjectStoreUnavailableError(
                f"{self._objects.address}: neither a shard of the version nor its manifest {self._manifest_key!r} is there, "
                "so this is not the store that the job began with; bring it back"
            ) from error


class _CachedShard:
    """One shard of a source, through its cache if it has one."""

    def __init__(self, source: StoreSource, shard: Shard) -> None:
        self.name = source.name_of(shard)
        self._source, self._shard = source, shard

    def read(self, start: int, length_bytes: int) -> bytes:
        return self._source.read(self._shard, start, length_bytes)


def _piece_name(shard: Shard, number: int) -> str:
    return f"{shard.sha256}.{number}"


def _checked(index: ShardIndex, shard: Shard) -> ShardIndex:
    index.check(shard.sha256, shard.size_bytes, shard.samples)
    if index.sha256 != shard.index_sha256:
        raise DamagedShardError(
            f"{index.name} is damaged: it has another hash than the manifest gives; "
            "fetch it again, or remove it from the store and publish again",
            expected=f"index with SHA-256 {shard.index_sha256}",
            seen=f"SHA-256 {index.sha256}",
        )
    return index


def _not_there(path: Path) -> DamagedShardError:
    return DamagedShardError(
        f"{path} is not there, and the version's manifest names it; copy it there, or give the folder that has it",
        ShardFault.MISSING,
        expected="a file, as the manifest names it",
        seen="no such file",
    )
