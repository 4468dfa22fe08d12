"""Manifests and shards of versions in the object store: reading and checking them.

Holds: an object's name is its content's hash; a manifest is read only as what its hash says.
"""

import hashlib
from collections.abc import Iterator
from typing import Final, Protocol

import orjson
from pydantic import ValidationError

from trainhouse.checkpointing.errors import ObjectMissingError
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.dataset import DataShard, Manifest
from trainhouse.events.model.dataset_keys import index_key, manifest_key, profiles_key, shard_key
from trainhouse.events.model.dataset_profile import MOST_PROFILES_BYTES, ProfiledVersion, VersionProfiles
from trainhouse.workers.data.errors import DamagedShardError

MOST_MANIFEST_BYTES: Final = 128 << 20
_PIECE_BYTES: Final = 8 << 20


class Ranged(Protocol):
    """Part of an object store that reading piece by piece needs."""

    def get_range(self, key: str, start: int, length_bytes: int) -> bytes: ...


def read_manifest(objects: ObjectStore, project: str, sha256: str) -> Manifest:
    """The manifest of a version that was published in the project. Raises DamagedShardError where it is missing, or another."""
    return read_manifest_at(objects, manifest_key(project, sha256), sha256)


def read_manifest_at(objects: ObjectStore, key: str, sha256: str) -> Manifest:
    """The manifest under a key, which has this hash. Raises DamagedShardError where it is missing, another, or too large."""
    where, stat = objects.uri(key), objects.stat(key)
    if stat is not None and stat.size_bytes > MOST_MANIFEST_BYTES:
        raise DamagedShardError(f"{where} has {stat.size_bytes} bytes, and a manifest {MOST_MANIFEST_BYTES} at most; publish larger shards")
    content = _fetched(objects, key)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DamagedShardError(f"{where} has other contents than its name says; remove it, and publish the version again from its source")
    try:
        return Manifest.model_validate(orjson.loads(content))
    except ValueError as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise DamagedShardError(f"{where} is of another version of this program: {reason}") from error


def read_profiled(objects: ObjectStore, project: str, sha256: str) -> ProfiledVersion:
    """A version's manifest, with its profiles where it has them. Raises DamagedShardError."""
    manifest = read_manifest(objects, project, sha256)
    return ProfiledVersion(manifest, _profiles(objects, profiles_key(project, sha256), manifest))


def _profiles(objects: ObjectStore, key: str, manifest: Manifest) -> VersionProfiles | None:
    stat = objects.stat(key)
    if stat is None:
        return None
    try:
        if stat.size_bytes > MOST_PROFILES_BYTES:
            raise ValueError(f"{stat.size_bytes} bytes, more than {MOST_PROFILES_BYTES}")
        found = VersionProfiles.model_validate(orjson.loads(_fetched(objects, key)))
        for name, fields in found.splits.items():
            if name not in manifest.splits or any(each.samples > manifest.splits[name].samples for each in fields.values()):
                raise ValueError(f"of another version: split {name} has other samples")
        return found
    except ValueError as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise DamagedShardError(f"{objects.uri(key)} has no profiles ({reason}); remove it, and publish the version again") from error


def shards_of(manifest: Manifest) -> Iterator[tuple[str, DataShard]]:
    """Each shard with its split; one that several splits have comes for each."""
    for split, content in sorted(manifest.splits.items()):
        for shard in content.shards:
            yield split, shard


def objects_of(project: str, shard: DataShard) -> dict[str, str]:
    """Hash of each object of a shard by its key: of the tar, and of the index. The last part of a key is the name of such a file."""
    return {shard_key(project, shard.sha256): shard.sha256, index_key(project, shard.sha256): shard.index_sha256}


def problems_of(objects: ObjectStore, project: str, shard: DataShard) -> list[str]:
    """Returns the faults of a shard and its index in the store; reads all of both, piece by piece."""
    problems = []
    for key, wanted in objects_of(project, shard).items():
        stat, size = objects.stat(key), shard.bytes if wanted == shard.sha256 else None
        if stat is None:
            problems.append(f"{objects.uri(key)} is missing")
        elif size is not None and stat.size_bytes != size:
            problems.append(f"{objects.uri(key)} has {stat.size_bytes} bytes, not {size}")
        elif sha256_of(objects, key, stat.size_bytes) != wanted:
            problems.append(f"{objects.uri(key)} has other contents than its hash says")
    return problems


def _fetched(objects: ObjectStore, key: str) -> bytes:
    try:
        return objects.get(key)
    except ObjectMissingError as error:
        raise DamagedShardError(f"{objects.uri(key)} is missing; publish the version again from its source") from error


def pieces_of(objects: Ranged, key: str, size_bytes: int) -> Iterator[bytes]:
    """The content of an object, piece by piece."""
    for start in range(0, size_bytes, _PIECE_BYTES):
        yield objects.get_range(key, start, min(_PIECE_BYTES, size_bytes - start))


def sha256_of(objects: Ranged, key: str, size_bytes: int) -> str:
    """Hash of an object, in hexadecimal, read piece by piece."""
    digest = hashlib.sha256()
    for piece in pieces_of(objects, key, size_bytes):
        digest.update(piece)
    return digest.hexdigest()
