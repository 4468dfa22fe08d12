"""Keeps what is for projects' status topics to those topics that there are.

Holds: a topic that the brokers list is written to; whether there is one is asked at most once in `AGAIN_S`, so that whatever is published
later than that after a topic was made is on it. Each session of a publisher asks anew: a topic that was removed stops nobody for long.
Never: makes a topic; changes what is for any other topic.
"""

from collections.abc import Sequence

from trainhouse.events.project_topics import STATUS_PREFIX, TOPICS_COUNT_AFTER_S
from trainhouse.scheduler.core.outgoing import Outgoing
from trainhouse.scheduler.stream.ports import Clock, Log

AGAIN_S = TOPICS_COUNT_AFTER_S


class ProjectStatuses:
    """What one publisher knows of the projects' status topics."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._there: set[str] = set()
        self._asked_s: dict[str, float] = {}

    def forget(self) -> None:
        """Whatever is there is asked again."""
        self._there.clear()
        self._asked_s.clear()

    async def keep(self, batch: Sequence[Outgoing]) -> list[Outgoing]:
        """The batch without what is for topics that do not exist. Raises LogUnavailable."""
        named = {out.topic for out in batch if out.topic.startswith(STATUS_PREFIX)}
        if not named:
            return list(batch)
        now_s = self._clock.steady_s()
        due = {t for t in named - self._there if now_s - self._asked_s.get(t, float("-inf")) >= AGAIN_S}
        if due:
            self._there |= await self._log.existing(due)
            self._asked_s |= dict.fromkeys(due, now_s)
        return [out for out in batch if out.topic not in named or out.topic in self._there]
