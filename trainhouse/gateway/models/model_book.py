"""Models as the registry's history has them, and the answers to requests of this gateway.

Holds: the history is followed from the first question on. What this gateway asked for is in the models once it is answered. A refusal is
an exception with the registry's own words. Requests about models that do not exist take a bounded memory. A record that cannot be folded is
logged, and those after it are taken.
"""

from __future__ import annotations

from collections import OrderedDict, deque

import structlog
from confluent_kafka import Message

from trainhouse.events import Event, InvalidEvent, ModelRequestRefused, decode
from trainhouse.events.bus.kafka import headers_of
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.model.model_key import model_key
from trainhouse.events.model.model_registry import ModelRequest
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import MODEL_HISTORY, MODEL_REQUESTS
from trainhouse.gateway.bus import Bus
from trainhouse.gateway.errors import GatewayError
from trainhouse.gateway.models.champion_spans import ChampionSpans
from trainhouse.gateway.topic_follower import Answers, TopicFollower
from trainhouse.scheduler.core.registry.registry_view import RegistryView

log = structlog.get_logger(__name__)
MOST_KEPT = 200
"""Decisions of each model that are kept to be listed, the newest."""
MOST_EARLY_MODELS = 1_000
MOST_EARLY = 8
"""Refusals about models that do not exist: of so many names the newest, of each so many. They are in the history of a model that comes."""


class ModelRefusedError(GatewayError):
    """The registry refused a request. `refused` has the conditions of the gate, where that refused it."""

    def __init__(self, refused: ModelRequestRefused) -> None:
        super().__init__(refused.reason)
        self.refused = refused


class ModelBook:
    """All models of one stack. Its methods are called on the event loop."""

    def __init__(self, kafka: KafkaSettings | None) -> None:
        self.view = RegistryView()
        self._history: dict[str, deque[Event]] = {}
        self._dropped: dict[str, int] = {}
        """By model: decisions that were kept once."""
        self._champions: dict[str, ChampionSpans] = {}
        self._early: OrderedDict[str, deque[Event]] = OrderedDict()
        self._follower = TopicFollower(kafka, MODEL_HISTORY, self._take, "models")
        self._answers: Answers[ModelDecision] = Answers(MODEL_REQUESTS, "the registry")

    async def ready(self) -> None:
        """Returns once all decisions of before are in. Raises BusUnavailableError."""
        await self._follower.ready()

    async def ask(self, bus: Bus, event: ModelRequest, event_id: str) -> ModelDecision:
        """Sends a request; returns the first decision that follows from it, all of which are in the models then.

        Raises ModelRefusedError; BusUnavailableError where there is no answer in time: the request may still count.
        """
        await self.ready()
        decided, _ = await self._answers.ask(bus, event, event_id)
        return decided

    def history(self, project: str, name: str, begin: int = 0) -> list[tuple[int, Event]]:
        """The newest decisions about a model from the one with this number on, in their order, refusals among them, each with its number:
        the first one that this gateway read has 0."""
        key = model_key(project, name)
        kept = self._history.get(key, ())
        first = self._dropped.get(key, 0)
        return [(number, each) for number, each in enumerate(kept, first) if number >= begin]

    def champions(self, project: str, name: str) -> ChampionSpans:
        """Spans in which versions of a model were champion."""
        return self._champions.get(model_key(project, name)) or ChampionSpans()

    def close(self) -> None:
        """Stops reading. Blocks for a moment."""
        self._follower.close()

    def _take(self, messages: list[Message]) -> None:
        answers: list[ModelDecision | ModelRequestRefused] = []
        for message in messages:
            try:
                event = decode(message.value(), headers_of(message)).event
            except InvalidEvent:
                continue  # a newer writer's
            if not isinstance(event, ModelDecision | ModelRequestRefused):
                continue
            # Also where the fold fails: the registry has decided.
            answers.append(event)
            try:
                if self.view.take(event) and isinstance(event, ModelDecision):
                    self._champions.setdefault(event.subject(), ChampionSpans()).note(event)
            except Exception as failed:
                log.exception(
                    "a decision about a model cannot be folded; the model is shown as it was", model=event.subject(), error=str(failed)
                )
            self._keep(event)
        for answer in answers:
            self._answer(answer)

    def _keep(self, event: ModelDecision | ModelRequestRefused) -> None:
        key = event.subject()
        if self.view.find(event.project, event.name) is not None:
            kept = self._history.get(key)
            if kept is None:
                kept = self._history[key] = deque(self._early.pop(key, ()), MOST_KEPT)
        else:
            kept = self._early.setdefault(key, deque(maxlen=MOST_EARLY))
            self._early.move_to_end(key)
            if len(self._early) > MOST_EARLY_MODELS:
                self._early.popitem(last=False)
        if key in self._history and len(kept) == MOST_KEPT:
            self._dropped[key] = self._dropped.get(key, 0) + 1
        kept.append(event)

    def _answer(self, event: ModelDecision | ModelRequestRefused) -> None:
        self._answers.give(str(event.request_id), ModelRefusedError(event) if isinstance(event, ModelRequestRefused) else event)
