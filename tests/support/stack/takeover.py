"""Watches who decides for a pool, and how long it takes somebody else to do so once that process is gone.

Holds: an owner is known by its own records in the journal alone; a record counts by the rule of the journal (the next seq), as any
reader sees it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from confluent_kafka import Message, TopicPartition

from tests.support.waiting import PATIENCE_S, until
from trainhouse.events import GangAllocated, decode
from trainhouse.events.bus.kafka import consumer, watermarks
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics

MOST_BACK = 20


@dataclass(frozen=True)
class Seen:
    """One record that counts, and when it was read here."""

    seq: int
    owner: str
    at_s: float

    @property
    def pid(self) -> int:
        """The process that wrote it: an owner's name ends with its pid and a nonce."""
        return int(self.owner.rsplit("-", 2)[1])


@dataclass(frozen=True)
class Takeover:
    """Seconds from the kill to the first record of another owner, and to the allocation of a job submitted right after the kill; and
    the process that wrote that record."""

    record_s: float
    allocated_s: float
    pid: int


@dataclass
class Watch:
    """Reads the journal and the allocations of one partition as they come. One thread only."""

    settings: KafkaSettings
    partition: int
    records: list[Seen] = field(default_factory=list)
    allocated_at_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reader = consumer(self.settings, group="takeover", log_level=0)
        places = [TopicPartition(name, self.partition) for name in (topics.DECISIONS, topics.ALLOCATIONS)]
        for place in places:
            low, place.offset = watermarks(self._reader, place.topic, place.partition)
            if place.topic == topics.DECISIONS:
                place.offset = max(low, place.offset - MOST_BACK)  # an idle owner may write nothing for two minutes
        self._reader.assign(places)

    def close(self) -> None:
        """Gives the connection back."""
        self._reader.close()

    def listen(self) -> None:
        """Takes in what there is; blocks for some milliseconds at most."""
        for message in self._reader.consume(100, timeout=0.01):
            if message.error() is None:
                self._take(message, time.time())

    def decider(self) -> Seen:
        """Whose record counted last, once nothing more has come for a second."""
        return until(lambda: self.newest(before_s=time.time() - 1.0), "nobody decides", every_s=0)

    def newest(self, before_s: float) -> Seen | None:
        """The newest record if it was read before that."""
        self.listen()
        return self.records[-1] if self.records and self.records[-1].at_s < before_s else None

    def measure(self, kill: Callable[[int], None], submit: Callable[[], str], timeout_s: float = PATIENCE_S) -> Takeover:
        """Kills the process that decides, submits a job, and times who comes after. Blocks."""
        dead = self.decider()
        killed_at_s = time.time()
        kill(dead.pid)
        job_id = submit()
        first = until(lambda: self._first_of_another(dead, killed_at_s), "nobody took over", timeout_s, every_s=0)
        allocated_at_s = until(lambda: self._allocated(job_id), f"{job_id} is not allocated", timeout_s, every_s=0)
        return Takeover(first.at_s - killed_at_s, allocated_at_s - killed_at_s, first.pid)

    def _allocated(self, job_id: str) -> float | None:
        self.listen()
        return self.allocated_at_s.get(job_id)

    def _first_of_another(self, dead: Seen, after_s: float) -> Seen | None:
        self.listen()
        return next((r for r in self.records if r.at_s > after_s and r.owner != dead.owner), None)

    def _take(self, message: Message, at_s: float) -> None:
        if message.topic() == topics.DECISIONS:
            raw: dict[str, Any] = orjson.loads(message.value() or b"")
            if not self.records or raw["seq"] == self.records[-1].seq + 1:
                self.records.append(Seen(raw["seq"], raw["owner"], at_s))
        elif isinstance(event := decode(message.value(), message.headers()).event, GangAllocated):
            self.allocated_at_s.setdefault(event.job_id, at_s)
