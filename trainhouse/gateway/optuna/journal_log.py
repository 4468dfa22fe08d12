"""One log of Optuna's operations as a chain of numbered segments. Pure.

Holds: the chain's order is the log's; an append has an id, and counts once however often it is in the chain. A bundle is the
concatenation of BUNDLED segments: the same bytes, whichever gateway makes it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from trainhouse.checkpointing.errors import DamagedError
from trainhouse.events.model.dataset_keys import project_word

PREFIX: Final = "optuna/"
BUNDLED: Final = 256
"""Segments of a bundle."""
FORMAT: Final = 1


@dataclass(frozen=True)
class Append:
    """Operations that one request appends together. `at_ms`: by the clock of the gateway that took it first."""

    append_id: str
    user: str
    at_ms: int
    lines: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of its lines, each with its end."""
        return sum(len(line) + 1 for line in self.lines)


@dataclass(frozen=True)
class Place:
    """Lines that an append has in the log: the first one's number, and how many."""

    first: int
    count: int


@dataclass
class JournalLog:
    """The log as far as it was read: `segments` of them."""

    segments: int = 0
    size_bytes: int = 0
    lines: list[str] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    _appends: list[Append] = field(default_factory=list)
    _bounds: list[int] = field(default_factory=list)
    """By segment: how many appends the log has with it."""

    def take(self, appends: Sequence[Append]) -> list[tuple[Append, Place]]:
        """Takes the next segment in; returns its appends that are new."""
        fresh = list[tuple[Append, Place]]()
        for each in appends:
            self._appends.append(each)
            if each.append_id in self.places:
                continue
            self.places[each.append_id] = place = Place(len(self.lines), len(each.lines))
            self.lines += each.lines
            self.size_bytes += each.size_bytes
            fresh.append((each, place))
        self.segments += 1
        self._bounds.append(len(self._appends))
        return fresh

    def is_same(self, append: Append) -> bool:
        """Whether the append that has this id in the log has the same lines."""
        place = self.places[append.append_id]
        return tuple(self.lines[place.first : place.first + place.count]) == append.lines

    def bundle(self, number: int) -> bytes:
        """Content of a bundle whose segments are all read; the first one has number 0."""
        first, last = number * BUNDLED, (number + 1) * BUNDLED
        bounds = [0, *self._bounds]
        return encode([self._appends[bounds[n] : bounds[n + 1]] for n in range(first, last)])

    def page(self, first: int, most_bytes: int) -> list[str]:
        """Lines from a number on: at least one, if there is one, and no more than so many bytes of them."""
        last, size_bytes = first, 0
        while last < len(self.lines) and (size_bytes := size_bytes + len(self.lines[last])) <= most_bytes:
            last += 1
        return self.lines[first : max(last, first + 1)]


def logs_prefix(project: str) -> str:
    """Prefix of the objects of all logs of a project."""
    return f"{PREFIX}{project_word(project)}/"


def log_prefix(project: str, name: str) -> str:
    """Prefix of a log's objects."""
    return f"{logs_prefix(project)}{name}/"


def segments_prefix(project: str, name: str) -> str:
    """Prefix of a log's segments."""
    return f"{log_prefix(project, name)}segments/"


def segment_key(project: str, name: str, number: int) -> str:
    """Key of a segment; the first one has number 0."""
    return f"{segments_prefix(project, name)}{number:010d}.json"


def bundle_key(project: str, name: str, number: int) -> str:
    """Key of a bundle; the first one has number 0."""
    return f"{log_prefix(project, name)}bundles/{number:010d}.json"


def encode(segments: Iterable[Sequence[Append]]) -> bytes:
    """Bytes of a segment, or of the several of a bundle."""
    packed = [[[each.append_id, each.user, each.at_ms, each.lines] for each in appends] for appends in segments]
    return orjson.dumps({"format": FORMAT, "segments": packed})


def decode(content: bytes, uri: str) -> list[list[Append]]:
    """The segments of an object. Raises DamagedError."""
    try:
        stored: Any = orjson.loads(content)
        if stored["format"] != FORMAT:
            raise DamagedError(f"{uri} has format {stored['format']}, and this program reads {FORMAT}: run a newer one")
        return [[Append(one, user, at_ms, tuple(lines)) for one, user, at_ms, lines in appends] for appends in stored["segments"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{uri} is no segment of a log of Optuna's: {error}") from error
