"""The layout of MDS, MosaicML Streaming's format: shards of samples whose columns are encoded one after another, and their index.json.

Written from its documentation and not by `mosaicml-streaming`, which needs the SDKs of five clouds, NumPy below 2.2 and transformers below
5, and would run code that a pickled column holds. A shard is, in little endian: the count of samples (u32), where each begins and the last
ends (u32 each), the columns as JSON, and the samples. A sample is the sizes (u32) of its columns of no fixed size, and then the columns.
"""

import hashlib
import json
import shutil
import struct
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from trainhouse.workers.data.errors import InvalidDataError

INDEX: Final = "index.json"
VERSION: Final = 2
FIXED_BYTES: Final = {
    "int": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
}
"""Encodings of one number, with their sizes."""
HASH: Final = "sha256"
_MOST_SHARD_BYTES: Final = (1 << 32) - 1
_PIECE_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class MdsColumn:
    """A column and its encoding. `size`: of each value in bytes, where the encoding is of no number and has a fixed shape."""

    name: str
    encoding: str
    size: int | None = None

    @property
    def fixed_bytes(self) -> int | None:
        """The size of each value; None: a value has its own."""
        return FIXED_BYTES.get(self.encoding, self.size)


def is_mds(names: Iterable[str]) -> bool:
    """Whether files with these names, by `/`, are a folder of MDS shards, or of folders of them."""
    last = {name.rpartition("/")[2] for name in names}
    return INDEX in last and any(name.endswith(".mds") or ".mds." in name for name in last)


def encoded(columns: Sequence[MdsColumn], values: Sequence[bytes]) -> bytes:
    """One sample of values that are encoded already."""
    sizes = [len(value) for column, value in zip(columns, values, strict=True) if column.fixed_bytes is None]
    return struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(values)


def write_shard(path: Path, name: str, columns: Sequence[MdsColumn], samples: Iterable[bytes], spool: IO[bytes]) -> dict[str, Any]:
    """Writes a shard of encoded samples, which lie in `spool` meanwhile. Returns its entry of the index, where it is called `name`.
    Raises InvalidDataError for more than 4 GiB."""
    ends = array("Q", [0])
    for sample in samples:
        spool.write(sample)
        ends.append(ends[-1] + len(sample))
    about = {
        "column_encodings": [column.encoding for column in columns],
        "column_names": [column.name for column in columns],
        "column_sizes": [column.fixed_bytes for column in columns],
        "compression": None,
        "format": "mds",
        "hashes": [HASH],
        "size_limit": None,
        "version": VERSION,
    }
    config = json.dumps(about, sort_keys=True).encode()
    first = 4 + 4 * len(ends) + len(config)
    if first + ends[-1] > _MOST_SHARD_BYTES:
        raise InvalidDataError(f"{path}: a shard of MDS holds 4 GiB at most; publish with a smaller --shard-mib, or export it as wds")
    spool.seek(0)
    with path.open("w+b") as file:
        file.write(struct.pack(f"<{len(ends) + 1}I", len(ends) - 1, *(first + end for end in ends)))
        file.write(config)
        shutil.copyfileobj(spool, file, _PIECE_BYTES)
        file.seek(0)
        digest = hashlib.file_digest(file, HASH).hexdigest()
    raw = {"basename": name, "bytes": first + ends[-1], "hashes": {HASH: digest}}
    return about | {"raw_data": raw, "samples": len(ends) - 1, "zip_data": None}


def index_json(shards: Sequence[dict[str, Any]]) -> bytes:
    """The index of a folder of shards."""
    return json.dumps({"shards": list(shards), "version": VERSION}, sort_keys=True).encode()
