"""Names of headers that are no UTF-8: nobody who reads is stopped, and nothing else of a record changes."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import TopicPartition, codec
from aiokafka.consumer import fetcher
from aiokafka.errors import UnsupportedCodecError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.events import InvalidEvent, decode
from trainhouse.events.bus.any_headers import AnyHeaders
from trainhouse.events.bus.kafka import headers_of
from trainhouse.events.bus.one_batch import batch_of
from trainhouse.events.bus.unpacking import GZIP, LZ4, ZSTD, too_large
from trainhouse.events.wire.set_aside import first_offset, too_large_value
from trainhouse.events.wire.topics import MOST_UNPACKED_BYTES
from trainhouse.scheduler.stream.kafka import auth  # what every reader is made with

assert auth
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
CRC_AT, AFTER_CRC, RECORDS_AT = 17, 21, 61
SNAPPY = 2
BAD = "hXXh"


def batch(first: int, records: list[Record], break_names: bool = True) -> bytes:
    """A batch as a broker keeps it; names `hXXh` become bytes that are no UTF-8."""
    made = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 28,
    )
    for number, (key, value, headers) in enumerate(records):
        made.append(number, 1000 + number, key, value, headers)
    data = bytearray(made.build())
    struct.pack_into(">q", data, 0, first)
    if break_names:
        data = bytearray(bytes(data).replace(BAD.encode(), b"h\xff\xfeh"))
        struct.pack_into(">I", data, CRC_AT, calc_crc32c(bytes(data[AFTER_CRC:])))
    return bytes(data)


def read(data: bytes, at: int = 0) -> list[Any]:
    """As a consumer does."""
    records = fetcher.MemoryRecords(data)
    return list(fetcher.PartitionRecords(TopicPartition("t", 0), records, [], at, None, None, True, fetcher.READ_COMMITTED))


def test_a_name_that_is_no_text_stops_no_reader() -> None:
    data = batch(0, [(b"k", b"one", []), (None, b"two", [(BAD, b"\xff"), ("good", None)])]) + batch(2, [(b"k", b"three", [])])
    found = read(data)
    assert [(r.offset, r.key, r.value) for r in found] == [(0, b"k", b"one"), (1, None, b"two"), (2, b"k", b"three")]
    assert [tuple(h) for h in found[1].headers] == [("h\ufffd\ufffdh", b"\xff"), ("good", None)]
    assert [r.timestamp for r in found] == [1000, 1001, 1000]
    assert [r.offset for r in read(data, 2)] == [2]


bytes_or_none = st.none() | st.binary(max_size=40)
names = st.sampled_from([BAD, "content-type", "ä", ""])
records = st.lists(st.tuples(bytes_or_none, bytes_or_none, st.lists(st.tuples(names, bytes_or_none), max_size=4)), min_size=1, max_size=8)


@given(st.lists(records, min_size=1, max_size=4))
def test_all_else_of_a_record_is_as_it_was_sent(batches: list[list[Record]]) -> None:
    whole, broken, first = b"", b"", 0
    for one in batches:
        whole += batch(first, one, break_names=False)
        broken += batch(first, one)
        first += len(one)
    for sent, got in zip(read(whole), read(broken), strict=True):
        assert (sent.offset, sent.timestamp, sent.key, sent.value) == (got.offset, got.timestamp, got.key, got.value)
        named = [(n.replace(BAD, "h\ufffd\ufffdh"), v) for n, v in sent.headers]
        assert named == [tuple(h) for h in got.headers]


def compressed(data: bytes, kind: int = GZIP) -> bytes:
    """A batch with its records behind a codec."""
    pack: Any = {GZIP: gzip.compress, LZ4: codec.cramjam.lz4.compress, ZSTD: codec.cramjam.zstd.compress}[kind]
    return packed(data, kind, bytes(pack(data[RECORDS_AT:])))


def packed(data: bytes, kind: int, records: bytes) -> bytes:
    """A batch with these bytes for its records, as a codec is said to have made them."""
    made = bytearray(data[:RECORDS_AT] + records)
    struct.pack_into(">h", made, AFTER_CRC, kind)
    return checked(bytes(made))


def checked(data: bytes) -> bytes:
    """A batch with the length and the checksum that brokers ask for."""
    made = bytearray(data)
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">I", made, CRC_AT, calc_crc32c(bytes(made[AFTER_CRC:])))
    return bytes(made)


@pytest.mark.parametrize("name", [BAD, "good"])
def test_what_is_compressed_is_read_too(name: str) -> None:
    data = compressed(batch(5, [(None, b"v" * 100, [(name, b"b")])] * 3))
    assert [(r.offset, r.value) for r in read(data + batch(8, [(None, b"w", [])]))] == [*((n, b"v" * 100) for n in (5, 6, 7)), (8, b"w")]
    assert fetcher.MemoryRecords is AnyHeaders, "for every consumer of the process"


@pytest.mark.parametrize("kind", [GZIP, LZ4, ZSTD])
def test_a_batch_that_unpacks_to_more_than_a_process_holds_is_one_record_that_nobody_can_read(kind: int) -> None:
    bomb = compressed(batch(5, [(None, b"a", []), (None, bytes(MOST_UNPACKED_BYTES), [])]), kind)
    found = read(bomb + batch(7, [(None, b"w", [])]))
    assert [(r.offset, r.value) for r in found] == [(6, too_large_value(5, 6, len(bomb))), (7, b"w")] and len(bomb) < 1024**2
    with pytest.raises(InvalidEvent, match="no JSON"):
        decode(found[0].value, found[0].headers)
    assert first_offset(found[0].value) == 5 and first_offset(found[1].value) is first_offset(None) is None
    large = compressed(batch(0, [(None, bytes(MOST_UNPACKED_BYTES // 2), [])]), kind)
    assert [len(r.value) for r in read(large)] == [MOST_UNPACKED_BYTES // 2]


def behind_gzip(records: bytes) -> bytes:
    """Bytes behind the end: Java passes over them, Python does not."""
    return gzip.compress(records) + b"more"


def wrong_checksum(records: bytes) -> bytes:
    """A frame of lz4 whose last bytes are not the checksum of its content: Kafka does not look at that."""
    made = bytearray(codec.cramjam.lz4.compress(records))
    made[-1] ^= 1
    return bytes(made)


def second_head(records: bytes) -> bytes:
    """Two streams of snappy, one behind the other, as Java reads them."""
    return bytes(codec.snappy_encode(records[:1]) + codec.snappy_encode(records[1:]))


@pytest.mark.parametrize(("kind", "pack"), [(GZIP, behind_gzip), (LZ4, wrong_checksum), (SNAPPY, second_head), (GZIP, bytes)])
def test_a_batch_that_only_brokers_can_unpack_stops_no_reader(kind: int, pack: Callable[[bytes], bytes]) -> None:
    plain = batch(5, [(None, b"v", []), (None, b"w", [])])
    sent = packed(plain, kind, pack(plain[RECORDS_AT:]))
    found = read(batch(4, [(None, b"u", [])]) + sent + batch(7, [(None, b"x", [])]))
    told = (6, too_large_value(5, 6, len(sent)))
    assert [(r.offset, r.value) for r in found] == [(4, b"u"), told, (7, b"x")]
    alone = batch_of(sent, 5)
    assert not alone.readable and [(r.offset, r.value) for r in alone.records] == [told]


def test_damaged_gzip_of_any_size_is_too_large_to_read() -> None:
    assert too_large(GZIP, memoryview(gzip.compress(b"")[:10] + b"\xff" * 100_000))


def test_records_that_cannot_be_read_are_told_behind_those_that_can() -> None:
    data = bytearray(batch(0, [(None, b"one", []), (None, b"two", []), (None, b"three", [])]))
    data[data.index(b"two") - 1] = 0x7F  # a length beyond the record's own
    struct.pack_into(">I", data, CRC_AT, calc_crc32c(bytes(data[AFTER_CRC:])))
    assert [(r.offset, r.value) for r in read(bytes(data))] == [(0, b"one"), (2, too_large_value(1, 2, len(data)))]


@pytest.mark.parametrize("kind", [GZIP, LZ4, ZSTD])
def test_a_small_batch_that_is_damaged_is_one_record_that_nobody_can_read(kind: int) -> None:
    """Brokers check neither the checksum of an lz4 frame's content nor what stands behind gzip's end: such a batch is taken."""
    sent = compressed(batch(5, [(None, b"v" * 400, [])] * 3), kind)
    broken = checked(sent[:-3] + bytes(b ^ 0xFF for b in sent[-3:]))
    found = read(broken + batch(8, [(None, b"w", [])]))
    assert [(r.offset, r.value) for r in found] == [(7, too_large_value(5, 7, len(broken))), (8, b"w")]
    with pytest.raises(InvalidEvent):
        decode(found[0].value, found[0].headers)


def test_what_this_process_lacks_sets_no_batch_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = compressed(batch(5, [(None, b"v" * 400, [])]), LZ4)
    monkeypatch.setattr(codec, "cramjam", None)
    with pytest.raises(UnsupportedCodecError):
        read(sent)


@pytest.mark.parametrize("kind", [GZIP, LZ4, ZSTD])
def test_what_the_codec_cannot_blow_up_costs_nothing(kind: int) -> None:
    small = compressed(batch(0, [(None, b"v" * 1000, [])]), kind)
    assert [r.value for r in read(small)] == [b"v" * 1000]
    assert not too_large(kind, memoryview(b"junk")) or kind == ZSTD


def test_our_other_client_gives_no_headers_and_is_asked_once() -> None:
    class Message:
        """A message as confluent_kafka makes one: the second question reads what the first one broke."""

        set: list[Any] | None = None

        def headers(self) -> list[Any]:
            if self.set is None:
                raise SystemError("returned a result with an exception set")
            return self.set

        def set_headers(self, headers: list[Any]) -> None:
            self.set = headers

    message: Any = Message()
    assert headers_of(message) == [] == headers_of(message) and message.set == []
