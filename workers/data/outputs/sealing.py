"""Sealing of an attempt's outputs: shards and manifests go from the job's own prefix to where the project's datasets are.

Holds: every object that is copied has the contents that its name says; a manifest is written when all that it names is there. Done twice,
or broken off and begun anew, the same pieces give the same objects. What is written is no version until intake publishes it.
Of what ranks staged, sizes and numbers are bounded before it is read.
Never: reads a record of another attempt's ranks, or of another job.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO, Final, Protocol

from pydantic import ValidationError

from trainhouse.checkpointing.chain.chunks import GRACE_S
from trainhouse.checkpointing.stores.object_store import ObjectStat, ObjectStore
from trainhouse.events.model.artifact import OF_DATASET
from trainhouse.events.model.artifact_keys import manifest_key as artifact_manifest_key
from trainhouse.events.model.artifact_keys import reference_key
from trainhouse.events.model.dataset import DatasetVersion, DataShard, Manifest, NamedArtifact, schema_bytes, version_of
from trainhouse.events.model.dataset_keys import index_key, manifest_key, profiles_key, shard_key
from trainhouse.events.model.output_names import (
    ENDED,
    OUTPUTS,
    ended_key,
    ended_prefix,
    pieces_prefix,
    rank_pieces_prefix,
)
from trainhouse.events.model.spec import JobSpec
from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError
from trainhouse.workers.data.outputs.piece_profiles import merged_profiles
from trainhouse.workers.data.outputs.pieces import Piece, manifest_of, parsed_piece
from trainhouse.workers.data.outputs.written_once import warn_of_torn, without_turn
from trainhouse.workers.data.stored_versions import MOST_MANIFEST_BYTES, read_manifest, sha256_of, shards_of

MOST_PIECES: Final = 100_000
MOST_RECORDS_BYTES: Final = 32 << 20
"""Of all records of an output together, which are held in memory."""
MOST_OUTPUT_SHARDS: Final = 100_000
MOST_FIELDS_BYTES: Final = 256 << 10
"""Of fields of all outputs of a job in one event: topics take events of 1 MiB."""


class FileStore(ObjectStore, Protocol):
    """An object store that also takes what an open file holds."""

    def put_file(self, key: str, file: IO[bytes]) -> None:
        """Stores what an open file holds, from its beginning. Blocks; memory stays bounded."""
        ...


def note_ended(objects: ObjectStore, job_id: str, epoch: int, node_id: str) -> None:
    """Notes that all ranks of an attempt on a node exited with code 0. Blocks."""
    objects.put(ended_key(job_id, epoch, node_id), b"")


def all_ended(objects: ObjectStore, job_id: str, epoch: int, node_ids: Sequence[str]) -> bool:
    """Whether that was noted for each of these nodes. Blocks."""
    prefix = ended_prefix(job_id, epoch)
    return set(node_ids) <= {stat.key.removeprefix(prefix) for stat in objects.list(prefix)}


def seal(
    objects: FileStore,
    job_id: str,
    project: str,
    output: str,
    epoch: int,
    *,
    purposes: tuple[str, ...] = (),
    folder: Path | None = None,
    copied: set[DataShard] | None = None,
) -> DatasetVersion:
    """Makes the version of one output, and returns its facts. Blocks long. Raises InvalidDataError where it is not whole, or exceeds a
    bound, and what the store raises.

    `purposes`: those of the version. `folder`: has room for a shard; by default that of temporary files. `copied`: shards of this output
    that an earlier try copied; those of this one are added.
    """
    manifest, version, pieces = _described(objects, job_id, project, output, epoch, purposes)
    done = set() if copied is None else copied
    for shard in dict.fromkeys(shard for _, shard in shards_of(manifest)):
        if shard not in done:
            _copy(objects, job_id, project, output, shard, folder)
            done.add(shard)
    for named in manifest.artifacts:
        _keep_artifact(objects, project, output, named, version.sha256)
    hashes = (piece.profiles for piece in pieces if piece.samples)
    if (profiles := merged_profiles(objects, job_id, output, hashes, manifest)) is not None:
        # Anew, though the same may be there: until the manifest is, nothing names it, and a sweep takes it by its age.
        objects.put(profiles_key(project, version.sha256), profiles.canonical_json())
    _put_once(objects, manifest_key(project, version.sha256), manifest.canonical_json())
    return version


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


def purposes_of(objects: ObjectStore, spec: JobSpec) -> tuple[str, ...]:
    """Purposes of a job's outputs: those of the version that it reads; of another project's, the granted purpose alone. Blocks.

    Raises InvalidDataError where that version's manifest is not there, and what the store raises.
    """
    data = spec.data
    if data is None or data.dataset is None:
        return ()
    purpose = data.purpose or spec.purpose
    if data.owner is not None and data.owner != spec.project and purpose is not None:
        return (purpose,)
    try:
        return read_manifest(objects, data.owner or spec.project, data.content_sha256).purposes
    except DamagedShardError as error:
        raise InvalidDataError(f"what the outputs may be used for follows from {data.dataset}: {error}") from error


def with_bounded_fields(versions: Iterable[DatasetVersion], most_bytes: int = MOST_FIELDS_BYTES) -> tuple[DatasetVersion, ...]:
    """The versions, with their fields as long as all of them take at most so many bytes as JSON; manifests have them anyway. Pure."""
    made, left_bytes = list[DatasetVersion](), most_bytes
    for version in versions:
        size = schema_bytes(version.fields)
        if size > left_bytes:
            version, size = version.model_copy(update={"fields": ()}), 0
        made.append(version)
        left_bytes -= size
    return tuple(made)


def _described(
    objects: ObjectStore, job_id: str, project: str, output: str, epoch: int, purposes: tuple[str, ...]
) -> tuple[Manifest, DatasetVersion, list[Piece]]:
    """The manifest of what ranks recorded, with its facts and the pieces. All that they wrote is theirs: whatever cannot be
    taken is InvalidDataError."""
    records = _Records(objects, output)
    named_prefix, ranks_prefix = pieces_prefix(job_id, output), rank_pieces_prefix(job_id, output, epoch)
    named = {key.removeprefix(named_prefix).removesuffix(".json"): piece for key, piece in records.first_whole(named_prefix).items()}
    of_ranks = dict[int, Piece]()
    for key, piece in records.below(ranks_prefix):
        if re.fullmatch(r"[0-9]{6}\.json", key.removeprefix(ranks_prefix)) is None:
            raise InvalidDataError(f"{objects.uri(key)} is named after no rank: write outputs by session.output alone")
        of_ranks[int(key.removeprefix(ranks_prefix).removesuffix(".json"))] = piece
    try:
        manifest = manifest_of(job_id, output, named, of_ranks, purposes)
        size = len(manifest.canonical_json())
        version = version_of(manifest, output, project)
    except ValueError as error:
        why = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
        what = ".".join(map(str, why["loc"]))
        raise InvalidDataError(
            f"the pieces of output {output} make no version ({f'{what}: ' if what else ''}{why['msg']}): write outputs by "
            "session.output alone"
        ) from error
    if size > MOST_MANIFEST_BYTES:
        raise InvalidDataError(
            f"the manifest of output {output} would have {size} bytes, and may have {MOST_MANIFEST_BYTES}; write larger shards"
        )
    return manifest, version, [*named.values(), *of_ranks.values()]


class _TornError(InvalidDataError):
    """A record that cannot be read."""


class _Records:
    """Records of the pieces of one output, named ones and ranks' together within the bounds."""

    def __init__(self, objects: ObjectStore, output: str) -> None:
        self._objects, self._output = objects, output
        self._count = self._size_bytes = self._shards = 0

    def below(self, prefix: str) -> Iterator[tuple[str, Piece]]:
        """Each record there, by its key. Blocks. Raises InvalidDataError."""
        yield from ((stat.key, self._read(stat.key, stat.size_bytes)) for stat in self._listed(prefix))

    def first_whole(self, prefix: str) -> dict[str, Piece]:
        """Each record that is written once, by its first key. Blocks. Raises InvalidDataError, also where all those of a piece are torn."""
        found, torn = dict[str, Piece](), dict[str, InvalidDataError]()
        for stat in self._listed(prefix):
            key = without_turn(stat.key)
            if key in found:
                continue
            try:
                found[key] = self._read(stat.key, stat.size_bytes)
            except _TornError as error:
                warn_of_torn(self._objects, stat.key, "it is no record of a piece")
                torn[key] = error
        for key in sorted(torn.keys() - found.keys()):
            raise torn[key]
        return found

    def _listed(self, prefix: str) -> Iterator[ObjectStat]:
        for stat in self._objects.list(prefix):
            self._count += 1
            self._size_bytes += stat.size_bytes
            if self._count > MOST_PIECES:
                raise InvalidDataError(f"output {self._output} has more than {MOST_PIECES} pieces; write fewer, larger ones")
            if self._size_bytes > MOST_RECORDS_BYTES:
                raise InvalidDataError(
                    f"the records of the pieces of output {self._output} have more than {MOST_RECORDS_BYTES} bytes together; write larger "
                    "shards, or fewer, larger pieces"
                )
            yield stat

    def _read(self, key: str, size_bytes: int) -> Piece:
        # As many bytes as the list said: it may have been written anew since.
        content = self._objects.get_range(key, 0, size_bytes)
        try:
            piece = parsed_piece(content)
        except ValueError as error:
            raise _TornError(f"{self._objects.uri(key)} is no record of a piece: write outputs by session.output alone") from error
        self._shards += sum(len(split.shards) for split in piece.splits.values())
        if self._shards > MOST_OUTPUT_SHARDS:
            raise InvalidDataError(f"output {self._output} has more than {MOST_OUTPUT_SHARDS} shards; write larger ones")
        return piece


def _copy(objects: FileStore, job_id: str, project: str, output: str, shard: DataShard, folder: Path | None) -> None:
    """Copies a shard and its index, the index first, once both are judged whole."""
    from trainhouse.workers.data.outputs.staged_shard import staged  # NumPy, which an agent has no other use for

    with staged(objects, job_id, output, shard, folder) as (index, tar):
        _put_other(objects, index_key(project, shard.sha256), index, shard.index_sha256)
        stat = objects.stat(shard_key(project, shard.sha256))
        if stat is None or stat.size_bytes != shard.bytes:
            objects.put_file(shard_key(project, shard.sha256), tar)


def _put_other(objects: FileStore, key: str, file: BinaryIO, sha256: str) -> None:
    """Puts an index where there is none with these contents: of a tar there is one index, and what is there otherwise is damaged."""
    stat = objects.stat(key)
    if stat is None or stat.size_bytes != file.seek(0, 2) or sha256_of(objects, key, stat.size_bytes) != sha256:
        objects.put_file(key, file)


def _keep_artifact(objects: ObjectStore, project: str, output: str, named: NamedArtifact, sha256: str) -> None:
    """Notes that the version names an artifact, so that a sweep leaves it. Raises InvalidDataError where there is none."""

    def needs_it() -> None:
        if objects.stat(artifact_manifest_key(project, named.sha256)) is None:
            raise InvalidDataError(
                f"output {output} was made with {named.name} sha256:{named.sha256}, which project {project} does not have"
            )

    needs_it()
    objects.put(reference_key(project, named.sha256, f"{OF_DATASET}{sha256}"), b"")
    needs_it()  # again: a sweep that did not see the reference may have taken it


def _put_once(objects: ObjectStore, key: str, body: bytes) -> None:
    stat = objects.stat(key)
    if stat is None or stat.size_bytes != len(body):
        objects.put(key, body)
