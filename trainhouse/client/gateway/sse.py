"""Server-sent events, parsed as they come (WHATWG HTML, section 9.2.6).

Holds: pure; a parser gives each event once, however the lines were cut; the last id survives a broken connection.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_EVENT_CHARS = 4 * 1024 * 1024


@dataclass(frozen=True)
class ServerEvent:
    """One event. `id` is what Last-Event-ID takes to go on after it."""

    kind: str
    data: str
    id: str


@dataclass
class EventParser:
    """Feed it lines without their ends; it gives an event when one is whole."""

    last_id: str = ""
    _kind: str = ""
    _data: list[str] = field(default_factory=list)
    _chars: int = 0
    _rest: bytes = b""

    def take(self, chunk: bytes) -> Iterator[ServerEvent]:
        """Events that end in this piece of the stream, wherever it was cut. Lines end with LF or CR LF, and with nothing else."""
        self._rest += chunk
        if len(self._rest) > MAX_EVENT_CHARS and b"\n" not in chunk:
            raise ValueError("a line of the stream has no end")
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            event = self.feed(line.removesuffix(b"\r").decode("utf-8", "replace"))
            if event is not None:
                yield event

    def feed(self, line: str) -> ServerEvent | None:
        """The event that this line ends, if it does. Raises ValueError for one without bound."""
        if line == "":
            return self._end()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._chars += len(value)
            if self._chars > MAX_EVENT_CHARS:
                raise ValueError("an event of the stream has no end")
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id" and "\0" not in value:
            self.last_id = value
        return None

    def broken(self) -> None:
        """The connection broke: what was not whole is dropped."""
        self._begin()
        self._rest = b""

    def _begin(self) -> None:
        self._kind, self._data, self._chars = "", [], 0

    def _end(self) -> ServerEvent | None:
        found = ServerEvent(self._kind or "message", "\n".join(self._data), self.last_id) if self._data else None
        self._begin()
        return found
