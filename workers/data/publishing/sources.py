"""Sources of samples, on this machine or in an object store: folders of files; JSONL, CSV, Parquet, MDS and WebDataset tars.

Holds: samples come in one order that follows from names and contents; one sample is in memory at a time (of Parquet, one batch of rows).
"""

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, AnyStr, Final

import orjson

from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.mds_format import is_mds
from trainhouse.workers.data.publishing.bounded_files import (
    MOST_SAMPLE_BYTES,
    SourceChangedError,
    SourceFile,
    SourceRoot,
    ending,
    opened,
)
from trainhouse.workers.data.publishing.sample_fields import JSON, Fields, canonical, key_and_extension, small_enough
from trainhouse.workers.data.publishing.tars import tar_samples

Read = Callable[[list[SourceFile]], Iterator[tuple[str, Fields]]]
FOLDER: Final = "folder"
MDS: Final = "mds"
MOST_NAMED: Final = 3


@dataclass(frozen=True)
class Source:
    """Files of one kind, as they were when they were listed; may be read any number of times."""

    root: SourceRoot
    kind: str
    files: list[SourceFile]

    def samples(self) -> Iterator[tuple[str, Fields]]:
        """Each sample's key and fields. Raises InvalidDataError, SourceChangedError, and what an object store raises."""
        return _READERS[self.kind](self.files)

    def changed(self) -> list[str]:
        """Addresses of some files that came, went or have another state since they were listed; empty where all is as it was. Lists the
        source again."""
        try:
            now = set(self.root.files())
        except SourceChangedError:
            raise
        except InvalidDataError:
            now = set()  # all of it is gone
        return sorted({file.where for file in now.symmetric_difference(self.files)})[:MOST_NAMED]


def source_of(root: SourceRoot) -> Source:
    """The source at a place, of the kind that all of its files are; files of several kinds are a folder. Raises InvalidDataError."""
    files = root.files()
    kinds = {_KINDS.get(ending(file.name), FOLDER) for file in files}
    kind = kinds.pop() if len(kinds) == 1 else FOLDER
    if kind == FOLDER and is_mds(file.name for file in files):
        kind = MDS
    if kind == FOLDER and [file.where for file in files] == [str(root)]:
        raise InvalidDataError(f"{root}: publish a folder, or a file that ends in {', '.join('.' + each for each in _KINDS)}")
    return Source(root, kind, files)


def _of_folder(files: list[SourceFile]) -> Iterator[tuple[str, Fields]]:
    named = sorted(((*key_and_extension(file.name, file.where), file) for file in files), key=lambda each: each[:2])
    key, fields = "", Fields()
    for each, extension, file in named:
        if each != key and fields:
            yield key, fields
            fields = {}
        key = each
        if extension in fields:
            raise InvalidDataError(f"{file.where}: sample {key!r} has a field {extension} already; rename one of the two files")
        small_enough(file.size_bytes + sum(map(len, fields.values())), file.where)
        with file.open() as raw:
            fields[extension] = raw.read(file.size_bytes + 1)
        if len(fields[extension]) != file.size_bytes:
            raise SourceChangedError(f"{file.where} changed while it was published, so nothing was; publish again once it is whole")
    if fields:
        yield key, fields


def _of_jsonl(files: list[SourceFile]) -> Iterator[tuple[str, Fields]]:
    return _numbered(_json_rows(files))


def _json_rows(files: list[SourceFile]) -> Iterator[Fields]:
    for file in files:
        with opened(file) as stream:
            for number, line in enumerate(_lines(stream, file), 1):
                if not line.strip():
                    continue
                try:
                    row = orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise InvalidDataError(f"{file.where}:{number}: it is no JSON: {error}") from error
                if not isinstance(row, dict):
                    raise InvalidDataError(f'{file.where}:{number}: a row is an object, as {{"text": …}}, and this is none')
                yield {JSON: line.strip()}


def _lines(stream: IO[AnyStr], file: SourceFile) -> Iterator[AnyStr]:
    while line := stream.readline(MOST_SAMPLE_BYTES + 1):
        small_enough(len(line), file.where)
        yield line


def _of_csv(files: list[SourceFile]) -> Iterator[tuple[str, Fields]]:
    return _numbered(_csv_rows(files))


def _csv_rows(files: list[SourceFile]) -> Iterator[Fields]:
    for file in files:
        with opened(file) as stream, io.TextIOWrapper(stream, "utf-8-sig", newline="") as text:
            csv.field_size_limit(MOST_SAMPLE_BYTES)  # of this process; the module's own is 128 KiB
            reader = csv.reader(_lines(text, file))
            try:
                names = next(reader, [])
                if not names or len(set(names)) != len(names) or "" in names:
                    raise InvalidDataError(f"{file.where}: its first line has to name each column, and each once; it is {names!r}"[:400])
                for row in reader:
                    if not row:
                        continue  # an empty line
                    if len(row) != len(names):
                        raise InvalidDataError(f"{file.where}:{reader.line_num}: {len(row)} values for {len(names)} columns; mend the line")
                    yield {JSON: canonical(dict(zip(names, row, strict=True)))}
            except (csv.Error, UnicodeDecodeError) as error:
                raise InvalidDataError(f"{file.where}:{reader.line_num}: {error}; CSV is read as UTF-8 with commas") from error


def _of_parquet(files: list[SourceFile]) -> Iterator[tuple[str, Fields]]:
    from trainhouse.workers.data.publishing.parquet_rows import parquet_rows

    return _numbered(row for file in files for row in parquet_rows(file))


def _of_mds(files: list[SourceFile]) -> Iterator[tuple[str, Fields]]:
    from trainhouse.workers.data.publishing.mds_rows import mds_samples

    return mds_samples(files)


def _of_tars(files: list[SourceFile]) -> Iterator[tuple[str, Fields]]:
    for file in files:
        prefix = f"{file.name.removesuffix('.gz').removesuffix('.tar')}/" if len(files) > 1 else ""
        with opened(file) as stream:
            for key, fields in tar_samples(stream, file):
                yield prefix + key, fields


def _numbered(rows: Iterator[Fields]) -> Iterator[tuple[str, Fields]]:
    for number, fields in enumerate(rows):
        yield f"{number:012d}", fields


_KINDS: Final = {"jsonl": "jsonl", "csv": "csv", "parquet": "parquet", "tar": "webdataset"}
_READERS: Final[dict[str, Read]] = {
    FOLDER: _of_folder,
    "jsonl": _of_jsonl,
    "csv": _of_csv,
    "parquet": _of_parquet,
    "webdataset": _of_tars,
    MDS: _of_mds,
}
