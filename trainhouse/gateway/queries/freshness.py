"""Wait until the projections hold what the topics hold, so that an answer has every event sent before it was asked.

Holds: a wait is bounded, all tries of it together, and never blocks the loop. What the topics hold and what the projections hold is asked
at once: a position only grows, so one that reaches an end was reached whichever of the two was answered first. A position is remembered for
a second, so that reads that follow each other ask the brokers alone; tables that begin anew need a process that starts, which takes longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import cast

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from fastapi import Request

from trainhouse.events.bus.kafka import partitions_of
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.gateway.context import gateway_of
from trainhouse.gateway.queries.sql_reader import SqlReader

ANSWER_S = 10.0
LATE_S = 2.0
"""Beyond that, for a client that does not keep to it."""
LEAST_S = 0.1
LOOK_S = 0.03
REMEMBERED_S = 1.0
Place = tuple[str, int]


class Freshness:
    """Check that the projections hold what the topics held when a read began, whichever gateway wrote it."""

    def __init__(self, settings: KafkaSettings, reader: SqlReader, wait_s: float) -> None:
        self._settings = settings
        self._admin = AdminClient(settings.client_config())
        self._partitions: dict[str, list[int]] = {}
        self._reader = reader
        self._wait_s = wait_s
        self._held: dict[Place, int] = {}
        self._until_s: dict[str, float] = {}

    async def reached(self, *topics: str) -> None:
        """Waits until everything that these topics hold now can be read. Raises BusUnavailableError when that takes too long."""
        deadline = time.monotonic() + self._wait_s
        if self._remembers(topics):
            missing = self._behind(await self._ends(topics))
        else:
            ends, _ = await asyncio.gather(self._ends(topics), self._look(topics))
            missing = self._behind(ends)
        while missing:
            await self._look(topics)
            missing = self._behind(missing)
            if missing and time.monotonic() > deadline:
                raise BusUnavailableError(f"the projections are more than {self._wait_s:.0f} s behind; try again in a moment")
            if missing:
                await asyncio.sleep(LOOK_S)

    def _remembers(self, topics: Iterable[str]) -> bool:
        now_s = time.monotonic()
        return all(self._until_s.get(topic, 0.0) > now_s for topic in topics)

    def _behind(self, ends: dict[Place, int]) -> dict[Place, int]:
        return {at: end for at, end in ends.items() if self._held.get(at, 0) < end}

    async def _look(self, topics: Iterable[str]) -> None:
        """Reads how far the projections are in these topics, and remembers it."""
        chosen, asked_s = list(topics), time.monotonic()
        rows = await self._reader.rows(_POSITIONS, {"topics": chosen})
        # Not the greatest that was ever seen: tables may have begun anew since.
        self._held = {at: held for at, held in self._held.items() if at[0] not in chosen}
        self._held |= {(r["topic"], r["partition"]): r["held"] for r in rows}
        self._until_s |= dict.fromkeys(chosen, asked_s + REMEMBERED_S)

    async def _ends(self, topics: Iterable[str]) -> dict[Place, int]:
        deadline_s = time.monotonic() + ANSWER_S + LATE_S
        try:
            return await self._ends_by(topics, deadline_s)
        except BusUnavailableError:
            # A leader that was elected anew fences a client that knows the one before: a new client knows it. Brokers that are away take
            # all of the time, and are not asked again.
            if time.monotonic() + LATE_S >= deadline_s:
                raise
            return await self._ends_by(topics, deadline_s)

    async def _ends_by(self, topics: Iterable[str], deadline_s: float) -> dict[Place, int]:
        # A client that is let go of never answers what it was asked: it is held until then, whatever other reads do meanwhile.
        admin = self._admin
        try:
            newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            asked = {TopicPartition(t, p): newest for t in topics for p in await self._partitions_of(t, admin, deadline_s)}
            answers = admin.list_offsets(asked, request_timeout=_left_s(deadline_s))
            whole = asyncio.gather(*(asyncio.wrap_future(f) for f in answers.values()))
            found = await asyncio.wait_for(whole, _left_s(deadline_s) + LATE_S)
        except (KafkaException, BusUnavailableError, TimeoutError) as error:
            if self._admin is admin:  # it may have lost all brokers for good (events/bus/outage.py)
                self._admin = AdminClient(self._settings.client_config())
            why = error.args[0] if error.args else f"nothing within {ANSWER_S + LATE_S:.0f} s"
            raise BusUnavailableError(f"the brokers did not answer: {why}") from error
        return {(at.topic, at.partition): one.offset for at, one in zip(answers, found, strict=True) if one.offset > 0}

    async def _partitions_of(self, topic: str, admin: AdminClient, deadline_s: float) -> list[int]:
        if topic not in self._partitions:
            self._partitions[topic] = await asyncio.to_thread(partitions_of, admin, topic, _left_s(deadline_s))
        return self._partitions[topic]


def _left_s(deadline_s: float) -> float:
    """Seconds in which brokers may answer, so that LATE_S are left of the whole; some of them in any case."""
    return max(LEAST_S, deadline_s - LATE_S - time.monotonic())


_POSITIONS = """
SELECT topic, partition, max(if(done = 1, to_offset, from_offset)) AS held FROM positions FINAL
WHERE topic IN {topics:Array(String)} AND lane IN ('facts', 'ranks', 'metrics', 'logs') GROUP BY topic, partition
"""


def freshness_of(request: Request) -> Freshness:
    """The app's, made when it is needed first."""
    state = request.app.state
    if not hasattr(state, "freshness"):
        gateway = gateway_of(request)
        state.freshness = Freshness(gateway.kafka or KafkaSettings(), gateway.reader, gateway.settings.after_wait_s)
    return cast(Freshness, state.freshness)
