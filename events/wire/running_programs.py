"""The topic of updates read: which programs run, and which level an operator finished."""

from collections.abc import Iterable

from trainhouse.events.model.announcements import Announced as Announced
from trainhouse.events.model.announcements import fresh
from trainhouse.events.model.base import Event
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.model.upgrade import ProgramRunning, UpgradeFinished
from trainhouse.events.wire.codec import HEADERS, decode


def finished_level(values: Iterable[bytes | None], journal: str, most: int) -> UpgradeFinished | None:
    """The highest level that an operator finished for a journal, of those that a program with that fold_version can write."""
    found = [e for e in _events(values) if isinstance(e, UpgradeFinished) and e.journal == journal and e.level <= most]
    return max(found, key=lambda e: (e.level, -e.at_ms), default=None)


def running(records: Iterable[Announced], now_ms: int) -> list[ProgramRunning]:
    """The processes that announced themselves within the last minutes: of each what it said last, by journal and name.

    Times are the brokers', so that no process is taken for gone because its clock is off.
    """
    return sorted((e for e in _events(fresh(records, now_ms)) if isinstance(e, ProgramRunning)), key=lambda e: (e.journal, e.process))


def _events(values: Iterable[bytes | None]) -> Iterable[Event]:
    for value in values:
        try:
            yield decode(value, HEADERS).event
        except InvalidEvent:
            continue
