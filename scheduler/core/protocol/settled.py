"""Settled jobs: entries of the directory that left its table for numbered, immutable segments, and the port to their index.

Holds: equal jobs make equal bytes, and a segment is named by their SHA-256; a lookup is a pure function of a state's own segments: what
an index holds beyond them does not count. An index follows from the journal, so any of it may be lost.
Never: reads or writes a file (`stream/settled_index.py` does).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Final, Protocol

from trainhouse.scheduler.core.errors import BrokenInvariant, StateLost

MAGIC: Final = b"trainhouse settled jobs 1\n"
# Jobs that are sorted at once: a sort keeps all other threads waiting.
SORTED_AT_ONCE: Final = 2_048
_KEY_BYTES: Final = 1
_ENTRY_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment by its content. `number`: its place in the directory, from 0 on; `jobs`: how many it holds."""

    number: int
    jobs: int
    sha256: str

    @property
    def sealed(self) -> bool:
        return True

    def segment(self) -> "Segment":
        return self


class Sealing(Protocol):
    """A segment that may still be in the making."""

    @property
    def sealed(self) -> bool:
        """Whether `segment` answers at once."""

    def segment(self) -> Segment:
        """The segment; waits until it is sealed. Raises what kept it from being sealed."""


Fetch = Callable[[Segment], bytes | None]


class SettledJobs(Protocol):
    """Settled jobs of a directory's partitions, by segment."""

    def attach(self, partition: int, segments: Sequence[Segment], fetch: Fetch) -> None:
        """Holds these segments of a partition from now on; what it lacks comes from `fetch`. Raises StateLost for what is nowhere."""

    def seal(self, partition: int, number: int, jobs: Mapping[str, bytes]) -> Sealing:
        """Takes over a table as the partition's next segment; the table must not change any more. Raises StateLost."""

    def entry(self, partition: int, job_id: str, segments: int) -> bytes | None:
        """A job's entry in the first so many segments. Raises StateLost where the index is damaged."""

    def content(self, partition: int, segment: Segment) -> bytes:
        """A segment's bytes. Raises StateLost where they are not those of its name."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The segments of one state, and their index."""

    index: SettledJobs
    partition: int
    parts: tuple[Sealing, ...] = ()

    def get(self, job_id: str) -> bytes | None:
        """The entry of a settled job."""
        return self.index.entry(self.partition, job_id, len(self.parts)) if self.parts else None

    def with_jobs(self, jobs: Mapping[str, bytes]) -> "Settled":
        """These jobs are settled too, as the next segment."""
        return Settled(self.index, self.partition, (*self.parts, self.index.seal(self.partition, len(self.parts), jobs)))

    def rows(self) -> list[list[int | str]]:
        """For a snapshot: size and hash of each segment. Waits for those in the making."""
        return [[segment.jobs, segment.sha256] for segment in (part.segment() for part in self.parts)]


def segments_of(rows: Sequence[Sequence[int | str]]) -> tuple[Segment, ...]:
    """The segments that a snapshot names."""
    return tuple(Segment(number, int(jobs), str(sha256)) for number, (jobs, sha256) in enumerate(rows))


def content_of(jobs: Mapping[str, bytes]) -> bytes:
    """The bytes of a segment: its jobs by id, each id and entry after its length."""
    content = bytearray(MAGIC)
    for job_id in _sorted(jobs):
        name, entry = job_id.encode("ascii"), jobs[job_id]
        content += b"".join((len(name).to_bytes(_KEY_BYTES), name, len(entry).to_bytes(_ENTRY_BYTES), entry))
    return bytes(content)


def _sorted(jobs: Mapping[str, bytes]) -> Iterator[str]:
    names = iter(jobs)
    runs = iter(lambda: sorted(islice(names, SORTED_AT_ONCE)), [])
    return merge(*runs)


def jobs_in(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The jobs of a segment, by id. Raises BrokenInvariant on other bytes."""
    if not content.startswith(MAGIC):
        raise BrokenInvariant("it is no segment of settled jobs")
    at = len(MAGIC)
    while at < len(content):
        start = at + _KEY_BYTES
        name_end = start + int.from_bytes(content[at:start])
        entry_start = name_end + _ENTRY_BYTES
        at = entry_start + int.from_bytes(content[name_end:entry_start])
        if at > len(content):
            raise BrokenInvariant("the segment of settled jobs is cut off")
        yield content[start:name_end].decode("ascii"), content[entry_start:at]


def segment_of(number: int, jobs: int, content: bytes) -> Segment:
    """The segment with these bytes."""
    return Segment(number, jobs, hashlib.sha256(content).hexdigest())


def proven(segment: Segment, content: bytes | None) -> bytes:
    """The bytes, if they are those of the segment's name. Raises StateLost."""
    if content is None or hashlib.sha256(content).hexdigest() != segment.sha256:
        how = "missing" if content is None else "damaged"
        raise StateLost(f"segment {segment.number} of settled jobs is {how}: its SHA-256 should be {segment.sha256}")
    return content
