"""Attacks on the archive of the audit: each is named by the proof, with the first object that is not as it was written."""

from __future__ import annotations

import gzip

import pytest

from tests.support.fakes.archive_fakes import MemoryPartition
from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.stores.topic_archive import ObjectArchive
from trainhouse.events.archive.chain import Proved, verify
from trainhouse.events.archive.errors import ArchiveCorruptError, ChainBrokenError
from trainhouse.events.archive.part import Part, verify_part
from trainhouse.events.archive.partition import PartitionArchive
from trainhouse.events.archive.segments import GENESIS, LogRecord, Segment, decode, seal_of
from trainhouse.events.archive.writing import archive_partition
from trainhouse.events.wire.topics import AUDIT


class Store:
    """Objects by name, for who may do anything to them."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put_if_absent(self, key: str, body: bytes) -> bool:
        return self.objects.setdefault(key, body) == body

    def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def keys(self, prefix: str, start_after: str = "") -> list[str]:
        return sorted(k for k in self.objects if k.startswith(prefix) and k > start_after)


def archive(store: object) -> PartitionArchive:
    return PartitionArchive(store, AUDIT, "id", 0)  # type: ignore[arg-type]


def numbered(count: int) -> list[LogRecord]:
    return [LogRecord(0, n, 1000 + n, b"ana", b"access %d" % n) for n in range(count)]


@pytest.fixture
def log() -> MemoryPartition:
    return MemoryPartition(numbered(40))


@pytest.fixture
def store(log: MemoryPartition) -> Store:
    made = Store()
    archive_partition(log, archive(made), 60)
    return made


def keys(store: Store) -> list[str]:
    return sorted(store.objects)


def test_a_whole_chain_is_proved_also_over_runs_and_writers(store: Store, log: MemoryPartition) -> None:
    proved = verify(archive(store), log)
    assert (proved.first, proved.end, proved.records, proved.compared) == (0, 40, 40, 40)
    assert proved.objects == len(keys(store)) > 3 and (proved.first_ms, proved.last_ms) == (1000, 1039)
    log.stored = numbered(60)
    archive_partition(log, archive(store), 60)
    again = verify(archive(store), log, [proved.seal])
    assert again.records == 60 and again.seal == seal_of(store.objects[keys(store)[-1]])


def test_every_flipped_byte_is_found(store: Store) -> None:
    for key in keys(store)[:3]:
        whole = store.objects[key]
        for at in range(0, len(whole), 7):
            changed = bytearray(whole)
            changed[at] ^= 1
            store.objects[key] = bytes(changed)
            if _content(store.objects[key]) == _content(whole):
                continue  # a byte of gzip's own head that says nothing, as the system it was made on
            with pytest.raises(ArchiveCorruptError, match=key.rsplit("/", 1)[1]):
                verify(archive(store))
        store.objects[key] = whole


def _content(packed: bytes) -> bytes:
    try:
        return gzip.decompress(packed)
    except Exception:
        return b""


def test_a_removed_object_is_named(store: Store, log: MemoryPartition) -> None:
    first, second, *_, last = keys(store)
    kept = dict(store.objects)
    del store.objects[second]
    with pytest.raises(ChainBrokenError, match=f"{second.rsplit('/', 1)[1]} is missing"):
        verify(archive(store))
    store.objects = dict(kept)
    del store.objects[first]
    with pytest.raises(ChainBrokenError, match="begins earlier"):
        verify(archive(store))
    store.objects = dict(kept)
    seal = seal_of(store.objects.pop(last))
    with pytest.raises(ChainBrokenError, match="noted seal"):
        verify(archive(store), None, [seal])


def test_an_end_that_was_cut_off_is_found_by_where_the_topic_begins(store: Store, log: MemoryPartition) -> None:
    *_, last = keys(store)
    log.low = verify(archive(store)).end
    assert verify(archive(store), log).end == log.low
    del store.objects[last]
    with pytest.raises(ChainBrokenError, match="is missing"):
        verify(archive(store), log)


def test_objects_that_change_places_are_found(store: Store) -> None:
    first, second, *_ = keys(store)
    store.objects[first], store.objects[second] = store.objects[second], store.objects[first]
    with pytest.raises(ArchiveCorruptError, match="not what its name says"):
        verify(archive(store))


def forged(store: Store, key: str, previous: str | None = None) -> None:
    """An object with another record in it, and a sound seal of its own."""
    old = decode(key, store.objects[key])
    changed = tuple(LogRecord(0, r.offset, r.timestamp_ms, r.key, b"nothing happened") for r in old.records)
    store.objects[key] = Segment(AUDIT, 0, old.first, old.end, changed, old.previous if previous is None else previous).encode()


@pytest.mark.parametrize("at", [0, 1, -2])
def test_a_record_that_was_changed_under_a_sound_seal_is_found(store: Store, at: int) -> None:
    forged(store, keys(store)[at])
    with pytest.raises(ChainBrokenError, match="was changed"):
        verify(archive(store))


def test_records_that_change_places_are_found(store: Store) -> None:
    key = keys(store)[1]
    old = decode(key, store.objects[key])
    swapped = (*old.records[:-2], old.records[-1], old.records[-2])
    store.objects[key] = Segment(AUDIT, 0, old.first, old.end, swapped, old.previous).encode()
    with pytest.raises(ArchiveCorruptError):
        verify(archive(store))


def test_a_chain_that_was_written_anew_is_found_by_the_topic_or_by_a_noted_seal(store: Store, log: MemoryPartition) -> None:
    seal = verify(archive(store)).seal
    previous = GENESIS
    for key in keys(store):
        forged(store, key, previous)
        previous = seal_of(store.objects[key])
    assert verify(archive(store)).records == 40, "it is a chain, but another one"
    with pytest.raises(ArchiveCorruptError, match="not what the topic holds"):
        verify(archive(store), log)
    with pytest.raises(ChainBrokenError, match="noted seal"):
        verify(archive(store), None, [seal])


def test_a_chain_cannot_be_ended_by_leaving_the_names_out(store: Store) -> None:
    old = decode(key := keys(store)[2], store.objects[keys(store)[2]])
    store.objects[key] = Segment(AUDIT, 0, old.first, old.end, old.records).encode()
    with pytest.raises(ChainBrokenError):
        verify(archive(store))


def test_objects_of_before_there_were_chains_are_read_and_gone_on_from(log: MemoryPartition) -> None:
    store = Store()
    store.objects[archive(store).key(0)] = Segment(AUDIT, 0, 0, 5, tuple(numbered(5))).encode()
    archive_partition(log, archive(store), 60)
    assert verify(archive(store), log).records == 40
    forged(store, keys(store)[0])
    with pytest.raises(ChainBrokenError):
        verify(archive(store))


def test_an_archive_of_what_expires_begins_where_the_topic_does(log: MemoryPartition) -> None:
    log.low = 10
    objects = ObjectArchive(MemoryObjectStore())
    archive_partition(log, archive(objects), 60, expires=True)
    proved = verify(archive(objects), log)
    assert (proved.first, proved.end) == (10, 40)


def test_a_part_is_proved_by_its_time_also_where_another_part_is_damaged(store: Store, log: MemoryPartition) -> None:
    part = verify_part(archive(store), 1010, 1020, log)
    assert part.proved is not None and part.unread == 0 and (part.first_ms, part.last_ms) == (1000, 1039)
    assert (part.proved.records, part.proved.first_ms, part.proved.last_ms) == (10, 1010, 1019)
    assert part.proved.first <= 10 and part.proved.end >= 20 and part.proved.compared == part.proved.end - part.proved.first
    assert part.proved.objects < len(keys(store))
    store.objects[keys(store)[0]] = b"damaged"
    again = verify_part(archive(store), 1010, 1020)
    assert again.unread == 1 and again.proved is not None and again.proved.records == 10
    with pytest.raises(ArchiveCorruptError):
        verify(archive(store))


def test_records_of_a_time_are_found_wherever_they_stand() -> None:
    late = [LogRecord(0, n, 5000 if n in (3, 31) else 1000 + n, b"ana", b"access %d" % n) for n in range(40)]
    made = Store()
    archive_partition(MemoryPartition(late), archive(made), 60)
    part = verify_part(archive(made), 5000, 6000)
    assert part.proved is not None and part.proved.records == 2 and part.proved.first <= 3 and part.proved.end > 31


@pytest.mark.parametrize("at", [0, 1, -1])
def test_a_change_within_a_part_or_at_its_ends_is_found(store: Store, at: int) -> None:
    inside = [key for key in keys(store) if 1010 <= decode(key, store.objects[key]).records[0].timestamp_ms < 1030]
    assert len(inside) >= 3
    forged(store, inside[at])
    with pytest.raises(ChainBrokenError, match="was changed"):
        verify_part(archive(store), 1010, 1030)


def test_an_object_that_is_gone_from_a_part_is_named_and_a_damaged_one_too(store: Store) -> None:
    second = keys(store)[2]
    kept = store.objects.pop(second)
    with pytest.raises(ChainBrokenError, match=f"{second.rsplit('/', 1)[1]} is missing"):
        verify_part(archive(store), 1000, 2000)
    store.objects[second] = kept[:-3]
    with pytest.raises(ArchiveCorruptError, match=second.rsplit("/", 1)[1]):
        verify_part(archive(store), 1000, 2000)


def test_a_time_without_records_proves_nothing_and_says_what_there_is(store: Store) -> None:
    part = verify_part(archive(store), 5000, 6000)
    assert part.proved is None and (part.first_ms, part.last_ms) == (1000, 1039)
    assert verify_part(archive(Store()), 0, 1).first_ms is None
    with pytest.raises(ChainBrokenError, match="noted seal"):
        verify_part(archive(store), 1000, 2000, None, ["0" * 64])


def test_a_part_that_was_written_anew_is_found_by_the_topic(store: Store, log: MemoryPartition) -> None:
    previous = GENESIS
    for key in keys(store):
        forged(store, key, previous)
        previous = seal_of(store.objects[key])
    assert verify_part(archive(store), 1010, 1020).proved is not None, "it is a chain, but another one"
    with pytest.raises(ArchiveCorruptError, match="not what the topic holds"):
        verify_part(archive(store), 1010, 1020, log)


def test_the_command_says_what_it_could_not_prove() -> None:
    from trainhouse.cli.data.audit_trail import _span, _words
    from trainhouse.cli.shared.exit_codes import CliError

    span = _span("2026-05-01", "2026-06-01")
    assert span is not None and span[1] - span[0] == 31 * 86_400_000 and _span(None, None) is None
    said = list(_words([(AUDIT, 0, Part(None, 0, 1000, 2)), (AUDIT, 1, Part(None, None, None, 0))], span))
    assert len(said) == 3 and "no record is of 2026-05-01" in said[0] and "1970-01-01" in said[0]
    assert "2 objects outside" in said[1] and "nothing yet" in said[2]
    with pytest.raises(CliError, match="not before"):
        _span("2026-06-01", "2026-05-01")


@pytest.mark.parametrize("at_ms", [-(2**62), 2**62, 253_402_300_800_000])
def test_a_record_of_no_year_that_there_is_ends_no_proof(at_ms: int) -> None:
    """Whoever writes a record says its time, and brokers refuse only what is long in the future."""
    from trainhouse.cli.data.audit_trail import _row, _words

    proved = Proved(0, 1, 1, 1, GENESIS, 0, at_ms, at_ms)
    assert _row(AUDIT, 0, proved)["first"] == _row(AUDIT, 0, proved)["last"] == f"{at_ms} ms since 1970"
    (said,) = _words([(AUDIT, 0, Part(None, at_ms, 0, 0))], (0, at_ms))
    assert f"records from {at_ms} ms since 1970 to 1970-01-01" in said
