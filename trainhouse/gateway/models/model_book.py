"""Models as the registry's history has them, and the answers to requests of this gateway.

Holds: nothing is read before the first question, so that an idle gateway pays nothing; from then on a thread follows the history. What this
gateway asked for is in the models once it is answered. A refusal is an exception with the registry's own words. Requests about models that
do not exist take a bounded memory. A record that cannot be folded is logged, and those after it are taken.
Never: commits offsets, or joins a group.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from trainhouse.events import Event, InvalidEvent, ModelRequestRefused, decode
from trainhouse.events.bus.kafka import consumer, headers_of, partitions_of
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.events.model.model_key import model_key
from trainhouse.events.model.model_registry import ModelRequest
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import MODEL_HISTORY, MODEL_REQUESTS
from trainhouse.gateway.bus import Bus
from trainhouse.gateway.errors import GatewayError
from trainhouse.gateway.models.champion_spans import ChampionSpans
from trainhouse.scheduler.core.registry.registry_view import RegistryView

log = structlog.get_logger(__name__)
POLL_S = 0.05
RETRY_S = 1.0
METADATA_S = 10.0
READY_S = 30.0
ANSWER_S = 30.0
MOST_KEPT = 200
"""Decisions of each model that are kept to be listed, the newest."""
MOST_EARLY_MODELS = 1_000
MOST_EARLY = 8
"""Refusals about models that do not exist: of so many names the newest, of each so many. They are in the history of a model that comes."""
QUIET: dict[str, Any] = {"log_level": 0, "enable.partition.eof": True}


class ModelRefusedError(GatewayError):
    """The registry refused a request. `refused` has the conditions of the gate, where that refused it."""

    def __init__(self, refused: ModelRequestRefused) -> None:
        super().__init__(refused.reason)
        self.refused = refused


class ModelBook:
    """All models of one stack. Its methods are called on the event loop."""

    def __init__(self, kafka: KafkaSettings | None) -> None:
        self.view = RegistryView()
        self._kafka = kafka
        self._history: dict[str, deque[Event]] = {}
        self._dropped: dict[str, int] = {}
        """By model: decisions that were kept once."""
        self._champions: dict[str, ChampionSpans] = {}
        self._early: OrderedDict[str, deque[Event]] = OrderedDict()
        self._waiting: dict[str, asyncio.Future[ModelDecision]] = {}
        self._ready = asyncio.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    async def ready(self) -> None:
        """Returns once all decisions of before are in. Raises BusUnavailableError."""
        if self._kafka is None:
            raise BusUnavailableError("this gateway has no brokers, and models are asked of them")
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, args=(loop, self._kafka), name="model-book", daemon=True)
            self._thread.start()
        try:
            await asyncio.wait_for(self._ready.wait(), READY_S)
        except TimeoutError as error:
            raise BusUnavailableError(f"{MODEL_HISTORY} could not be read within {READY_S:.0f} s; is Kafka up?") from error

    async def ask(self, bus: Bus, event: ModelRequest, event_id: str) -> ModelDecision:
        """Sends a request; returns the first decision that follows from it, all of which are in the models then.

        Raises ModelRefusedError; BusUnavailableError where there is no answer in time: the request may still count.
        """
        await self.ready()
        waiting: asyncio.Future[ModelDecision] = asyncio.get_running_loop().create_future()
        self._waiting[event_id] = waiting
        try:
            await bus.send(MODEL_REQUESTS, event, event_id, key=event.subject())
            return await asyncio.wait_for(waiting, ANSWER_S)
        except TimeoutError as error:
            raise BusUnavailableError(
                f"the registry did not answer within {ANSWER_S:.0f} s; the request counts once it does (id {event_id})"
            ) from error
        finally:
            self._waiting.pop(event_id, None)

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
        self._closing.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self, loop: asyncio.AbstractEventLoop, kafka: KafkaSettings) -> None:
        offset = 0
        while not self._closing.is_set():
            reader = consumer(kafka, **QUIET)
            try:
                reader.assign([TopicPartition(MODEL_HISTORY, n, offset) for n in partitions_of(reader, MODEL_HISTORY, METADATA_S)])
                while not self._closing.is_set():
                    found = reader.consume(1000, timeout=POLL_S)
                    if found and not loop.is_closed():
                        loop.call_soon_threadsafe(self._take, found)
                        offset = max(offset, *((message.offset() or -1) + 1 for message in found if message.error() is None), 0)
                return
            except (KafkaException, BusUnavailableError) as error:
                log.warning("models cannot be followed; tried again", error=str(error))
                self._closing.wait(RETRY_S)
            except RuntimeError:
                return  # the loop ended between the check and the call
            finally:
                reader.close()

    def _take(self, messages: list[Message]) -> None:
        answers: list[ModelDecision | ModelRequestRefused] = []
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._ready.set()
                continue
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
        waiting = self._waiting.get(str(event.request_id))
        if waiting is None or waiting.done():
            return
        if isinstance(event, ModelRequestRefused):
            waiting.set_exception(ModelRefusedError(event))
        else:
            waiting.set_result(event)
