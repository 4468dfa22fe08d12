"""The topic of repairs read: the records of a journal that count as empty."""

from collections.abc import Iterable, Mapping

from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.model.repair import JournalRepaired
from trainhouse.events.wire.codec import HEADERS, decode
from trainhouse.events.wire.journal import record_hash


def is_emptied(value: bytes | None, emptied: frozenset[str]) -> bool:
    """Whether these bytes are a record that counts as empty. Hashes nothing where no journal was ever repaired."""
    return bool(emptied) and value is not None and record_hash(value) in emptied


class Repairs(frozenset[str]):
    """The hashes of a journal's records that count as empty. `places`: the partition of each, and the seq that it takes, if any."""

    places: Mapping[str, tuple[int, int | None]]

    @classmethod
    def of(cls, places: Mapping[str, tuple[int, int | None]]) -> "Repairs":
        found = cls(places)
        found.places = dict(places)
        return found

    def behind(self, partition: int, seq: int, known: frozenset[str]) -> bool:
        """Whether a state up to `seq` has folded a record of the partition that counts as empty. `known`: the repairs that it rests on."""
        return any(of == partition and taken is not None and taken <= seq for hash_ in self - known for of, taken in (self.places[hash_],))


NO_REPAIRS = Repairs.of({})


def emptied_by(repairs: Iterable[bytes | None], journal: str) -> Repairs:
    """A journal's records that count as empty, from the values of the topic of repairs."""
    found: dict[str, tuple[int, int | None]] = {}
    for value in repairs:
        try:
            event = decode(value, HEADERS).event
        except InvalidEvent:
            continue
        if isinstance(event, JournalRepaired) and event.journal == journal:
            found[event.record_hash] = event.partition, event.seq
    return Repairs.of(found)
