"""Export of a published version into a local folder: its shards as they are, which WebDataset reads, or files of Parquet or MDS.

Holds: a file has its name once it is whole; each shard's bytes have the hash that the manifest gives; a folder has files of one version
alone; one shard is on disk beside the output, and one group of rows in memory.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import orjson

from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.dataset import DataShard, Manifest
from trainhouse.events.model.dataset_keys import shard_key
from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError
from trainhouse.workers.data.mds_columns import encoded_sample, mds_columns
from trainhouse.workers.data.mds_format import INDEX, index_json, write_shard
from trainhouse.workers.data.publishing.sample_fields import JSON
from trainhouse.workers.data.shard_sources import FolderSource
from trainhouse.workers.data.sharded_dataset import KEY
from trainhouse.workers.data.shards import Sample, Shard, read_sample
from trainhouse.workers.data.stored_versions import objects_of, pieces_of

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_ROWS: Final = 4096
_GROUP_BYTES: Final = 64 << 20
_COLUMNS: Final = f"{JSON}."
_AS_WDS: Final = "export it as wds"
_VERSION_FILE: Final = ".trainhouse-version"
"""Has the hash of the manifest whose files a folder has; its dot hides it from readers of the folder."""
_SHARD_FOLDER: Final = ".trainhouse-shard"
_OUTPUTS: Final = tuple(f"{depth}*.{ending}*" for depth in ("", "*/") for ending in ("tar", "parquet", "mds"))

Progress = Callable[[int, int], None]
"""Is called with shards that are done, and all shards."""


def export_wds(objects: ObjectStore, project: str, manifest: Manifest, folder: Path, progress: Progress) -> list[Path]:
    """Each shard as `SPLIT/SPLIT-000000.tar`; a file that is there and whole is not fetched again. Raises DamagedShardError, and
    InvalidDataError for a folder with other files."""
    _claim(folder, manifest)
    files = []
    for split, number, shard in _numbered(manifest):
        path = _file(folder, split, number, "tar")
        if not (path.exists() and path.stat().st_size == shard.bytes and _file_sha256(path) == shard.sha256):
            _fetch(objects, shard_key(project, shard.sha256), shard.sha256, path)
        files.append(path)
        progress(len(files), _count(manifest))
    return files


def export_parquet(objects: ObjectStore, project: str, manifest: Manifest, folder: Path, progress: Progress) -> list[Path]:
    """Each shard as `SPLIT/SPLIT-000000.parquet`: a column for each key, field and column of `json`. Raises DamagedShardError, and
    InvalidDataError for samples that do not fit into such columns and a folder with other files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, files = _schema(manifest), list[Path]()
    _claim(folder, manifest)
    for split, number, shard in _numbered(manifest):
        path = _file(folder, split, number, "parquet")
        with (
            _whole(path) as part,
            _temporary(folder / _SHARD_FOLDER) as beside,
            pq.ParquetWriter(part, schema, compression="zstd") as writer,
        ):
            for rows in _groups(_samples(objects, project, shard, beside)):
                writer.write_table(pa.Table.from_pylist([_row(sample, schema) for sample in rows], schema=schema))
        files.append(path)
        progress(len(files), _count(manifest))
    return files


def export_mds(objects: ObjectStore, project: str, manifest: Manifest, folder: Path, progress: Progress) -> list[Path]:
    """Each shard as `SPLIT/shard.00000.mds`, and an index.json for each split, as MosaicML Streaming has them: a column for the key, each
    field and each column of `json`. Raises DamagedShardError, and InvalidDataError for samples that do not fit into such columns and a
    folder with other files."""
    columns, files = mds_columns(manifest), list[Path]()
    _claim(folder, manifest)
    entries = dict[Path, list[dict[str, Any]]]()
    for split, number, shard in _numbered(manifest):
        path = _split_folder(folder, split) / f"shard.{number:05d}.mds"
        with _whole(path) as part, _temporary(folder / _SHARD_FOLDER) as beside, (beside / "spool").open("w+b") as spool:
            samples = (encoded_sample(sample, columns) for sample in _samples(objects, project, shard, beside))
            entries.setdefault(path.parent, []).append(write_shard(part, path.name, columns, samples, spool))
        files.append(path)
        progress(len(files), _count(manifest))
    for inside, shards in entries.items():  # last: a reader begins with it
        with _whole(inside / INDEX) as part:
            part.write_bytes(index_json(shards))
    return [*files, *(inside / INDEX for inside in entries)]


def _numbered(manifest: Manifest) -> Iterator[tuple[str, int, DataShard]]:
    for split, content in sorted(manifest.splits.items()):
        for number, shard in enumerate(content.shards):
            yield split, number, shard


def _count(manifest: Manifest) -> int:
    return sum(len(split.shards) for split in manifest.splits.values())


def _claim(folder: Path, manifest: Manifest) -> None:
    """Marks the folder as one of this version. Raises InvalidDataError where it has files of another one, or of no export."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / _SHARD_FOLDER, ignore_errors=True)  # a killed export left it
    mark, sha256 = folder / _VERSION_FILE, manifest.sha256().encode()
    if mark.exists() and mark.read_bytes() == sha256:
        return
    if other := min((path for pattern in _OUTPUTS for path in folder.glob(pattern)), default=None):
        raise InvalidDataError(f"{folder} has {other.relative_to(folder)}, of another version or no export; give an empty folder")
    with _whole(mark) as part:
        part.write_bytes(sha256)


def _file(folder: Path, split: str, number: int, ending: str) -> Path:
    return _split_folder(folder, split) / f"{split}-{number:06d}.{ending}"


def _split_folder(folder: Path, split: str) -> Path:
    # No split is a part of a path: a name may be two dots.
    inside = folder / f"{split}_" if not split.strip(".") else folder / split
    inside.mkdir(parents=True, exist_ok=True)
    return inside


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A file beside the one that it becomes, unless something is raised."""
    part = path.with_name(path.name + ".part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """A folder for the time of the block."""
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fetch(objects: ObjectStore, key: str, sha256: str, path: Path) -> None:
    """Writes an object into a file. Raises DamagedShardError."""
    digest, stat = hashlib.sha256(), objects.stat(key)
    if stat is None:
        raise DamagedShardError(f"{objects.uri(key)} is missing; publish the version again from its source")
    with _whole(path) as part:
        with part.open("wb") as file:
            for piece in pieces_of(objects, key, stat.size_bytes):
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != sha256:
            raise DamagedShardError(
                f"{objects.uri(key)} has other contents than its hash says; remove it, and publish the version again from its source"
            )


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _samples(objects: ObjectStore, project: str, shard: DataShard, beside: Path) -> Iterator[Sample]:
    """The samples of a shard, which lies in the folder `beside` meanwhile."""
    known = Shard.of(shard)
    for key, sha256 in objects_of(project, shard).items():
        _fetch(objects, key, sha256, beside / PurePosixPath(key).name)
    source = FolderSource(beside)
    index, content = source.index(known), source.content(known)
    for position in range(len(index)):
        yield read_sample(content, index.locate(position))


def _groups(samples: Iterator[Sample]) -> Iterator[list[Sample]]:
    group, size = list[Sample](), 0
    for sample in samples:
        group.append(sample)
        size += sum(map(len, sample.fields.values()))
        if len(group) >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _schema(manifest: Manifest) -> "pa.Schema":
    """Columns of the whole version: the key, members as bytes, and columns of `json` with the types that the manifest names; of lists,
    objects and several types, their JSON as text. Raises InvalidDataError."""
    import pyarrow as pa

    types = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "float|int": pa.float64()}
    columns = [pa.field(KEY, pa.string(), nullable=False)]
    of_json = any(field.name.startswith(_COLUMNS) for field in manifest.fields)
    for field in manifest.fields:
        if field.name.startswith(_COLUMNS):
            columns.append(pa.field(field.name.removeprefix(_COLUMNS), types.get(field.type, pa.string()), metadata={"json": field.type}))
        elif field.name != JSON or not of_json:
            columns.append(pa.field(field.name, pa.binary()))
    names = [column.name for column in columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidDataError(
            f"{twice[0]!r} would be two columns: of key, fields and columns of json, each needs a name of its own; {_AS_WDS}"
        )
    return pa.schema(columns)


def _row(sample: Sample, schema: "pa.Schema") -> dict[str, Any]:
    row: dict[str, Any] = {KEY: sample.key}
    for name, content in sample.fields.items():
        if name in schema.names and schema.field(name).metadata is None:
            row[name] = content
            continue
        values = orjson.loads(content)
        if not isinstance(values, dict):
            raise InvalidDataError(f"sample {sample.key!r}: its json is no object with columns; {_AS_WDS}")
        row |= {column: _value(sample.key, column, value, schema) for column, value in values.items() if value is not None}
    return row


def _value(key: str, column: str, value: Any, schema: "pa.Schema") -> Any:
    import pyarrow as pa

    kind = schema.field(column).type
    if pa.types.is_string(kind):
        if isinstance(value, str) and schema.field(column).metadata[b"json"] == b"text":
            return value
        try:
            return orjson.dumps(value).decode()
        except orjson.JSONEncodeError as error:  # it reads more levels than it writes
            raise InvalidDataError(f"sample {key!r}: {column!r} has more levels than can be written as JSON; {_AS_WDS}") from error
    if pa.types.is_int64(kind) and not -(2**63) <= value < 2**63:
        raise InvalidDataError(f"sample {key!r}: {column!r} is {value}, more than 64 bits with a sign hold; {_AS_WDS}")
    if pa.types.is_float64(kind) and float(value) != value:
        raise InvalidDataError(f"sample {key!r}: {column!r} is {value}, which a column of floats would change; {_AS_WDS}")
    return float(value) if pa.types.is_float64(kind) else value
