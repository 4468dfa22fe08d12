"""A machine behind a real Kafka, where the gateway looks for it: what it decided is there, and what the pages ask for is answered."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from confluent_kafka import Producer, TopicPartition

from tests.browser.world import World
from tests.support.driven_machine import DrivenMachine
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.events import Event, decode, envelope_of
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import consumer, headers_of, producer_config
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.codec import HEADERS, encode


class DecidedStory(ABC):
    """Life of one machine. `REQUESTS`, `HISTORY`: topics of what is asked and of what was decided; `DECIDED`: types of the latter."""

    REQUESTS: ClassVar[str]
    HISTORY: ClassVar[str]
    DECIDED: ClassVar[tuple[type[Event], ...]]

    def __init__(self, world: World, settings: KafkaSettings, machine: DrivenMachine[Any]) -> None:
        self._world = world
        self._settings = settings
        self._machine = machine
        self._producer = Producer(producer_config(settings))
        self._published = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._answer, daemon=True)

    @abstractmethod
    def live(self) -> None:
        """Gives the machine its life."""

    @abstractmethod
    def add(self) -> None:
        """Puts into the tables what no decision makes."""

    def start(self) -> None:
        """All of it."""
        self.live()
        self.publish()
        self._machine.now_ms = time.time_ns() // 1_000_000
        self.add()
        self._thread.start()

    def stop(self) -> None:
        self._closing.set()
        self._thread.join(20)

    def publish(self) -> list[Event]:
        """Puts what was decided since then where its topics are read to; returns it."""
        new, self._published = self._machine.decisions[self._published :], len(self._machine.decisions)
        history = [each for each in new if isinstance(each, self.DECIDED)]
        for event in history:
            value = encode(envelope_of(event, id=f"d{id(event)}", source="tests", now_ms=self._machine.now_ms))
            self._producer.produce(self.HISTORY, value, key=event.subject().encode(), headers=list(HEADERS))
            self._producer.poll(0)
        assert self._producer.flush(30) == 0
        self._world.tables.put(self.HISTORY, history)
        return new

    def _answer(self) -> None:
        reader = consumer(self._settings)
        reader.assign([TopicPartition(self.REQUESTS, 0, 0)])
        while not self._closing.is_set():
            message = reader.poll(0.1)
            if message is None or message.error() is not None:
                continue
            envelope = decode(message.value(), headers_of(message))
            with self._lock:
                self._machine.now_ms = time.time_ns() // 1_000_000
                self._machine.ask(envelope.event, str(envelope.id))
                self.publish()
        reader.close()


S = TypeVar("S", bound=DecidedStory)


@contextmanager
def story_in(world: World, folder: Path, kind: type[S]) -> Iterator[S]:
    """The story of a world, for as long as its Kafka runs. The gateway reads it from the first request on: once in a session."""
    with KafkaServer(folder / "kafka", port=world.gateway.kafka_port) as server:
        settings = KafkaSettings(bootstrap=server.bootstrap)
        create_topics(settings)
        story = kind(world, settings)
        story.start()
        try:
            yield story
        finally:
            story.stop()
