"""Answers of the tuner to requests of this gateway.

Holds: the history of studies is followed from the first request on, from its end as it was then. A refusal is an exception with the tuner's
own words.
Never: keeps anything about studies.
"""

from __future__ import annotations

from confluent_kafka import Message

from trainhouse.events import InvalidEvent, StudyBegun, StudyChanged, StudyRequestRefused, decode
from trainhouse.events.bus.kafka import headers_of
from trainhouse.events.model.study import StudyRequest
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import STUDY_HISTORY, STUDY_REQUESTS
from trainhouse.gateway.bus import Bus, Sent
from trainhouse.gateway.errors import GatewayError
from trainhouse.gateway.topic_follower import Answers, TopicFollower

StudyAnswer = StudyBegun | StudyChanged


class StudyRefusedError(GatewayError):
    """The tuner refused a request."""


class StudyAnswers:
    """Requests about studies of one stack. Its methods are called on the event loop."""

    def __init__(self, kafka: KafkaSettings | None) -> None:
        self._follower = TopicFollower(kafka, STUDY_HISTORY, self._take, "answers about studies", from_end=True)
        self._answers: Answers[StudyAnswer] = Answers(STUDY_REQUESTS, "the tuner")

    async def ask(self, bus: Bus, event: StudyRequest, event_id: str) -> tuple[StudyAnswer, Sent]:
        """Sends a request; returns what the tuner decided, and where the request is.

        Raises StudyRefusedError; BusUnavailableError where there is no answer in time: the request may still count.
        """
        await self._follower.ready()
        return await self._answers.ask(bus, event, event_id)

    def take(self, event: object) -> None:
        """Answers those who wait for a decision."""
        if isinstance(event, StudyRequestRefused):
            self._answers.give(str(event.request_id), StudyRefusedError(event.reason))
        elif isinstance(event, StudyBegun | StudyChanged):
            self._answers.give(str(event.request_id), event)

    def close(self) -> None:
        """Stops reading. Blocks for a moment."""
        self._follower.close()

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            try:
                self.take(decode(message.value(), headers_of(message)).event)
            except InvalidEvent:
                continue  # a newer writer's
