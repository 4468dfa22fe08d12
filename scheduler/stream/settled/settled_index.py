"""The index of settled jobs beside the process: one RocksDB for each partition of the directory, written by one thread.

Holds: what it holds follows from the journal and is never trusted: blocks carry checksums, each segment counts only with the marker of its
hash, and one that is missing, damaged or of another history is written anew from the object store, or by folding the journal. A table that
is being written is looked up in memory, so a lookup waits for nothing.
Never: syncs; a lost end of its log is a missing segment.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from rocksdict import Cache

from trainhouse.scheduler.core.protocol.settled import Fetch, Sealing, Segment
from trainhouse.scheduler.stream.settled.settled_partition import SettledPartition, WriterTrouble
from trainhouse.scheduler.stream.settled.temporary_folder import TemporaryFolder

CACHE_BYTES = 64 * 1024 * 1024


class SettledIndex:
    """The partitions below one folder, which no other process uses; None: a temporary one, filled anew at each start.

    `writer` runs one thing after the other.
    """

    def __init__(self, folder: Path | None = None, cache_bytes: int = CACHE_BYTES, writer: Executor | None = None) -> None:
        self._temporary: TemporaryFolder | None = None
        self._folder = folder
        self._cache = Cache(cache_bytes)
        self._writer = writer or ThreadPoolExecutor(1, "settled-jobs")
        self._trouble = WriterTrouble()  # one for all, since one thread writes for all
        self._partitions: dict[int, SettledPartition] = {}

    def attach(self, partition: int, segments: Sequence[Segment], fetch: Fetch) -> None:
        """Holds these segments from now on. Blocks. Raises StateLost."""
        self._of(partition).attach(segments, fetch)

    def seal(self, partition: int, number: int, jobs: Mapping[str, bytes]) -> Sealing:
        """Takes over a table, which is written in the background; waits where too many are. Raises StateLost."""
        return self._of(partition).seal(number, jobs)

    def entry(self, partition: int, job_id: str, segments: int) -> bytes | None:
        """A job's entry in the first so many segments. Raises StateLost."""
        return self._of(partition).entry(job_id, segments)

    def content(self, partition: int, segment: Segment) -> bytes:
        """A segment's bytes. Blocks. Raises StateLost."""
        return self._of(partition).content(segment)

    def close(self) -> None:
        """Ends the writing and closes the files; a temporary folder is deleted."""
        for partition in self._partitions.values():
            partition.stop()
        self._writer.shutdown()
        for partition in self._partitions.values():
            partition.close()
        if self._temporary is not None:
            self._temporary.close()

    def _of(self, partition: int) -> SettledPartition:
        found = self._partitions.get(partition)
        if found is None:
            if self._folder is None:
                self._temporary = TemporaryFolder("trainhouse-settled")
                self._folder = self._temporary.path
            found = self._partitions[partition] = SettledPartition(self._folder / str(partition), self._cache, self._writer, self._trouble)
        return found
