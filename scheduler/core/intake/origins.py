"""The records of the public topics that the directory has handled, exactly: by topic id, partition and offset.

Holds: every record counts once, in whatever order intakes re-key it and however often: an offset that was not noted is new, also one that
lies behind others. Bounded: a bit an offset; of each partition the newest MOST_PAGES pages, and what lies before counts as handled; of
partitions those that something came from last.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from trainhouse.events.wire.envelope import Origin

PAGE: Final = 4_096
"""Offsets to a page of bits."""
MOST_PAGES: Final = 1_024
MOST_SOURCES: Final = 65_536


@dataclass(slots=True)
class Pages:
    """The handled offsets of one partition. `floor`: the first page that is kept; all before is handled."""

    floor: int = 0
    bits: dict[int, int] = field(default_factory=dict)

    def has(self, offset: int) -> bool:
        page, place = divmod(offset, PAGE)
        return page < self.floor or bool(self.bits.get(page, 0) >> place & 1)

    def note(self, offset: int) -> None:
        page, place = divmod(offset, PAGE)
        if page < self.floor:
            return
        self.bits[page] = self.bits.get(page, 0) | 1 << place
        if len(self.bits) > MOST_PAGES:
            lowest = min(self.bits)
            del self.bits[lowest]
            self.floor = lowest + 1

    def copy(self) -> "Pages":
        return Pages(self.floor, dict(self.bits))


class Origins:
    """By source; a fork copies a partition's pages before it changes them."""

    def __init__(self, sources: dict[str, Pages] | None = None, shared: bool = False) -> None:
        self._sources = {} if sources is None else sources
        self._own: set[str] | None = set() if shared else None

    def fork(self) -> "Origins":
        """Another one to decide on; this one must not change meanwhile."""
        return Origins(dict(self._sources), shared=True)

    def copy(self) -> "Origins":
        """Another one that keeps what is here now."""
        return Origins({source: pages.copy() for source, pages in self._sources.items()})

    def has(self, origin: Origin) -> bool:
        """Whether the record was handled."""
        pages = self._sources.get(origin.source)
        return pages is not None and pages.has(origin.offset)

    def note(self, origin: Origin) -> None:
        """The record is handled; its partition is the one that something came from last."""
        source = origin.source
        pages = self._sources.pop(source, None) or Pages()
        if self._own is not None and source not in self._own:
            self._own.add(source)
            pages = pages.copy()
        pages.note(origin.offset)
        self._sources[source] = pages
        if len(self._sources) > MOST_SOURCES:
            del self._sources[next(iter(self._sources))]

    def dump(self) -> list[Any]:
        """As JSON, in the order in which partitions go; empty where nothing was noted."""
        return [[source, p.floor, [[page, f"{p.bits[page]:x}"] for page in sorted(p.bits)]] for source, p in self._sources.items()]

    @classmethod
    def load(cls, dumped: list[Any]) -> "Origins":
        """Reads it back."""
        return cls({source: Pages(floor, {page: int(bits, 16) for page, bits in pages}) for source, floor, pages in dumped})
