"""Log lines of a job's ranks over the gateway, in the order in which the agents read them.

Holds: a line is given once: what was read of each rank and stream is known by its place in its file; pages are read newest first until
they reach what is known, so that asking again and again costs one request.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainhouse.client.backend_protocol import BATCH_LINES, CATCH_UP_S, Line
from trainhouse.client.gateway.exchange import Flow, Request
from trainhouse.client.gateway.reads import PAGE, job_path, of_job

Stream = tuple[int, int, str]
STREAMS = ("stdout", "stderr")


@dataclass
class GatewayLines:
    """Reads on from where it stopped. `wanted`: rank, stream, attempt, None for any; `tail`: begin with so many of each rank and stream."""

    run: Callable[[Flow[Any]], Any]
    job_id: str
    wanted: Mapping[str, Any]
    tail: int | None = None
    after: str | None = None
    _read: dict[Stream, int] = field(default_factory=dict)
    _waiting: list[Line] = field(default_factory=list)
    _cursor: str | None = None
    _whole: bool = False
    _caught_up: bool = True

    def more(self) -> Iterator[Line]:
        """Yields what is new, a batch at most. Blocks. Raises UnknownJobError."""
        if self.tail is not None:
            self._waiting, self.tail, self._whole = self._tail(self.tail), None, True
        elif not self._waiting:
            self._waiting = self._new() if self._whole else self._next()
        batch, self._waiting = self._waiting[:BATCH_LINES], self._waiting[BATCH_LINES:]
        yield from batch

    def catch_up(self, wait_s: float = CATCH_UP_S) -> None:
        """Makes the next page wait, at the gateway, for what the brokers hold by then. Does not block."""
        self._caught_up = False

    def _next(self) -> list[Line]:
        """The next page from the first line on, until the end was reached once."""
        page, self._cursor = self.run(self._page({**self.wanted, "from": "oldest"}, PAGE, self._cursor))
        self._whole = self._cursor is None
        self._mark(page)
        return list(page)

    def _new(self) -> list[Line]:
        """Lines that were not read yet, oldest first. The mark is moved for all of them: they are kept here until they are yielded."""
        found: list[Line] = []
        cursor: str | None = None
        while True:
            page, cursor = self.run(self._page(self.wanted, PAGE, cursor))
            fresh = [line for line in page if line.offset > self._read.get((line.epoch, line.rank, line.stream), -1)]
            found = fresh + found
            # A whole page of lines that are known: what comes before it is known, too.
            if cursor is None or (self._read and not fresh):
                break
        self._mark(found)
        return found

    def _tail(self, lines: int) -> list[Line]:
        """The last `lines` of each rank and stream."""
        ranks = [self.wanted["rank"]] if self.wanted["rank"] is not None else self.run(self._ranks())
        streams = [self.wanted["stream"]] if self.wanted["stream"] else STREAMS
        found: list[Line] = []
        for rank in ranks:
            for stream in streams:
                found += self._last({**self.wanted, "rank": rank, "stream": stream}, lines)
        found.sort(key=lambda line: (line.epoch, line.time, line.rank, line.stream, line.offset))
        self._mark(found)
        return found

    def _last(self, wanted: Mapping[str, Any], lines: int) -> list[Line]:
        found: list[Line] = []
        cursor: str | None = None
        while len(found) < lines:
            page, cursor = self.run(self._page(wanted, min(PAGE, lines - len(found)), cursor))
            found = page + found
            if cursor is None:
                break
        return found

    def _mark(self, lines: list[Line]) -> None:
        for line in lines:
            stream = (line.epoch, line.rank, line.stream)
            self._read[stream] = max(line.offset, self._read.get(stream, -1))

    def _page(self, wanted: Mapping[str, Any], limit: int, cursor: str | None) -> Flow[tuple[list[Line], str | None]]:
        params = {name: value for name, value in wanted.items() if value is not None} | {"limit": limit}
        params |= {"cursor": cursor} if cursor else {}
        params |= {"after": self.after} if self.after else {}
        if not self._caught_up:
            params["caught_up"], self._caught_up = "true", True  # a gateway of before leaves it out
        answer = (yield from of_job(self.job_id, Request("GET", job_path(self.job_id, "logs"), params))).json()
        return [line_of(item) for item in answer["items"]], answer["next_cursor"]

    def _ranks(self) -> Flow[list[int]]:
        answer = (yield from of_job(self.job_id, Request("GET", job_path(self.job_id), {"after": self.after} if self.after else {}))).json()
        return list(range(answer["world_size"] or 0))


def line_of(item: Mapping[str, Any]) -> Line:
    """A line of the gateway's; its time as the tables show it."""
    time = str(item["time"]).removesuffix("Z").replace("T", " ")
    return Line(time, item["epoch"], item["attempt"], item["rank"], item["stream"], item["offset"], item["line"])
