"""Sealing of an attempt's outputs: shards and manifests go from the job's own prefix to where the project's datasets are.

Holds: every object that is copied has the contents that its name says; a manifest is written when all that it names is there. Done twice,
or broken off and begun anew, the same pieces give the same objects. What is written is no version until intake publishes it.
Never: reads a record of another attempt's ranks, or of another job.
"""

import hashlib
from collections.abc import Callable, Sequence

import orjson
from pydantic import ValidationError

from trainhouse.checkpointing.chain.chunks import GRACE_S
from trainhouse.checkpointing.errors import ObjectMissingError
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.dataset import DatasetVersion, DataShard, version_of
from trainhouse.events.model.dataset_names import index_key, manifest_key, shard_key
from trainhouse.events.model.output_names import (
    ENDED,
    OUTPUTS,
    ended_key,
    ended_prefix,
    pieces_prefix,
    rank_pieces_prefix,
    staged_index_key,
    staged_shard_key,
)
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.outputs.pieces import Piece, manifest_of
from trainhouse.workers.data.stored_versions import shards_of

MOST_RECORD_BYTES = 64 << 20


def note_ended(objects: ObjectStore, job_id: str, epoch: int, node_id: str) -> None:
    """Notes that all ranks of an attempt on a node exited with code 0. Blocks."""
    objects.put(ended_key(job_id, epoch, node_id), b"")


def all_ended(objects: ObjectStore, job_id: str, epoch: int, node_ids: Sequence[str]) -> bool:
    """Whether that was noted for each of these nodes. Blocks."""
    prefix = ended_prefix(job_id, epoch)
    return set(node_ids) <= {stat.key.removeprefix(prefix) for stat in objects.list(prefix)}


def seal(objects: ObjectStore, job_id: str, project: str, output: str, epoch: int) -> DatasetVersion:
    """Makes the version of one output, and returns its facts. Blocks long. Raises InvalidDataError where it is not whole, and what the
    store raises."""
    named = {
        key.removeprefix(pieces_prefix(job_id, output)).removesuffix(".json"): piece
        for key, piece in _records(objects, pieces_prefix(job_id, output))
    }
    of_ranks = {
        int(key[-len("000000.json") : -len(".json")]): piece for key, piece in _records(objects, rank_pieces_prefix(job_id, output, epoch))
    }
    manifest = manifest_of(job_id, output, named, of_ranks)
    for shard in {shard.sha256: shard for _, shard in shards_of(manifest)}.values():
        _copy(objects, job_id, project, output, shard)
    _put_once(objects, manifest_key(project, manifest.sha256()), manifest.canonical_json())
    return version_of(manifest, output, project)


def sweep_staged(objects: ObjectStore, is_over: Callable[[str], bool], grace_s: float = GRACE_S) -> int:
    """Removes what jobs staged, published or not, of those that are over and whose newest object there is older than `grace_s`.

    Returns how many objects. `is_over` is asked for each such job. Blocks long.
    """
    keys, young = dict[str, list[str]](), set[str]()
    for stat in objects.list("jobs/"):
        parts = stat.key.split("/")
        if parts[2:3] in ([OUTPUTS], [ENDED]):
            keys.setdefault(parts[1], []).append(stat.key)
            if stat.age_s <= grace_s:
                young.add(parts[1])
    old = [key for job_id, found in keys.items() if job_id not in young and is_over(job_id) for key in found]
    for key in old:
        objects.delete(key)
    return len(old)


def _records(objects: ObjectStore, prefix: str) -> list[tuple[str, Piece]]:
    found = []
    for stat in objects.list(prefix):
        if stat.size_bytes > MOST_RECORD_BYTES:
            raise InvalidDataError(
                f"{objects.uri(stat.key)} has {stat.size_bytes} bytes, more than {MOST_RECORD_BYTES}; write larger shards"
            )
        try:
            found.append((stat.key, Piece.model_validate(orjson.loads(objects.get(stat.key)))))
        except (ValidationError, orjson.JSONDecodeError) as error:
            raise InvalidDataError(f"{objects.uri(stat.key)} is no record of a piece: write outputs by session.output alone") from error
    return found


def _copy(objects: ObjectStore, job_id: str, project: str, output: str, shard: DataShard) -> None:
    """Copies a shard and its index, the index first; what is there already is not read."""
    for staged, key, sha256, size_bytes in (
        (staged_index_key(job_id, output, shard.sha256), index_key(project, shard.sha256), shard.index_sha256, None),
        (staged_shard_key(job_id, output, shard.sha256), shard_key(project, shard.sha256), shard.sha256, shard.bytes),
    ):
        stat = objects.stat(key)
        if stat is not None and size_bytes in (None, stat.size_bytes):
            continue
        try:
            body = objects.get(staged)
        except ObjectMissingError as error:
            raise InvalidDataError(f"{objects.uri(staged)} is missing, and a piece of output {output} names it") from error
        if hashlib.sha256(body).hexdigest() != sha256:
            raise InvalidDataError(f"{objects.uri(staged)} has other contents than a piece of output {output} says")
        objects.put(key, body)


def _put_once(objects: ObjectStore, key: str, body: bytes) -> None:
    if objects.stat(key) is None:
        objects.put(key, body)
