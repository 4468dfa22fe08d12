"""Publishes why jobs wait, when the answers change, while this process owns the partition.

Holds: answers are derived from the folded state, after a record, in a thread of their own, one look at a time and at least `every_s`
apart (more after a long one), so that deciding goes on; what is sent is the newest answer; a job that waits no more gets a tombstone, one
that went to another partition with its pool gets none: the answer that is there by now is that of the scheduler there.
At least once: a new owner may repeat answers.
Never: writes to the journal; raises into the owner (the brokers' absence is noted and tried again).
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog

from trainhouse.events import envelope_of
from trainhouse.events.model.explanation import JobExplained
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.topics import EXPLANATIONS
from trainhouse.scheduler.core.errors import LogUnavailableError
from trainhouse.scheduler.core.explain.answer import Answer
from trainhouse.scheduler.stream.interfaces import Clock, Log
from trainhouse.scheduler.stream.journal.follower import Follower

S = TypeVar("S")
EVERY_S = 2.0
MAX_SENT_AT_ONCE = 200
SHARE = 20
"""A look that took t is followed by the next one after 20 t at the earliest."""
SOURCE = "trainhouse/scheduler"
Answers = Callable[[S, int], Iterable[Answer]]
Left = Callable[[S, str], bool]
log_ = structlog.get_logger(__name__)


@dataclass(slots=True)
class Explaining(Generic[S]):
    """Of all partitions of one journal. `answers` derives them from a state, in the order of the queue; `left`: whether a job left it.

    What it gives is gone through in another thread: it must not look at what changes.
    """

    log: Log
    clock: Clock
    answers: Answers[S]
    left: Left[S]
    every_s: float = EVERY_S
    _next_s: dict[int, float] = field(default_factory=dict)
    _sent: dict[int, dict[str, object]] = field(default_factory=dict)
    _looking: dict[int, "asyncio.Task[None]"] = field(default_factory=dict)

    async def after_record(self, follower: Follower[S]) -> None:
        """Looks, if it is time, and sends in the background."""
        partition, now_s = follower.partition, self.clock.steady_s()
        busy = self._looking.get(partition)
        if now_s < self._next_s.get(partition, float("-inf")) or (busy is not None and not busy.done()):
            return
        self._next_s[partition] = now_s + self.every_s
        state, sent = follower.folded.state, self._sent.setdefault(partition, {})
        for job_id in [job_id for job_id in sent if self.left(state, job_id)]:
            del sent[job_id]
        found = self.answers(state, follower.folded.now_ms)
        self._looking[partition] = asyncio.create_task(self._look(partition, found, now_s))

    async def _look(self, partition: int, found: Iterable[Answer], began_s: float) -> None:
        changed, gone = await asyncio.to_thread(self._changed, partition, found)
        if changed or gone:
            await self._send(partition, changed, gone)
        took_s = self.clock.steady_s() - began_s
        self._next_s[partition] = max(self._next_s[partition], began_s + SHARE * took_s)

    def _changed(self, partition: int, found: Iterable[Answer]) -> tuple[list[tuple[object, JobExplained]], list[str]]:
        sent = self._sent.setdefault(partition, {})
        changed: list[tuple[object, JobExplained]] = []
        waiting: set[str] = set()
        for answer in found:
            waiting.add(answer.job_id)
            if len(changed) < MAX_SENT_AT_ONCE and sent.get(answer.job_id) != answer.key:
                changed.append((answer.key, answer.build()))
        return changed, sorted(job_id for job_id in sent if job_id not in waiting)[:MAX_SENT_AT_ONCE]

    async def _send(self, partition: int, changed: list[tuple[object, JobExplained]], gone: list[str]) -> None:
        sent = self._sent[partition]
        try:
            async with asyncio.TaskGroup() as sending:
                for _, event in changed:
                    envelope = envelope_of(event, id=f"{event.job_id}:why:{event.at_ms}", source=SOURCE, now_ms=event.at_ms)
                    sending.create_task(self.log.send(EXPLANATIONS, event.job_id.encode(), encode(envelope)))
                for job_id in gone:
                    sending.create_task(self.log.send(EXPLANATIONS, job_id.encode(), None))
        except* LogUnavailableError as error:
            log_.warning("explanations not sent, trying again", partition=partition, error=str(error.exceptions[0]))
        else:
            sent.update((str(event.job_id), key) for key, event in changed)
            for job_id in gone:
                sent.pop(job_id, None)
