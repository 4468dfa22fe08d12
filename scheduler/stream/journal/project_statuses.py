"""Keeps what is for projects' status topics to those topics that there are.

Holds: a topic that the brokers list is written to; whether there is one is asked at most once in `AGAIN_S`, so that whatever is published
later than that after a topic was made is on it. The same goes for one that was removed. Where that happens while a batch is on its way,
the batch is given up and sent anew without it, at once: clients would ask the brokers for it for seconds, and all other statuses wait.
Never: makes a topic; changes what is for any other topic; gives up a batch whose topics are there, or brokers that are slow.
"""

import asyncio
from collections.abc import Coroutine, Sequence

from trainhouse.events.wire.project_topics import STATUS_PREFIX, TOPICS_COUNT_AFTER_S
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.protocol.publication import Outgoing
from trainhouse.scheduler.stream.interfaces import Clock, Log

AGAIN_S = TOPICS_COUNT_AFTER_S


class ProjectStatuses:
    """Status topics of projects that exist, as one publisher knows them."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._there: set[str] = set()
        self._asked_s: dict[str, float] = {}

    def forget(self) -> None:
        """Forgets the known topics, so that the log is asked again."""
        self._there.clear()
        self._asked_s.clear()

    async def keep(self, batch: Sequence[Outgoing]) -> list[Outgoing]:
        """The batch without what is for topics that do not exist. Raises LogUnavailableError."""
        named = _named(batch)
        if not named:
            return list(batch)
        now_s = self._clock.steady_s()
        due = {t for t in named if now_s - self._asked_s.get(t, float("-inf")) >= AGAIN_S}
        if due:
            self._there = (self._there - due) | await self._log.existing(due)
            self._asked_s |= dict.fromkeys(due, now_s)
        return [out for out in batch if out.topic not in named or out.topic in self._there]

    async def sent(self, batch: Sequence[Outgoing], sending: Coroutine[None, None, None]) -> None:
        """Waits until a batch is out. Raises LogUnavailableError as soon as one of its topics is known to be gone, and what `sending`
        raises."""
        named = _named(batch)
        if not named:
            await sending
            return
        task = asyncio.ensure_future(sending)
        try:
            while not (await asyncio.wait([task], timeout=AGAIN_S))[0]:
                gone = named - await self._log.existing(named)
                if gone and not task.done():
                    raise LogUnavailableError(
                        f"{', '.join(sorted(gone)[:5])}: removed while a batch was on its way; it is sent anew without that"
                    )
            task.result()
        finally:
            task.cancel()


def _named(batch: Sequence[Outgoing]) -> set[str]:
    return {out.topic for out in batch if out.topic.startswith(STATUS_PREFIX)}
