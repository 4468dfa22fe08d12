"""The archive of topics: what comes back, how writers meet, where archive and topic join, what is refused; without a broker."""

from __future__ import annotations

import gzip
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.archive_fakes import MemoryPartition
from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.stores.topic_archive import ObjectArchive
from trainhouse.events.archive.errors import ArchiveCorruptError, ArchiveGapError
from trainhouse.events.archive.partition import ArchiveStore, PartitionArchive
from trainhouse.events.archive.reading import ARCHIVED, joint
from trainhouse.events.archive.segments import GENESIS, LogRecord, Segment, cut, decode
from trainhouse.events.archive.trimming import trim
from trainhouse.events.archive.writing import archive_partition
from trainhouse.events.wire.topics import ADMISSION, DECISIONS, DIRECTORY, REGISTRY, TUNING
from trainhouse.projections.ingest.trim_bounds import needed_by_lanes

SOME_BYTES = st.none() | st.binary(max_size=30) | st.text(max_size=20).map(str.encode)
HEADERS = st.lists(st.tuples(st.text(max_size=5), SOME_BYTES), max_size=2).map(tuple)


@st.composite
def logs(draw: st.DrawFn) -> list[LogRecord]:
    """Records in order; some offsets have none, as behind transactions."""
    offset, found = 0, []
    for _ in range(draw(st.integers(0, 12))):
        offset += draw(st.integers(0, 2))
        found.append(LogRecord(3, offset, draw(st.integers(0, 2**41)), draw(SOME_BYTES), draw(SOME_BYTES), draw(HEADERS)))
        offset += 1
    return found


def archive(objects: ArchiveStore | None = None) -> PartitionArchive:
    return PartitionArchive(objects or ObjectArchive(MemoryObjectStore()), DECISIONS, "id", 3)


def numbered(count: int) -> list[LogRecord]:
    return [LogRecord(3, n, 1000 + n, None, b"value %d" % n) for n in range(count)]


def test_what_never_expires_on_the_brokers_is_what_is_archived() -> None:
    assert set(ARCHIVED) == {ADMISSION, DIRECTORY, DECISIONS, REGISTRY, TUNING}


@given(logs(), st.integers(0, 3))
def test_records_come_back_byte_for_byte_and_equal_ones_give_equal_objects(records: list[LogRecord], more: int) -> None:
    end = (records[-1].offset + 1 if records else 1) + more
    segment = Segment(DECISIONS, 3, 0, end, tuple(records))
    assert decode("k", segment.encode()) == segment
    assert segment.encode() == Segment(DECISIONS, 3, 0, end, tuple(records)).encode()


@given(logs(), st.integers(1, 60))
def test_cuts_keep_the_order_lose_nothing_and_are_no_larger_than_told(records: list[LogRecord], max_bytes: int) -> None:
    groups = list(cut(records, max_bytes))
    assert [r for group in groups for r in group] == records
    for group in groups:
        assert sum(r.size_bytes for r in group[:-1]) < max_bytes
    assert all(sum(r.size_bytes for r in group) >= max_bytes for group in groups[:-1])


@given(logs(), st.data())
def test_any_range_is_read_once_and_whole_however_the_runs_were_cut(records: list[LogRecord], data: st.DataObject) -> None:
    kept, log = archive(), MemoryPartition([], markers=0)
    for count in sorted({data.draw(st.integers(0, len(records))), len(records)}):
        log.stored = records[:count]
        archive_partition(log, archive_again(kept), data.draw(st.integers(1, 60)))
    end = kept.end()
    assert end == (records[-1].offset + 1 if records else 0)
    start = data.draw(st.integers(0, end))
    upto = data.draw(st.integers(start, end))
    assert list(kept.read(start, upto)) == [r for r in records if start <= r.offset < upto]
    # The joint: archive up to its end, then what the topic still has.
    log.low = data.draw(st.integers(0, end))
    meeting = joint(log, kept)
    assert [*kept.read(start, meeting), *log.records(meeting)] == [r for r in records if r.offset >= start]


def archive_again(kept: PartitionArchive) -> PartitionArchive:
    """The same archive as a process sees it that has just started."""
    return PartitionArchive(kept._store, kept.topic, "id", kept.partition)


@dataclass
class Dying:
    """A store whose client dies with a put: before it lands or after, told by `left` puts that go well."""

    objects: ObjectArchive
    left: int
    lands: bool

    def put_if_absent(self, key: str, body: bytes) -> bool:
        if not self.left:
            if self.lands:
                self.objects.put_if_absent(key, body)
            raise KeyboardInterrupt
        self.left -= 1
        return self.objects.put_if_absent(key, body)

    def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def keys(self, prefix: str, start_after: str = "") -> Iterator[str]:
        return self.objects.keys(prefix, start_after)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(1, 60)), max_size=6))
def test_writers_that_are_killed_at_any_put_leave_one_chain(lives: list[tuple[int, bool, int]]) -> None:
    objects, log = ObjectArchive(MemoryObjectStore()), MemoryPartition(numbered(12))
    for left, lands, segment_bytes in lives:
        try:
            archive_partition(log, archive(Dying(objects, left, lands)), segment_bytes)
        except KeyboardInterrupt:
            pass
    done = archive_partition(log, archive(objects))
    assert done.end == 12
    assert list(archive(objects).read(0, 12)) == log.stored


@dataclass
class Overtaken:
    """A store in which another writer, who cuts otherwise, comes first just before each put."""

    objects: ObjectArchive
    log: MemoryPartition
    others_bytes: int
    times: int

    def put_if_absent(self, key: str, body: bytes) -> bool:
        if self.times:
            self.times -= 1
            other = archive(self.objects)
            group = next(cut(MemoryPartition(self.log.stored).records(other.end()), self.others_bytes), None)
            if group is not None:
                assert other.add(other.end(), group)
        return self.objects.put_if_absent(key, body)

    def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def keys(self, prefix: str, start_after: str = "") -> Iterator[str]:
        return self.objects.keys(prefix, start_after)


@given(st.integers(1, 100), st.integers(1, 100), st.integers(0, 8))
def test_a_writer_that_is_overtaken_goes_on_behind_the_other(mine: int, others: int, times: int) -> None:
    objects, log = ObjectArchive(MemoryObjectStore()), MemoryPartition(numbered(15))
    done = archive_partition(log, archive(Overtaken(objects, log, others, times)), mine)
    assert done.end == 15
    assert list(archive(objects).read(0, 15)) == log.stored


def test_writers_at_once_make_one_chain() -> None:
    objects, records = ObjectArchive(MemoryObjectStore()), numbered(400)
    threads = [
        threading.Thread(target=archive_partition, args=(MemoryPartition(records), archive(objects), size)) for size in (20, 33, 50, 71)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert list(archive(objects).read(0, 400)) == records


def test_a_writer_under_whom_another_one_archives_and_trims_goes_on() -> None:
    objects = ObjectArchive(MemoryObjectStore())
    log = MemoryPartition(numbered(10))

    class Trimmed(MemoryPartition):
        def records(self, start: int) -> Iterator[LogRecord]:
            if not self.low:
                archive_partition(MemoryPartition(self.stored), archive(objects))
                self.low = 8
            return super().records(start)

    done = archive_partition(Trimmed(log.stored), archive(objects))
    assert (done.end, done.records) == (10, 0)
    assert list(archive(objects).read(0, 10)) == log.stored


def test_markers_at_the_end_are_no_reason_for_an_object() -> None:
    objects, log = MemoryObjectStore(), MemoryPartition(numbered(3), markers=2)
    assert archive_partition(log, archive(ObjectArchive(objects))).objects == 1
    assert archive_partition(log, archive(ObjectArchive(objects))).objects == 0
    log.stored.append(replace(log.stored[0], offset=5))
    assert archive_partition(log, archive(ObjectArchive(objects))).end == 6
    assert list(archive(ObjectArchive(objects)).read(0, 6)) == log.stored


@pytest.mark.parametrize(("low", "high"), [(11, 20), (2, 9)])
def test_archive_and_topic_that_do_not_meet_are_refused_with_the_numbers(low: int, high: int) -> None:
    kept = archive()
    archive_partition(MemoryPartition(numbered(10)), kept)
    log = MemoryPartition(numbered(high), low=low)
    for read in (lambda: joint(log, kept), lambda: archive_partition(log, kept)):
        with pytest.raises(ArchiveGapError, match=rf"{DECISIONS}-3 .*\b10\b"):
            read()


def test_a_topic_made_anew_has_an_archive_of_its_own() -> None:
    objects = ObjectArchive(MemoryObjectStore())
    archive_partition(MemoryPartition(numbered(10)), archive(objects))
    assert PartitionArchive(objects, DECISIONS, "another id", 3).end() == 0
    assert PartitionArchive(objects, DECISIONS, "id", 30).end() == 0


def of_three_objects() -> tuple[MemoryObjectStore, PartitionArchive, list[str]]:
    objects = MemoryObjectStore()
    kept = archive(ObjectArchive(objects))
    archive_partition(MemoryPartition(numbered(9)), kept, 3 * len(b"value 0"))
    keys = [found.key for found in objects.list("")]
    assert keys == [kept.key(first) for first in (0, 3, 6)]
    return objects, kept, keys


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_missing_object_is_named(number: int) -> None:
    objects, kept, keys = of_three_objects()
    objects.delete(keys[number])
    with pytest.raises(ArchiveCorruptError, match=keys[number] if number else "begins there or before"):
        list(kept.read(0, 9))


@given(st.data())
def test_a_damaged_object_is_named_and_never_read(data: st.DataObject) -> None:
    objects, kept, keys = of_three_objects()
    key = data.draw(st.sampled_from(keys))
    content = bytearray(objects.get(key))
    position = data.draw(st.integers(0, len(content) - 1))
    cut_off = data.draw(st.booleans())
    if cut_off:
        del content[position:]
    else:
        content[position] ^= 1 << data.draw(st.integers(0, 7))
    objects.put(key, bytes(content))
    try:
        found = list(kept.read(0, 9))
    except ArchiveCorruptError as error:
        assert key in str(error)
    else:
        # Some bits of gzip's head say nothing: what is read must be right all the same.
        assert not cut_off
        assert found == numbered(9)


def test_an_object_that_was_altered_with_care_or_lies_under_another_name_is_refused() -> None:
    objects, kept, keys = of_three_objects()
    text = gzip.decompress(objects.get(keys[1]))
    objects.put(keys[1], gzip.compress(text.replace(b"value 4", b"value 5")))
    with pytest.raises(ArchiveCorruptError, match="SHA-256"):
        list(kept.read(0, 9))
    objects.put(keys[1], objects.get(keys[2]))
    with pytest.raises(ArchiveCorruptError, match="not what its name says"):
        list(kept.read(0, 9))


@pytest.mark.parametrize(("needed", "begins"), [(0, 0), (4, 4), (9, 9), (100, 9)])
def test_trimmed_is_what_is_archived_and_not_needed(needed: int, begins: int) -> None:
    _, kept, _ = of_three_objects()
    log = MemoryPartition(numbered(12))
    assert trim(log, kept, needed) == begins == log.low
    assert log.deleted == ([begins] if begins else [])
    assert trim(log, kept, needed) == begins
    assert len(log.deleted) <= 1


def test_what_differs_from_the_topic_is_not_trimmed() -> None:
    _, kept, _ = of_three_objects()
    for stored in ([replace(r, timestamp_ms=0) if r.offset == 5 else r for r in numbered(9)], numbered(9)[:5] + numbered(9)[6:]):
        log = MemoryPartition(stored)
        with pytest.raises(ArchiveCorruptError, match="offset 5"):
            trim(log, kept, 9)
        assert not log.deleted
    assert trim(MemoryPartition(stored), kept, 5) == 5


def test_two_that_trim_at_once_do_no_harm() -> None:
    _, kept, _ = of_three_objects()
    log = MemoryPartition(numbered(9), trim_under=4)
    assert trim(log, kept, 8) == 8


Position = tuple[str, int, int, int, int, int]


class Answering:
    """A database whose positions of the lane of decisions say this: topic, partition, batch, from, to, done; `reports`: of that lane."""

    def __init__(self, *rows: Position, reports: Sequence[Position] | None = None) -> None:
        self._rows = {"decisions": list(rows), "reports": list(rows if reports is None else reports)}

    def rows(self, query: str, parameters: dict[str, str]) -> list[Position]:
        assert "FROM positions" in query
        return self._rows[parameters["lane"]]


def test_the_projector_needs_the_batch_that_was_cut_again() -> None:
    done, cut_off = (DECISIONS, 0, 6, 70, 90, 1), (DECISIONS, 1, 7, 30, 45, 0)
    assert needed_by_lanes(Answering(done, cut_off)) == {DECISIONS: {0: 90, 1: 30}}  # type: ignore[arg-type]
    assert needed_by_lanes(Answering()) == {DECISIONS: {}}  # type: ignore[arg-type]
    behind = (DECISIONS, 0, 7, 10, 40, 1)
    assert needed_by_lanes(Answering(done, cut_off, reports=[behind])) == {DECISIONS: {0: 40}}  # type: ignore[arg-type]


class Folding:
    """A store that folds empty parts of a key in objects' names, but not in what it is asked to list, as SeaweedFS does."""

    def __init__(self) -> None:
        self._objects = ObjectArchive(MemoryObjectStore())

    def put_if_absent(self, key: str, body: bytes) -> bool:
        return self._objects.put_if_absent(re.sub("/+", "/", key), body)

    def get(self, key: str) -> bytes | None:
        return self._objects.get(re.sub("/+", "/", key))

    def keys(self, prefix: str, start_after: str = "") -> Iterator[str]:
        return self._objects.keys(prefix, start_after)


@pytest.mark.parametrize("topic_id", ["/starts", "ends/", "d/ts//jiag", "a/b"])
def test_an_id_with_slashes_has_an_archive_that_goes_on(topic_id: str) -> None:
    objects, log = Folding(), MemoryPartition(numbered(3))
    for more in ([], numbered(5)[3:]):
        log.stored += more
        assert archive_partition(log, PartitionArchive(objects, DECISIONS, topic_id, 3)).end == log.bounds()[1]
    assert len(list(PartitionArchive(objects, DECISIONS, topic_id, 3).read(0, 5))) == 5


def test_an_archive_under_such_an_id_is_read_on_where_a_store_keeps_it() -> None:
    objects = ObjectArchive(MemoryObjectStore())
    first = Segment(DECISIONS, 3, 0, 3, tuple(numbered(3)), GENESIS).encode()
    assert objects.put_if_absent(f"archive/{DECISIONS}/d//j/3/{0:020d}.jsonl.gz", first)
    assert PartitionArchive(objects, DECISIONS, "d//j", 3).end() == 3
