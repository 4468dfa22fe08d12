"""One object of the archive: consecutive records of a topic partition, with the offsets that it covers.

Readable by hand: gzip of JSON lines (`zcat … | jq`). A head line with the place and the offsets, a line a record, a last line with the
SHA-256 of all bytes before it, which the next object's head line names as its `previous`.
Holds: pure; equal records give equal bytes, and every record comes back byte for byte; what is damaged is refused.
"""

import base64
import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

from trainhouse.events.archive.errors import ArchiveCorruptError

FORMAT = 1
# Level 9 takes four times the time for a hundredth fewer bytes.
COMPRESSION = 6
_BASE64 = "base64"
GENESIS = "0" * 64
"""What the first object of a chain names as the one before it."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of a topic partition, as a reader of committed records gets it. `timestamp_ms` is the broker's, 0 where there is none."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Of key and value."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class Segment:
    """Every record of the offsets [first, end). Offsets without a record are of transactions' markers, or of what was aborted."""

    topic: str
    partition: int
    first: int
    end: int
    records: tuple[LogRecord, ...]
    # The seal of the object before: so whoever changes one has to change all behind it. Empty in objects of before there were chains.
    previous: str = ""

    def encode(self) -> bytes:
        """The object's bytes."""
        head = {
            "format": FORMAT,
            "topic": self.topic,
            "partition": self.partition,
            "first": self.first,
            "end": self.end,
            "records": len(self.records),
            **({"previous": self.previous} if self.previous else {}),
        }
        body = b"".join(orjson.dumps(line) + b"\n" for line in (head, *map(_line, self.records)))
        return gzip.compress(body + _seal(body), COMPRESSION, mtime=0)


def decode(key: str, content: bytes) -> Segment:
    """Reads an object back. `key` is its name, for messages. Raises ArchiveCorruptError."""
    try:
        head, *lines = _checked(gzip.decompress(content)).splitlines()
        about = orjson.loads(head)
        if about["format"] != FORMAT:
            raise ArchiveCorruptError(f"{key} has format {about['format']}, this program reads {FORMAT}: use a newer one")
        records = tuple(_record(int(about["partition"]), orjson.loads(line)) for line in lines)
        segment = Segment(
            str(about["topic"]), int(about["partition"]), int(about["first"]), int(about["end"]), records, str(about.get("previous", ""))
        )
        if len(records) != about["records"] or not _in_order(segment):
            raise ValueError("its records are not those that its head names")
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise ArchiveCorruptError(f"the archive's object {key} is damaged ({error}): put a copy of it in its place") from error
    return segment


def seal_of(content: bytes) -> str:
    """The SHA-256 that a sound object ends with: what the next one names."""
    return str(orjson.loads(gzip.decompress(content).splitlines()[-1])["sha256"])


def cut(records: Iterable[LogRecord], max_bytes: int) -> Iterator[Sequence[LogRecord]]:
    """Consecutive groups, each closed by the record that brings it to `max_bytes`; the last one may be smaller."""
    group: list[LogRecord] = []
    size = 0
    for record in records:
        group.append(record)
        size += record.size_bytes
        if size >= max_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group


def _seal(body: bytes) -> bytes:
    return orjson.dumps({"sha256": hashlib.sha256(body).hexdigest()}) + b"\n"


def _checked(content: bytes) -> bytes:
    body = content[: content.rfind(b"\n", 0, -1) + 1]
    if content[len(body) :] != _seal(body):
        raise ValueError("its SHA-256 is another one than it says")
    return body


def _in_order(segment: Segment) -> bool:
    offsets = [segment.first - 1, *(r.offset for r in segment.records), segment.end]
    return all(a < b for a, b in pairwise(offsets))


def _line(record: LogRecord) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _text(record.key),
        "headers": [[name, _text(value)] for name, value in record.headers],
        "value": _text(record.value),
    }


def _record(partition: int, line: dict[str, Any]) -> LogRecord:
    headers = tuple((str(name), _bytes(value)) for name, value in line["headers"])
    return LogRecord(partition, int(line["offset"]), int(line["timestamp_ms"]), _bytes(line["key"]), _bytes(line["value"]), headers)


def _text(value: bytes | None) -> str | dict[str, str] | None:
    """Bytes as text where they are text, so that people can read them."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(value).decode()}


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else base64.b64decode(value[_BASE64], validate=True)
