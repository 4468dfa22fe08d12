"""Hub of watchers: subscriptions, and the queue of each.

Holds: a job's status that waits is only its newest one; other news wait in a bounded queue, and a watcher that falls behind is cut with a
reason: it resumes by the last id that it got. A new watcher is told the statuses of the last seconds, since the projections, where it reads
what was before, may not have them yet. Belongs to one event loop.
Never: asks a server, or waits for a watcher.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

METRICS, LOG, EVENT, STATUS = "metrics", "log", "event", "status"
KINDS = (STATUS, METRICS, EVENT, LOG)
RECENT_S = 5.0
MOST_RECENT = 10_000


@dataclass(frozen=True, slots=True)
class News:
    """Something new of a job: the rows of one record on the bus, at `offset`; events of the story have no such order, and offset 0."""

    kind: str
    job_id: str
    rows: list[Any]
    offset: int


class Watcher:
    """One open stream: of a job, or of the whole fleet's statuses with `job_id` None."""

    def __init__(self, job_id: str | None, kinds: frozenset[str], room: int) -> None:
        self.job_id = job_id
        self.kinds = kinds
        self.cut = ""
        self._room = room
        self._statuses: dict[str, dict[str, Any]] = {}
        self._news: deque[News] = deque()
        self._woken = asyncio.Event()

    def on_status(self, job: dict[str, Any]) -> None:
        """A status; an older one of the job that waits still is replaced."""
        if STATUS in self.kinds:
            self._statuses[job["job_id"]] = job
            self._woken.set()

    def on_news(self, news: News) -> None:
        """News. A full queue cuts the watcher."""
        if news.kind not in self.kinds or self.cut:
            return
        if len(self._news) >= self._room:
            self.end(f"you read too slowly: {self._room} messages waited; connect again, with the last id that you got as Last-Event-ID")
            return
        self._news.append(news)
        self._woken.set()

    def end(self, reason: str) -> None:
        """Ends the stream after what waits already."""
        self.cut = self.cut or reason
        self._woken.set()

    def wake(self) -> None:
        """Ends a wait, with nothing to take."""
        self._woken.set()

    async def wait(self, timeout_s: float) -> bool:
        """Returns whether there is something to take or to look at, at the latest after `timeout_s`."""
        if not (self._statuses or self._news or self.cut):
            self._woken.clear()
            try:
                await asyncio.wait_for(self._woken.wait(), timeout_s)
            except TimeoutError:
                return False
        return True

    def take(self) -> tuple[list[dict[str, Any]], list[News]]:
        """All that waits."""
        statuses, news = list(self._statuses.values()), list(self._news)
        self._statuses.clear()
        self._news.clear()
        return statuses, news


class Hub:
    """All watchers. `limit` of them at once."""

    def __init__(self, limit: int, room: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._room = room
        self._clock_s = clock_s
        self._recent: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()
        self._of_job: dict[str, set[Watcher]] = {}
        self._of_fleet: set[Watcher] = set()
        self.changed = asyncio.Event()
        self.armed = {METRICS: asyncio.Event(), LOG: asyncio.Event()}

    async def ready(self, watcher: Watcher) -> None:
        """Waits until what comes from now on is told to a watcher: what was before, it asks for itself."""
        for kind, armed in self.armed.items():
            if kind in watcher.kinds and watcher.job_id is not None:
                await armed.wait()

    def __len__(self) -> int:
        return len(self._of_fleet) + sum(len(watchers) for watchers in self._of_job.values())

    @property
    def full(self) -> bool:
        """True if there is no room for another watcher."""
        return len(self) >= self._limit

    def join(self, job_id: str | None, kinds: frozenset[str]) -> Watcher:
        """A new watcher, from some seconds ago on."""
        watcher = Watcher(job_id, kinds, self._room)
        self._forget()
        for _, job in self._recent.values() if job_id is None else filter(None, [self._recent.get(job_id)]):
            watcher.on_status(job)
        (self._of_fleet if job_id is None else self._of_job.setdefault(job_id, set())).add(watcher)
        self.changed.set()
        return watcher

    def leave(self, watcher: Watcher) -> None:
        """Forgets a watcher."""
        if watcher.job_id is None:
            self._of_fleet.discard(watcher)
            return
        left = self._of_job.get(watcher.job_id, set())
        left.discard(watcher)
        if not left:
            self._of_job.pop(watcher.job_id, None)

    def watched(self, kind: str) -> list[str]:
        """Jobs of which somebody wants this kind."""
        return [job_id for job_id, watchers in self._of_job.items() if any(kind in w.kinds for w in watchers)]

    def status(self, job: dict[str, Any]) -> None:
        """A job has a new status."""
        self._recent.pop(job["job_id"], None)
        self._recent[job["job_id"]] = (self._clock_s(), job)
        self._forget()
        for watcher in (*self._of_job.get(job["job_id"], ()), *self._of_fleet):
            watcher.on_status(job)

    def news(self, news: News) -> None:
        """Something is new of a job."""
        for watcher in self._of_job.get(news.job_id, ()):
            watcher.on_news(news)

    def wake(self) -> None:
        """Lets every stream look at whether its token still counts."""
        for watcher in self._everybody():
            watcher.wake()

    def end(self, reason: str) -> None:
        """Ends all streams."""
        for watcher in self._everybody():
            watcher.end(reason)

    def _forget(self) -> None:
        """Statuses that are recent no more. The oldest one comes first."""
        since_s = self._clock_s() - RECENT_S
        while self._recent and (len(self._recent) > MOST_RECENT or next(iter(self._recent.values()))[0] < since_s):
            self._recent.popitem(last=False)

    def _everybody(self) -> Iterator[Watcher]:
        yield from self._of_fleet
        for watchers in self._of_job.values():
            yield from watchers
