"""A shard as a rank staged it: fetched to files of this machine piece by piece, and judged there before anything of it is copied.

Holds: memory is bounded, whatever a rank staged: sizes are asked before contents. Of a shard that is judged whole, the index is the one
that follows from its tar, so that two jobs with equal tars have equal indexes.
Never: reads an object that is larger than its bound.
"""

import hashlib
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from trainhouse.checkpointing.errors import ObjectMissingError
from trainhouse.checkpointing.stores.object_store import ObjectStat, ObjectStore
from trainhouse.events.model.dataset import DataShard
from trainhouse.events.model.output_names import staged_index_key, staged_shard_key
from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError
from trainhouse.workers.data.shards import ShardIndex, members
from trainhouse.workers.data.shards.index import HASH_BYTES, IndexBuilder, Located
from trainhouse.workers.data.stored_versions import pieces_of

MOST_SHARD_BYTES: Final = 4 << 30
MOST_INDEX_BYTES: Final = 64 << 20
_PIECE_BYTES: Final = 1 << 20


@contextmanager
def staged(objects: ObjectStore, job_id: str, output: str, shard: DataShard, folder: Path | None) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Index and tar of a shard, whole, as open files without a name in `folder`. Blocks long. Raises InvalidDataError, and what the store
    raises."""
    index_key, tar_key = staged_index_key(job_id, output, shard.sha256), staged_shard_key(job_id, output, shard.sha256)
    index_size = _found(objects, index_key, output).size_bytes
    if index_size > MOST_INDEX_BYTES:
        raise InvalidDataError(
            f"{objects.uri(index_key)} has {index_size} bytes, and an index {MOST_INDEX_BYTES} at most; cut smaller shards"
        )
    tar_size = _found(objects, tar_key, output).size_bytes
    if tar_size > MOST_SHARD_BYTES:
        raise InvalidDataError(f"{objects.uri(tar_key)} has {tar_size} bytes, and a shard {MOST_SHARD_BYTES} at most; cut smaller ones")
    if tar_size != shard.bytes:
        raise InvalidDataError(f"{objects.uri(tar_key)} has {tar_size} bytes, and a piece of output {output} says {shard.bytes}")
    with ExitStack() as opened:
        index = opened.enter_context(tempfile.TemporaryFile(dir=folder))
        _fetch(objects, index_key, index_size, shard.index_sha256, index, output)
        tar = opened.enter_context(tempfile.TemporaryFile(dir=folder))
        _fetch(objects, tar_key, tar_size, shard.sha256, tar, output)
        try:
            check_index(index, tar, shard, objects.uri(index_key))
        except DamagedShardError as error:
            raise InvalidDataError(str(error)) from error
        yield index, tar


def check_index(index: BinaryIO, tar: BinaryIO, shard: DataShard, name: str) -> None:
    """Compares an index with the one that follows from the tar, header by header. Raises DamagedShardError."""
    index.seek(0)
    content = index.read()
    given = ShardIndex(content, name)
    given.check(shard.sha256, shard.bytes, shard.samples)
    built, keys = IndexBuilder(), set[str]()
    tar.seek(0)
    try:
        for position in range(len(given)):
            located = given.locate(position)
            if located.key in keys:
                raise _other(name, f"sample {located.key[:80]!r} comes twice")
            keys.add(located.key)
            built.add(_sample(tar, located, name))
        if tar.read(len(members.END) + 1) != members.END:
            raise _other(name, "its last sample is not the tar's")
        same = built.content(shard.sha256, shard.bytes) == content
    except (InvalidDataError, IndexError, ValueError, OverflowError) as error:
        raise _other(name, str(error)) from error
    if not same:
        raise _other(name, "it is written in another form")


def _sample(tar: BinaryIO, located: Located, name: str) -> Located:
    """The sample that begins where the tar is read now, with its hash and checksum."""
    names = [field.extension for field in located.fields]
    if names != sorted(set(names)):
        raise _other(name, f"fields of sample {located.key[:80]!r} are not in order")
    digest, crc32 = hashlib.sha256(), 0
    for number, field in enumerate(located.fields):
        head = members.header(members.member_name(located.key, field.extension), field.length_bytes)
        if tar.read(len(head)) != head or tar.tell() != field.offset:
            raise _other(name, f"the tar has no member {located.key[:80]}.{field.extension[:80]} of {field.length_bytes} bytes there")
        if number:
            digest.update(head)
            crc32 = zlib.crc32(head, crc32)
        for part in _parts(tar, field.length_bytes):
            digest.update(part)
            crc32 = zlib.crc32(part, crc32)
        padding = members.padding(field.length_bytes)
        if tar.read(len(padding)) != padding:
            raise _other(name, f"the tar goes on within sample {located.key[:80]!r}")
        if number < len(located.fields) - 1:
            digest.update(padding)
            crc32 = zlib.crc32(padding, crc32)
    return Located(located.key, located.fields, digest.digest()[:HASH_BYTES], crc32)


def _parts(tar: BinaryIO, length_bytes: int) -> Iterator[bytes]:
    while length_bytes:
        part = tar.read(min(_PIECE_BYTES, length_bytes))
        if not part:
            return
        length_bytes -= len(part)
        yield part


def _other(name: str, how: str) -> DamagedShardError:
    return DamagedShardError(f"{name} is not the index of its tar ({how}); write outputs by session.output alone")


def _found(objects: ObjectStore, key: str, output: str) -> ObjectStat:
    stat = objects.stat(key)
    if stat is None:
        raise _missing(objects, key, output)
    return stat


def _fetch(objects: ObjectStore, key: str, size_bytes: int, sha256: str, file: BinaryIO, output: str) -> None:
    digest = hashlib.sha256()
    try:
        for piece in pieces_of(objects, key, size_bytes):
            digest.update(piece)
            file.write(piece)
    except ObjectMissingError as error:
        raise _missing(objects, key, output) from error
    file.flush()
    if digest.hexdigest() != sha256:
        raise InvalidDataError(f"{objects.uri(key)} has other contents than a piece of output {output} says")


def _missing(objects: ObjectStore, key: str, output: str) -> InvalidDataError:
    return InvalidDataError(f"{objects.uri(key)} is missing, and a piece of output {output} names it")
