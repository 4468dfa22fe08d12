"""Input of a starting detector: the last heartbeats of a partition, and earlier verdicts.

Holds: bounded in records, and as far as the end that was there when it began. Heartbeats go back far enough that a node which fell silent
just before is among them; of long ago, the last one of a node is enough.
"""

from collections.abc import Sequence
from itertools import pairwise

from trainhouse.events import InvalidEvent
from trainhouse.events.wire.codec import decode
from trainhouse.events.wire.topics import VERDICTS
from trainhouse.scheduler.core.detector import IssuedVerdict, Standings, recall
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.stream.interfaces import Entry, Log

VERDICTS_BACK = 5_000
"""Of each partition. A standing verdict from even before is published once more."""
LEAST_HEARTBEATS = 2_000
MOST_HEARTBEATS = 16_000
SPAN_MS = 180_000
"""More than the silence after which a node is lost, at an interval of 10 s; of time in which heartbeats came."""
LONGEST_PAUSE_MS = 5_000
WAIT_S = 1.0
MAX_WAITS = 20


async def read_back(log: Log, topic: str, partition: int, count: int) -> tuple[list[Entry], int]:
    """The last records, `count` offsets of them, and where they end. Raises LogUnavailableError when the brokers do not give them."""
    start, end = await log.bounds(topic, partition)
    position, waits = max(start, end - count), 0
    found: list[Entry] = []
    if position >= end:
        return found, end
    tail = await log.open_tail(topic, {partition: position})
    try:
        while position < end:
            found.extend(e for e in await tail.take(WAIT_S) if e.offset < end)
            before, position = position, await tail.position(partition)
            waits = 0 if position > before else waits + 1
            if waits > MAX_WAITS:
                raise LogUnavailableError(f"{topic}-{partition} gave nothing at offset {position}")
    finally:
        await tail.close()
    return found, end


async def last_heartbeats(log: Log, topic: str, partition: int) -> tuple[list[Entry], int]:
    """The heartbeats of the last while, in order, and where they end. Raises LogUnavailableError."""
    count = LEAST_HEARTBEATS
    while True:
        entries, end = await read_back(log, topic, partition, count)
        whole = len(entries) < count or _span_ms(entries) >= SPAN_MS
        if whole or count >= MOST_HEARTBEATS:
            return _thinned(entries), end
        count = min(4 * count, MOST_HEARTBEATS)


def _span_ms(entries: Sequence[Entry]) -> int:
    """Returns the time covered by heartbeats, pauses of the brokers left out: a node that died in one must still be detected."""
    apart = (later.timestamp_ms - earlier.timestamp_ms for earlier, later in pairwise(entries))
    return sum(min(max(0, gap_ms), LONGEST_PAUSE_MS) for gap_ms in apart)


def _thinned(entries: Sequence[Entry]) -> list[Entry]:
    """The newest LEAST_HEARTBEATS, and before them the last one of each node that is not among them."""
    newest = list(entries[-LEAST_HEARTBEATS:])
    known = {e.key for e in newest}
    older: list[Entry] = []
    for entry in reversed(entries[:-LEAST_HEARTBEATS]):
        if entry.key not in known:
            known.add(entry.key)
            older.append(entry)
    return older[::-1] + newest


async def published_verdicts(log: Log) -> Standings:
    """Returns the standing verdicts on each node, as published earlier. Raises LogUnavailableError."""
    known: Standings = {}
    for partition in await log.partitions(VERDICTS):
        for entry in (await read_back(log, VERDICTS, partition, VERDICTS_BACK))[0]:
            try:
                envelope = decode(entry.value, entry.headers)
            except InvalidEvent:
                continue
            recall(known, IssuedVerdict(str(envelope.id), envelope.event, (entry.key or b"").decode("utf-8", "replace")))
    return known
