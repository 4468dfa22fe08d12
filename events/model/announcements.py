"""Announcements of running programs, as records of their topic. Pure, without models."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

ANNOUNCED_EVERY_MS: Final = 60_000
GONE_AFTER_MS: Final = 3 * ANNOUNCED_EVERY_MS


@dataclass(frozen=True, slots=True)
class Announced:
    """A record of the topic of updates, with its append time."""

    key: bytes | None
    value: bytes | None
    appended_ms: int


def fresh(records: Iterable[Announced], now_ms: int) -> list[bytes | None]:
    """The newest value of each key, of those that were appended within the last minutes."""
    newest = {record.key: record for record in records}
    return [record.value for record in newest.values() if now_ms - record.appended_ms < GONE_AFTER_MS]
