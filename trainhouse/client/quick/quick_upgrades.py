"""Progress of an update, read without the machines of the journals and without models.

Holds: the same as `scheduler.stream.history.upgrade_reading`; a partition whose newest record is gone or no record, and a program that
cannot be read plainly, raise NotQuickError.
"""

from typing import Any

import orjson

from trainhouse.client.quick.plain_events import NotPlainError, plain_record
from trainhouse.client.quick.quick_topics import NotQuickError, QuickTopics, TopicReader
from trainhouse.events.model.announcements import Announced, fresh
from trainhouse.events.wire.topics import UPGRADES
from trainhouse.scheduler.core.protocol.levels import KNOWN_LEVELS
from trainhouse.scheduler.upgrades import JournalUpgrade, PartitionLevel

RUNNING = "trainhouse.upgrade.program-running.v1"


def upgrades_of(topics: QuickTopics) -> list[JournalUpgrade]:
    """Every journal. Blocks. Raises NotQuickError."""
    with topics.reader() as reader:
        announced = [Announced(m.key(), m.value(), m.timestamp()[1]) for m in reader.messages(UPGRADES)]
        levels = {journal: _levels(reader, journal) for journal in KNOWN_LEVELS}
    # One clock for all: the brokers'.
    now_ms = max([a.appended_ms for a in announced] + [p.appended_ms for found in levels.values() for p in found], default=0)
    programs = sorted(map(_program, fresh(announced, now_ms)), key=lambda p: (p.journal, p.process))
    return [
        JournalUpgrade(journal, known.fold, levels[journal], [p for p in programs if p.journal == journal], now_ms)
        for journal, known in KNOWN_LEVELS.items()
    ]


def _levels(reader: TopicReader, journal: str) -> list[PartitionLevel]:
    found = []
    for partition, message in sorted(reader.newest_records(journal).items()):
        if message is None:
            found.append(PartitionLevel(partition, 0))
            continue
        try:
            head = orjson.loads(message.value() or b"")
            level, owner = head["fold_version"], head.get("owner", "")
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise NotQuickError(f"topic {journal}: {error!r}") from error
        if type(level) is not int or type(owner) is not str or type(head.get("seq")) is not int:
            raise NotQuickError(f"topic {journal}: its newest record is none of a journal")
        found.append(PartitionLevel(partition, level, owner, message.timestamp()[1]))
    return found


def _program(value: bytes | None) -> Any:
    try:
        found = None if value is None else plain_record(value, (RUNNING,))
    except NotPlainError as error:
        raise NotQuickError(str(error)) from error
    if found is None:
        raise NotQuickError(f"topic {UPGRADES} has something else than programs")
    return found
