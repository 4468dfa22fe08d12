"""Follower of one topic for the event loop, and requests that wait for what it reads.

Holds: nothing is read before the first use, so that an idle gateway pays nothing; from then on a thread follows the topic. What it reads is
handed over in order.
Never: commits offsets, or joins a group.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from trainhouse.events import Event
from trainhouse.events.bus.kafka import consumer, partitions_of, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.gateway.bus import Bus, Sent

log = structlog.get_logger(__name__)
POLL_S = 0.05
RETRY_S = 1.0
METADATA_S = 10.0
READY_S = 30.0
ANSWER_S = 30.0
QUIET: dict[str, Any] = {"log_level": 0, "enable.partition.eof": True}
T = TypeVar("T")


class TopicFollower:
    """Hands the records of a topic to `take`, which runs on the event loop. `what`: what they are, for people; `from_end`: those alone that
    come after the first use."""

    def __init__(
        self, kafka: KafkaSettings | None, topic: str, take: Callable[[list[Message]], None], what: str, from_end: bool = False
    ) -> None:
        self._kafka = kafka
        self._topic = topic
        self._take = take
        self._what = what
        self._from_end = from_end
        self._places: dict[int, int] = {}
        self._unread: set[int] = set()
        self._ready = asyncio.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    async def ready(self) -> None:
        """Returns once all records of before are taken, and each later one will be. Raises BusUnavailableError."""
        if self._kafka is None:
            raise BusUnavailableError(f"this gateway has no brokers, and {self._what} are asked of them")
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, args=(loop, self._kafka), name=self._topic, daemon=True)
            self._thread.start()
        try:
            await asyncio.wait_for(self._ready.wait(), READY_S)
        except TimeoutError as error:
            raise BusUnavailableError(f"{self._topic} could not be read within {READY_S:.0f} s; is Kafka up?") from error

    def close(self) -> None:
        """Stops reading. Blocks for a moment."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self, loop: asyncio.AbstractEventLoop, kafka: KafkaSettings) -> None:
        while not self._closing.is_set():
            reader = consumer(kafka, **QUIET)
            try:
                self._assign(reader)
                while not self._closing.is_set():
                    found = reader.consume(1000, timeout=POLL_S)
                    if found and not loop.is_closed():
                        loop.call_soon_threadsafe(self._hand_over, found)
                        self._places |= {each.partition() or 0: (each.offset() or 0) + 1 for each in found if each.error() is None}
                return
            except (KafkaException, BusUnavailableError) as error:
                log.warning(f"{self._what} cannot be followed; tried again", error=str(error))
                self._closing.wait(RETRY_S)
            except RuntimeError:
                return  # the loop ended between the check and the call
            finally:
                reader.close()

    def _assign(self, reader: Consumer) -> None:
        """Goes on where it was; in a partition that is new to it, at the beginning or the end."""
        for number in partitions_of(reader, self._topic, METADATA_S):
            if number not in self._places:
                self._unread.add(number)
                self._places[number] = watermarks(reader, self._topic, number, METADATA_S)[1] if self._from_end else 0
        reader.assign([TopicPartition(self._topic, number, offset) for number, offset in self._places.items()])

    def _hand_over(self, found: list[Message]) -> None:
        self._take([each for each in found if each.error() is None])
        for each in found:
            error = each.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self._unread.discard(each.partition() or 0)
        if not self._unread:
            self._ready.set()


class LateAnswerError(BusUnavailableError):
    """A request was sent, and its answer did not come in time: it may still count. `sent`: where it is."""

    def __init__(self, text: str, sent: Sent) -> None:
        super().__init__(text)
        self.sent = sent


class Answers(Generic[T]):
    """Requests that wait for their decisions, by event id. `decider`: what decides, for people."""

    def __init__(self, topic: str, decider: str) -> None:
        self._topic, self._decider = topic, decider
        self._waiting: dict[str, asyncio.Future[T]] = {}

    async def ask(self, bus: Bus, event: Event, event_id: str) -> tuple[T, Sent]:
        """Sends a request; returns what was decided, and where the request is. Raises what it was refused with; LateAnswerError where
        there is no answer in time: the request may still count."""
        waiting = self._waiting.setdefault(event_id, asyncio.get_running_loop().create_future())
        try:
            sent = await bus.send(self._topic, event, event_id, key=event.subject())
            try:
                # Another request of the same key may wait for the same answer.
                return await asyncio.wait_for(asyncio.shield(waiting), ANSWER_S), sent
            except TimeoutError as error:
                why = f"{self._decider} did not answer within {ANSWER_S:.0f} s; the request counts once it does (id {event_id})"
                raise LateAnswerError(why, sent) from error
        finally:
            self._waiting.pop(event_id, None)

    def give(self, event_id: str, decided: T | Exception) -> None:
        """Answers the request of an id, if one waits here."""
        waiting = self._waiting.get(event_id)
        if waiting is None or waiting.done():
            return
        if isinstance(decided, Exception):
            waiting.set_exception(decided)
        else:
            waiting.set_result(decided)
