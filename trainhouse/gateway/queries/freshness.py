"""Wait until the projections hold what the topics hold, so that an answer has every event sent before it was asked.

Holds: a wait is bounded, and never blocks the loop.
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
LOOK_S = 0.03


class Freshness:
    """Check that the projections hold what the topics held when a read began, whichever gateway wrote it."""

    def __init__(self, settings: KafkaSettings, reader: SqlReader, wait_s: float) -> None:
        self._settings = settings
        self._admin = AdminClient(settings.client_config())
        self._partitions: dict[str, list[int]] = {}
        self._reader = reader
        self._wait_s = wait_s

    async def reached(self, *topics: str) -> None:
        """Waits until everything that these topics hold now can be read. Raises BusUnavailableError when that takes too long."""
        deadline = time.monotonic() + self._wait_s
        missing = await asyncio.to_thread(self._ends, topics)
        while missing:
            rows = await self._reader.rows(_POSITIONS, {"topics": list(topics)})
            held = {(r["topic"], r["partition"]): r["held"] for r in rows}
            missing = {at: end for at, end in missing.items() if held.get(at, 0) < end}
            if missing and time.monotonic() > deadline:
                raise BusUnavailableError(f"the projections are more than {self._wait_s:.0f} s behind; try again in a moment")
            if missing:
                await asyncio.sleep(LOOK_S)

    def _ends(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        try:
            newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            asked = {TopicPartition(t, p): newest for t in topics for p in self._partitions_of(t)}
            ends = {
                (at.topic, at.partition): f.result().offset for at, f in self._admin.list_offsets(asked, request_timeout=ANSWER_S).items()
            }
        except (KafkaException, BusUnavailableError) as error:
            self._admin = AdminClient(
                self._settings.client_config()
            )  # the old one may have lost all brokers for good (events/bus/outage.py)
            raise BusUnavailableError(f"the brokers did not answer: {error.args[0]}") from error
        return {at: end for at, end in ends.items() if end > 0}

    def _partitions_of(self, topic: str) -> list[int]:
        if topic not in self._partitions:
            self._partitions[topic] = partitions_of(self._admin, topic, ANSWER_S)
        return self._partitions[topic]


_POSITIONS = """
SELECT topic, partition, max(if(done = 1, to_offset, from_offset)) AS held FROM positions FINAL
WHERE topic IN {topics:Array(String)} AND lane IN ('facts', 'ranks', 'metrics') GROUP BY topic, partition
"""


def freshness_of(request: Request) -> Freshness:
    """The app's, made when it is needed first."""
    state = request.app.state
    if not hasattr(state, "freshness"):
        gateway = gateway_of(request)
        state.freshness = Freshness(gateway.kafka or KafkaSettings(), gateway.reader, gateway.settings.after_wait_s)
    return cast(Freshness, state.freshness)
