"""Samples of a folder of MDS shards, as MosaicML Streaming writes them: columns of bytes and pictures are fields, all others are in `json`.

Holds: a shard is read forward, one sample in memory at a time beside 4 bytes for each of its samples, and has the size and hashes that its
index gives, or is refused. An index is checked by its types before anything of it is used. Never: unpickles.
"""

import bz2
import gzip
import hashlib
import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import IO, Annotated, Any, Final

import numpy as np
import orjson
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.mds_format import FIXED_BYTES, INDEX, VERSION, MdsColumn
from trainhouse.workers.data.publishing.bounded_files import MOST_UNPACKED_RATIO, SURELY_UNPACKED_BYTES, SourceFile
from trainhouse.workers.data.publishing.sample_fields import JSON, Fields, canonical, key_and_extension, small_enough
from trainhouse.workers.data.publishing.seen_keys import SeenKeys

KEY: Final = "__key__"
MOST_INDEX_BYTES: Final = 256 << 20
MOST_SAMPLES: Final = 1 << 24
"""Of one shard: where each begins is in memory."""
_PIECE_BYTES: Final = 1 << 20
_NUMBERS: Final = {"int": "int64"}
_PICTURES: Final = {"jpeg": ("jpg", "jpeg"), "png": ("png",)}
"""Encodings of pictures as files, with the endings of fields that have them."""
_OF_BYTES: Final = frozenset({"bytes", *_PICTURES})
_TEXTS: Final[dict[str, Callable[[bytes], Any]]] = {
    "str": lambda value: value.decode(),
    "str_int": lambda value: int(value),
    "str_float": lambda value: float(value),
    "str_decimal": lambda value: value.decode(),
    "json": orjson.loads,
}


_Count = Annotated[int, Field(ge=0, lt=1 << 53)]


class _FileEntry(BaseModel):
    """A file that an index names."""

    model_config = ConfigDict(strict=True)
    basename: str
    bytes: _Count
    hashes: dict[str, str] = {}


class _Entry(BaseModel):
    """A shard in an index, as far as it is used."""

    model_config = ConfigDict(strict=True)
    format: str
    version: int
    samples: _Count
    column_names: list[str]
    column_encodings: list[str]
    column_sizes: list[_Count | None]
    compression: str | None = None
    raw_data: _FileEntry
    zip_data: _FileEntry | None = None


@dataclass(frozen=True)
class _Shard:
    file: SourceFile
    columns: tuple[MdsColumn, ...]
    samples: int
    raw_bytes: int
    hashes: Mapping[str, str]
    compression: str

    @property
    def where(self) -> str:
        return self.file.where


def mds_samples(files: list[SourceFile]) -> Iterator[tuple[str, Fields]]:
    """Each sample's key and fields; below the folder of its index, where there are several. Raises InvalidDataError."""
    by_name = {file.name: file for file in files}
    indexes = [INDEX] if INDEX in by_name else [name for name in by_name if name.endswith(f"/{INDEX}")]
    parts = {name: _shards_of(by_name, name) for name in indexes}
    named = {shard.file.name for shards in parts.values() for shard in shards}
    for file in files:
        if file.name not in named and file.name.rpartition("/")[2] != INDEX:
            raise InvalidDataError(f"{file.where}: no {INDEX} names it; remove it, or write the index again")
    for name, shards in parts.items():
        folder = name.removesuffix(INDEX) if len(parts) > 1 else ""
        seen, number = SeenKeys(), 0
        for shard in shards:
            for key, fields in _samples(shard):
                if key:
                    seen.add(key)
                yield folder + (key or f"{number:012d}"), fields
                number += 1
        if again := seen.repeated():
            raise InvalidDataError(f"{by_name[name].where}: {again} values of {KEY} come more than once; a sample's key is its own")


def _shards_of(by_name: Mapping[str, SourceFile], index: str) -> list[_Shard]:
    file = by_name[index]
    if file.size_bytes > MOST_INDEX_BYTES:
        raise InvalidDataError(f"{file.where}: an index of {file.size_bytes} bytes; at most {MOST_INDEX_BYTES} are read")
    with file.open() as stream:
        content = stream.read(file.size_bytes)
    folder = index.removesuffix(INDEX)
    try:
        return [_shard(by_name, folder, _Entry.model_validate(each)) for each in json.loads(content)["shards"]]
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors(include_url=False, include_input=False)[:3]
        )
        raise InvalidDataError(f"{file.where}: it is no index of MDS shards ({wrong}); write it again") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise InvalidDataError(f"{file.where}: it is no index of MDS shards ({type(error).__name__}: {error}); write it again") from error


def _shard(by_name: Mapping[str, SourceFile], folder: str, entry: _Entry) -> _Shard:
    if (entry.format, entry.version) != ("mds", VERSION):
        raise InvalidDataError(f"a shard of {folder or 'the folder'} is of format {entry.format} {entry.version}; {VERSION} is read")
    raw, packed = entry.raw_data, entry.zip_data
    present = [each for each in (raw, packed) if each is not None and folder + each.basename in by_name]
    if not present:
        name = folder + (packed or raw).basename
        raise InvalidDataError(f"{name}: {folder}{INDEX} names it, and it is not there; copy the whole folder")
    is_packed = present[0] is packed
    listed = zip(entry.column_names, entry.column_encodings, entry.column_sizes, strict=True)
    named = [MdsColumn(name, encoding, size or None) for name, encoding, size in listed]
    file = by_name[folder + present[0].basename]
    if file.size_bytes != present[0].bytes:
        raise InvalidDataError(f"{file.where}: it has {file.size_bytes} bytes, not the {present[0].bytes} of its index; copy it again")
    compression = (entry.compression or "").partition(":")[0] if is_packed else ""
    shard = _Shard(file, tuple(map(_readable(file), named)), entry.samples, raw.bytes, raw.hashes, compression)
    _check_samples(shard)
    return shard


def _check_samples(shard: _Shard) -> None:
    """Raises InvalidDataError for more samples than are read, or than the shard has bytes for."""
    if not shard.columns:
        raise InvalidDataError(f"{shard.where}: its samples have no columns; write it with some, or remove it")
    if shard.samples > MOST_SAMPLES:
        raise InvalidDataError(f"{shard.where}: {shard.samples} samples; at most {MOST_SAMPLES} of a shard are read: write smaller shards")
    least_bytes = sum(4 if column.fixed_bytes is None else column.fixed_bytes for column in shard.columns)
    if 4 + 4 * (shard.samples + 1) + shard.samples * least_bytes > shard.raw_bytes:
        raise _damaged(shard, f"{shard.samples} samples do not fit into its {shard.raw_bytes} bytes")


def _readable(file: SourceFile) -> Callable[[MdsColumn], MdsColumn]:
    def judged(column: MdsColumn) -> MdsColumn:
        encoding = column.encoding
        if encoding in _OF_BYTES or encoding in _TEXTS or encoding in FIXED_BYTES or encoding.partition(":")[0] == "ndarray":
            return column
        way_out = "pickles run code" if encoding == "pkl" else "write it as jpeg, png, json or bytes"
        raise InvalidDataError(f"{file.where}: column {column.name!r} has encoding {encoding}, which is not read: {way_out}")

    return judged


def _samples(shard: _Shard) -> Iterator[tuple[str, Fields]]:
    with shard.file.open() as packed:
        stream = _Counted(_unpacked(packed, shard), shard)
        (count,) = struct.unpack("<I", stream.exactly(4))
        if count != shard.samples:
            raise _damaged(shard, f"it has {count} samples, not {shard.samples}")
        places = np.frombuffer(stream.exactly(4 * (count + 1)), "<u4")
        if places[-1] != shard.raw_bytes or places[0] < stream.read_bytes or (places[1:] < places[:-1]).any():
            raise _damaged(shard, "its samples do not follow each other up to its end")
        for _ in iter(lambda: stream.exactly(min(_PIECE_BYTES, int(places[0]) - stream.read_bytes)), b""):
            pass  # the columns again
        for begin, end in pairwise(places):
            size = int(end) - int(begin)
            small_enough(size, shard.where)
            yield _fields(shard, stream.exactly(size))
        stream.check_end()


def _fields(shard: _Shard, sample: bytes) -> tuple[str, Fields]:
    """A sample's key, empty where it has none, and its fields."""
    at, sizes = 0, []
    for column in shard.columns:
        size = column.fixed_bytes
        if size is None:
            if at + 4 > len(sample):
                raise _damaged(shard, "a sample is too short")
            (size,) = struct.unpack_from("<I", sample, at)
            at += 4
        sizes.append(size)
    if at + sum(sizes) != len(sample):
        raise _damaged(shard, "the sizes of a sample's columns are not its own")
    key, fields, columns = "", Fields(), dict[str, Any]()
    for column, size in zip(shard.columns, sizes, strict=True):
        value, at = sample[at : at + size], at + size
        try:
            if column.name == KEY and column.encoding == "str":
                key = _key(value.decode(), shard)
            elif column.encoding in _OF_BYTES or column.encoding.startswith("ndarray"):
                name = _field_name(column)
                if name == JSON or name in fields:
                    raise InvalidDataError(f"{shard.where}: column {column.name!r} would be field {name!r} twice; rename it")
                fields[name] = _npy(column, value) if column.encoding.startswith("ndarray") else value
            else:
                columns[column.name] = _plain(column, value, shard)
        except (ValueError, TypeError, KeyError, IndexError, AssertionError, OverflowError) as error:
            raise _damaged(shard, f"column {column.name!r} has a value that is no {column.encoding} ({error})") from error
    if columns:
        try:
            fields[JSON] = canonical(columns)
        except TypeError as error:
            raise InvalidDataError(f"{shard.where}: a sample is no JSON: {error.__cause__ or error}; write such values as text") from error
    return key, fields


def _key(key: str, shard: _Shard) -> str:
    if key.startswith("/") or ".." in key.split("/") or key_and_extension(f"{key}.x", shard.where) != (key, "x"):
        raise InvalidDataError(f"{shard.where}: {KEY} {key[:200]!r} is no key of a sample: it has no dot after its last slash; change it")
    return key


def _field_name(column: MdsColumn) -> str:
    """The field of a column of bytes: its ending says what it is."""
    name = column.name.lower()
    endings = ("npy",) if column.encoding.startswith("ndarray") else _PICTURES.get(column.encoding, ())
    return name if not endings or name.rpartition(".")[2] in endings else f"{name}.{endings[0]}"


def _plain(column: MdsColumn, value: bytes, shard: _Shard) -> Any:
    if column.encoding in _TEXTS:
        found = _TEXTS[column.encoding](value)
    else:
        found = np.frombuffer(value, np.dtype(_NUMBERS.get(column.encoding, column.encoding)).newbyteorder("<"))[0].item()
    if isinstance(found, float) and not isfinite(found):
        raise InvalidDataError(
            f"{shard.where}: column {column.name!r} has a value that is not finite, for which JSON has no number; write it as text"
        )
    return found


_VALUE_TYPES: Final = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32", 64: "uint64", 65: "int64",
    66: "float64",
}  # fmt: skip


def _npy(column: MdsColumn, value: bytes) -> bytes:
    """An array as a file of NumPy. Its encoding names a type, and perhaps a shape, or its first bytes do."""
    kind, _, dimensions = column.encoding.partition(":")[2].partition(":")
    at = 0
    if not kind:
        kind, at = _VALUE_TYPES[value[0]], 1
    if dimensions:
        shape = [int(each) for each in dimensions.split(",")]
    else:
        count, width = value[at] >> 2, 1 << (value[at] & 3)
        shape = np.frombuffer(value, f"<u{width}", count, at + 1).astype(int).tolist()
        at += 1 + count * width
    if kind not in _VALUE_TYPES.values():
        raise ValueError(f"type {kind}")
    written = io.BytesIO()
    np.save(written, np.frombuffer(value[at:], np.dtype(kind).newbyteorder("<")).reshape(shape), allow_pickle=False)
    return written.getvalue()


def _unpacked(stream: IO[bytes], shard: _Shard) -> IO[bytes]:
    if shard.raw_bytes > MOST_UNPACKED_RATIO * shard.file.size_bytes + SURELY_UNPACKED_BYTES:
        raise InvalidDataError(f"{shard.where}: it unpacks to {shard.raw_bytes} bytes, over {MOST_UNPACKED_RATIO} times its size")
    kind = shard.compression
    if not kind:
        return stream
    if kind == "gz":
        return gzip.GzipFile(fileobj=stream)  # type: ignore[return-value]
    if kind == "bz2":
        return bz2.BZ2File(stream)
    if kind in ("zstd", "br"):
        unpacked: IO[bytes] = pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd" if kind == "zstd" else "brotli")
        return unpacked
    raise InvalidDataError(f"{shard.where}: it is compressed by {kind}; zstd, br, gz and bz2 are read: use one, or none")


class _Counted:
    """A shard that is read forward, and hashed."""

    def __init__(self, stream: IO[bytes], shard: _Shard) -> None:
        self._stream, self._shard = stream, shard
        # xxhash's are left out: they are for speed, and of another library.
        self._hashes = {name: hashlib.new(name) for name in shard.hashes if name in hashlib.algorithms_guaranteed and "shake" not in name}
        self.read_bytes = 0

    def exactly(self, size: int) -> bytes:
        """So many bytes, of those that the shard has. Raises InvalidDataError."""
        if not 0 <= size <= self._shard.raw_bytes - self.read_bytes:
            raise _damaged(self._shard, "it is cut short")
        found = self._next(size)
        if len(found) < size:
            raise _damaged(self._shard, "it is cut short")
        self.read_bytes += size
        for each in self._hashes.values():
            each.update(found)
        return found

    def check_end(self) -> None:
        """Raises InvalidDataError where more follows, or a hash is another than the index gives."""
        if self._next(1):
            raise _damaged(self._shard, "it goes on after its end")
        for name, each in self._hashes.items():
            if each.hexdigest() != self._shard.hashes[name]:
                raise _damaged(self._shard, f"its {name} is not that of its index")

    def _next(self, size: int) -> bytes:
        """So many bytes, or all that are left."""
        pieces = []
        try:
            while size and (piece := self._stream.read(size)):
                pieces.append(piece)
                size -= len(piece)
        except (OSError, EOFError, ValueError, zlib.error, pa.ArrowException) as error:
            raise _damaged(self._shard, f"it cannot be unpacked: {error}") from error
        return b"".join(pieces)


def _damaged(shard: _Shard, why: str) -> InvalidDataError:
    return InvalidDataError(f"{shard.where} is damaged: {why}; copy or write it again")
