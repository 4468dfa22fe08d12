"""Settled jobs in memory: for tests, and for processes that run a directory without an index beside the process.

Holds: the contract of `SettledJobs`, by the same segments.
"""

from collections.abc import Mapping, Sequence

from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.protocol.settled import Fetch, Segment, content_of, jobs_in, proven, segment_of


class MemorySettledJobs:
    """The tables of each partition's segments, as they were taken over."""

    def __init__(self) -> None:
        self._tables: dict[int, list[tuple[Segment, Mapping[str, bytes]]]] = {}

    def attach(self, partition: int, segments: Sequence[Segment], fetch: Fetch) -> None:
        """Keeps what it has of these, and fetches the rest."""
        held = self._tables.get(partition, [])
        found = list[tuple[Segment, Mapping[str, bytes]]]()
        for segment in segments:
            known = held[segment.number] if segment.number < len(held) else None
            if known is not None and known[0] == segment:
                found.append(known)
            else:
                found.append((segment, dict(jobs_in(proven(segment, fetch(segment))))))
        # More of the same history may be in use by another state.
        self._tables[partition] = found if any(a is not b for a, b in zip(found, held, strict=False)) or len(found) > len(held) else held

    def seal(self, partition: int, number: int, jobs: Mapping[str, bytes]) -> Segment:
        """Hashes the table at once."""
        segment, held = segment_of(number, len(jobs), content_of(jobs)), self._tables.setdefault(partition, [])
        if number > len(held):
            raise BrokenInvariant(f"segment {number} of settled jobs of partition {partition} comes after {len(held)}")
        if number == len(held) or held[number][0] != segment:
            held[number:] = [(segment, jobs)]
        return segment

    def entry(self, partition: int, job_id: str, segments: int) -> bytes | None:
        """Looks into each table."""
        for _, jobs in self._tables[partition][:segments]:
            found = jobs.get(job_id)
            if found is not None:
                return found
        return None

    def content(self, partition: int, segment: Segment) -> bytes:
        """Written anew."""
        return proven(segment, content_of(self._tables[partition][segment.number][1]))
