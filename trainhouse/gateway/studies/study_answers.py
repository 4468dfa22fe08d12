"""Answers of the tuner to requests of this gateway.

Holds: nothing is read before the first request, so that an idle gateway pays nothing; from then on a thread follows the history of studies
from its end as it was then. A refusal is an exception with the tuner's own words.
Never: keeps anything about studies; commits offsets, or joins a group.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import structlog
from confluent_kafka import KafkaException, Message, TopicPartition

from trainhouse.events import InvalidEvent, StudyBegun, StudyChanged, StudyRequestRefused, decode
from trainhouse.events.bus.kafka import consumer, headers_of, partitions_of, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.model.study import StudyRequest
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import STUDY_HISTORY, STUDY_REQUESTS
from trainhouse.gateway.bus import Bus, Sent
from trainhouse.gateway.errors import GatewayError

log = structlog.get_logger(__name__)
POLL_S = 0.05
RETRY_S = 1.0
METADATA_S = 10.0
READY_S = 30.0
ANSWER_S = 30.0
QUIET: dict[str, Any] = {"log_level": 0}
StudyAnswer = StudyBegun | StudyChanged


class StudyRefusedError(GatewayError):
    """The tuner refused a request."""


class StudyAnswers:
    """Requests about studies of one stack. Its methods are called on the event loop."""

    def __init__(self, kafka: KafkaSettings | None) -> None:
        self._kafka = kafka
        self._waiting: dict[str, asyncio.Future[StudyAnswer]] = {}
        self._ready = asyncio.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    async def ask(self, bus: Bus, event: StudyRequest, event_id: str) -> tuple[StudyAnswer, Sent]:
        """Sends a request; returns what the tuner decided, and where the request is.

        Raises StudyRefusedError; BusUnavailableError where there is no answer in time: the request may still count.
        """
        await self._follow()
        waiting = self._waiting.setdefault(event_id, asyncio.get_running_loop().create_future())
        try:
            sent = await bus.send(STUDY_REQUESTS, event, event_id, key=event.subject())
            # Another request of the same key may wait for the same answer.
            return await asyncio.wait_for(asyncio.shield(waiting), ANSWER_S), sent
        except TimeoutError as error:
            raise BusUnavailableError(
                f"the tuner did not answer within {ANSWER_S:.0f} s; the request counts once it does (id {event_id})"
            ) from error
        finally:
            self._waiting.pop(event_id, None)

    def take(self, event: object) -> None:
        """Answers those who wait for a decision."""
        if not isinstance(event, StudyBegun | StudyChanged | StudyRequestRefused):
            return
        waiting = self._waiting.get(str(event.request_id))
        if waiting is None or waiting.done():
            return
        if isinstance(event, StudyRequestRefused):
            waiting.set_exception(StudyRefusedError(event.reason))
        else:
            waiting.set_result(event)

    def close(self) -> None:
        """Stops reading. Blocks for a moment."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(5)

    async def _follow(self) -> None:
        """Returns once every later answer will be seen. Raises BusUnavailableError."""
        if self._kafka is None:
            raise BusUnavailableError("this gateway has no brokers, and the tuner is asked by them")
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, args=(loop, self._kafka), name="study-answers", daemon=True)
            self._thread.start()
        try:
            await asyncio.wait_for(self._ready.wait(), READY_S)
        except TimeoutError as error:
            raise BusUnavailableError(f"{STUDY_HISTORY} could not be read within {READY_S:.0f} s; is Kafka up?") from error

    def _run(self, loop: asyncio.AbstractEventLoop, kafka: KafkaSettings) -> None:
        places: dict[int, int] = {}
        while not self._closing.is_set():
            reader = consumer(kafka, **QUIET)
            try:
                for number in partitions_of(reader, STUDY_HISTORY, METADATA_S):
                    if number not in places:
                        places[number] = watermarks(reader, STUDY_HISTORY, number, METADATA_S)[1]
                reader.assign([TopicPartition(STUDY_HISTORY, number, offset) for number, offset in places.items()])
                loop.call_soon_threadsafe(self._ready.set)
                while not self._closing.is_set():
                    found = [each for each in reader.consume(1000, timeout=POLL_S) if each.error() is None]
                    if found and not loop.is_closed():
                        loop.call_soon_threadsafe(self._take, found)
                        places |= {each.partition() or 0: (each.offset() or 0) + 1 for each in found}
                return
            except (KafkaException, BusUnavailableError) as error:
                log.warning("answers about studies cannot be followed; tried again", error=str(error))
                self._closing.wait(RETRY_S)
            except RuntimeError:
                return  # the loop ended between the check and the call
            finally:
                reader.close()

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            try:
                self.take(decode(message.value(), headers_of(message)).event)
            except InvalidEvent:
                continue  # a newer writer's
