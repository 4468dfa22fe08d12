"""Requests to the registry of models over Kafka, and what it decided.

Holds: a request returns when the registry has answered it, never before; a refusal is an exception with the registry's own words.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from confluent_kafka import Message

from trainhouse.client.errors import ChangeRefusedError
from trainhouse.client.kafka.outcomes import Outcomes, event_of
from trainhouse.client.kafka.topic_events import topic_events
from trainhouse.events import Event, ModelRequestRefused
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.model.model_registry import ModelRequest
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import MODEL_HISTORY, MODEL_REQUESTS


@dataclass(frozen=True)
class ModelRequests:
    """The registry over one Kafka. `send` puts an event on a topic and gives its id."""

    kafka: KafkaSettings
    send: Callable[[Event, str | None, str], str]

    def ask(self, event: ModelRequest, timeout_s: float, event_id: str | None = None) -> ModelDecision:
        """Sends a request; returns the first decision that follows from it. Blocks. Raises ChangeRefusedError, NoReplyError."""
        with Outcomes(self.kafka, [MODEL_HISTORY]) as outcomes:
            sent = self.send(event, event_id, MODEL_REQUESTS)
            return outcomes.first(lambda message: answer_of(message, sent), timeout_s, f"{event.event_type} of {event.subject()}")

    def history(self) -> Iterator[Event]:
        """All decisions of the registry about all models, refusals among them, in their order. Blocks."""
        return (event for _, event in topic_events(self.kafka, MODEL_HISTORY))


def answer_of(message: Message, request_id: str) -> ModelDecision | None:
    """The decision on a request that a record holds; None: it holds none. Raises ChangeRefusedError."""
    event = event_of(message)
    if isinstance(event, ModelRequestRefused) and event.request_id == request_id:
        raise ChangeRefusedError(event.reason)
    return event if isinstance(event, ModelDecision) and event.request_id == request_id else None
