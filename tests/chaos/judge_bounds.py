"""Rules over what a campaign left of its bounds: each returns complaints; none means that the rule holds.

Rules: what outsiders sent was answered, as a dead letter where it cannot be read; every partition decides at the end; the journals grow no
faster, and no process has more memory, than it may.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tests.chaos.evidence import Evidence, Place
from tests.chaos.outsiders import Sent
from trainhouse.events.wire import topics

MIB: Final = 1024**2
# The aim for a fleet of 10,000 GPUs; two nodes under faults stay far below it.
MOST_JOURNAL_BYTES_A_DAY: Final = 2 * 1024**3
# The broker has a heap of 512 MiB and what a JVM needs beside it; the projector has a database in it.
MOST_BYTES: Final = {"kafka": 1536 * MIB, "store": 1024 * MIB, "projector": 3072 * MIB}
MOST_BYTES_ELSE: Final = 768 * MIB


def answered(evidence: Evidence, sent: Iterable[Sent]) -> Iterable[str]:
    """What cannot be read is a dead letter; of the public topic, everything else went on, or is one too."""
    for one in sent:
        place = one.topic, one.partition, one.offset
        if one.topic not in (topics.JOBS, topics.CONTROL, topics.ADMISSION) or place in evidence.letters:
            continue
        if not one.readable:
            yield f"{one.topic}[{one.partition}]@{one.offset} cannot be read, and is no dead letter"
        elif one.topic == topics.JOBS and one.event_id not in evidence.admitted:
            yield f"{one.topic}[{one.partition}]@{one.offset} ({one.event_id}) was not answered"


def shown(letters: Collection[Place], sent: Iterable[Sent], read: Collection[str]) -> Iterable[str]:
    """SQL has each record that cannot be read, of the topics that the projector reads."""
    for one in sent:
        place = one.topic, one.partition, one.offset
        if not one.readable and one.topic in read and place not in letters:
            yield f"{one.topic}[{one.partition}]@{one.offset} cannot be read, and SQL has no dead letter of it"


def every_partition_decides(evidence: Evidence, before: Mapping[tuple[str, int], int]) -> Iterable[str]:
    """After all was healed each partition took an input in. `before`: where each journal ended then."""
    for (journal, partition), end in sorted(before.items()):
        if evidence.decided.get((journal, partition), -1) < end:
            yield f"{journal}-{partition} took nothing in after all was healed"


def bounded(journal_bytes_a_day: float, peaks: Mapping[str, int]) -> Iterable[str]:
    """Bytes of the journals a day, and of each process in memory."""
    if journal_bytes_a_day > MOST_JOURNAL_BYTES_A_DAY:
        yield f"the journals grow by {journal_bytes_a_day / 1024**3:.1f} GiB a day"
    for part, peak in sorted(peaks.items()):
        most = MOST_BYTES.get(part, MOST_BYTES_ELSE)
        if peak > most:
            yield f"{part} had {peak / MIB:.0f} MiB in memory, at most {most / MIB:.0f} are allowed"
