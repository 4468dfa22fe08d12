"""The files of one partition's settled jobs: a RocksDB with entries by job id, the bytes of each segment, and markers.

Holds: a segment's marker is written last, with its bytes, so what a crash left half written has none; the note of its hash is written
first, so that it is known whose the entries are. Before a segment is written where another was noted, all from it on is deleted.
Never: keeps the interpreter for long at once: entries go in small batches.
"""

import shutil
import time
from itertools import islice
from pathlib import Path
from typing import Final

import structlog
from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch

from trainhouse.scheduler.core.protocol.settled import Segment, jobs_in
from trainhouse.scheduler.stream.settled.temporary_folder import TemporaryFolder

AT_ONCE: Final = 256
_JOB, _CONTENT, _MARKER, _NOTE = b"j", b"c", b"m", b"n"
_NUMBER_BYTES: Final = 4
_BLOOM_BITS: Final = 10
_BUFFER_BYTES: Final = 8 * 1024 * 1024
_OPEN_FILES: Final = 256
log_ = structlog.get_logger(__name__)


class FilesDamagedError(Exception):
    """Files on the disk differ from those that were written."""


class SettledFiles:
    """One RocksDB, opened when it is first needed."""

    def __init__(self, folder: Path, cache: Cache) -> None:
        self._folder = folder
        self._cache = cache
        self._db: Rdict | None = None
        self._temporary: TemporaryFolder | None = None

    def entry(self, job_id: str, segments: int) -> bytes | None:
        """A job's entry, if its segment is one of the first so many. Raises FilesDamagedError."""
        value = self._get(_JOB + job_id.encode("ascii"))
        if value is None or int.from_bytes(value[:_NUMBER_BYTES]) >= segments:
            return None
        return value[_NUMBER_BYTES:]

    def has(self, segment: Segment) -> bool:
        """Whether this very segment is whole. Raises FilesDamagedError."""
        return self._get(_MARKER + _number(segment.number)) == bytes.fromhex(segment.sha256)

    def content(self, segment: Segment) -> bytes | None:
        """Its bytes as they are here. Raises FilesDamagedError."""
        return self._get(_CONTENT + _number(segment.number))

    def put(self, segment: Segment, content: bytes) -> None:
        """Writes a segment, unless it is there. Raises FilesDamagedError."""
        number, sha256 = _number(segment.number), bytes.fromhex(segment.sha256)
        noted = self._get(_NOTE + number)
        if noted is not None and noted != sha256:
            self._delete_from(segment.number)
        elif self.has(segment):
            return
        note = WriteBatch(raw_mode=True)
        note.put(_NOTE + number, sha256)
        self._write(note)
        jobs = jobs_in(content)
        while chunk := list(islice(jobs, AT_ONCE)):
            batch = WriteBatch(raw_mode=True)
            for job_id, entry in chunk:
                batch.put(_JOB + job_id.encode("ascii"), number + entry)
            self._write(batch)
            time.sleep(0)  # threads that wait for the interpreter have it first
        last = WriteBatch(raw_mode=True)
        last.put(_CONTENT + number, content)
        last.put(_MARKER + number, sha256)
        self._write(last)

    def _delete_from(self, number: int) -> None:
        """Deletes what a history that counts no more left: the entries first, at last the notes about them."""
        first = _number(number)
        log_.warning("settled jobs of another history deleted", folder=str(self._folder), from_segment=number)
        found = self._opened().iter()
        found.seek(_JOB)
        batch = WriteBatch(raw_mode=True)
        while found.valid() and found.key().startswith(_JOB):
            if found.value()[:_NUMBER_BYTES] >= first:
                batch.delete(found.key())
            found.next()
        found.status()
        self._write(batch)
        for kind in (_MARKER, _CONTENT, _NOTE):
            batch = WriteBatch(raw_mode=True)
            found.seek(kind + first)
            while found.valid() and found.key().startswith(kind):
                batch.delete(found.key())
                found.next()
            found.status()
            self._write(batch)

    def delete(self) -> None:
        """Deletes all of it."""
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        """Closes it; it opens again when it is needed."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def end(self) -> None:
        """Closes it for good; a temporary one is deleted."""
        self.close()
        if self._temporary is not None:
            self._temporary.close()

    def _get(self, key: bytes) -> bytes | None:
        db = self._opened()
        try:
            found: bytes | None = db.get(key)
        except Exception as error:  # the library has no kinds of errors
            raise FilesDamagedError(f"{self._folder}: {error}"[:1000]) from error
        return found

    def _write(self, batch: WriteBatch) -> None:
        try:
            self._opened().write(batch)
        except Exception as error:
            if "Corruption" not in str(error):
                raise
            raise FilesDamagedError(f"{self._folder}: {error}"[:1000]) from error

    def _opened(self) -> Rdict:
        if self._db is None:
            self._db = self._open()
        return self._db

    def _open(self) -> Rdict:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            return Rdict(str(self._folder), self._options())
        except Exception as error:
            if f"{self._folder}/LOCK:" not in str(error):
                raise FilesDamagedError(f"{self._folder}: {error}"[:1000]) from error
            log_.warning("another process has this index of settled jobs; a temporary one is used", folder=str(self._folder))
        self._temporary = TemporaryFolder("trainhouse-settled")
        self._folder = self._temporary.path / "own"
        return Rdict(str(self._folder), self._options())

    def _options(self) -> Options:
        tables = BlockBasedOptions()
        # New jobs are in no segment: the filter says so without a read. Filters and indexes stay in memory, about 3 bytes a job: in the
        # cache the filter of a large file is more than one of its shards holds, and would be read for each lookup.
        tables.set_bloom_filter(_BLOOM_BITS, False)
        tables.set_block_cache(self._cache)
        tables.set_cache_index_and_filter_blocks(False)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(tables)
        options.set_write_buffer_size(_BUFFER_BYTES)
        options.set_max_open_files(_OPEN_FILES)
        options.set_keep_log_file_num(2)
        return options


def _number(number: int) -> bytes:
    return number.to_bytes(_NUMBER_BYTES)
