"""Models of a gateway with the registry's machine behind them, in place of Kafka."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message

from tests.support.gateway_world import NOW_MS
from tests.support.registry_requests import Registry, content_of, facts_of, observed
from trainhouse.events import Event, ModelRegistered, ModelRequestRefused, envelope_of
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.gateway.bus import Bus
from trainhouse.gateway.models.model_book import ModelBook, ModelRefusedError


def record(event: Event) -> Message:
    """A decision, as the history's topic has it."""
    return Message(value=encode(envelope_of(event, id="d", source="tests", now_ms=NOW_MS)), headers=list(HEADERS))


class Book(ModelBook):
    """Asks the registry's machine, in place of Kafka."""

    def __init__(self) -> None:
        super().__init__(None)
        self.registry = Registry()

    async def ready(self) -> None:
        pass

    async def ask(self, bus: Bus, event: Any, event_id: str) -> ModelDecision:
        decided: ModelDecision | ModelRequestRefused = self.take(event)[0]
        if isinstance(decided, ModelRequestRefused):
            raise ModelRefusedError(decided)
        return decided

    def take(self, event: Event) -> list[Any]:
        decided = self.registry.ask(event)
        found = [each for each in decided if isinstance(each, ModelDecision | ModelRequestRefused)]
        self._take([record(each) for each in found])
        return found

    def register(self, project: str, name: str, number: int, **facts: Any) -> None:
        of = {"project": project, "name": name}
        self.registry.ask(ModelRegistered(**of, content=content_of(number), user="ada"), f"{project}-{name}-{number}")
        self.take(observed(f"{project}-{name}-{number}", facts_of(number, project=project, **facts), **of))
