"""Events to Kafka from the event loop: a send ends when the brokers have it.

Holds: a producer like every other of ours (idempotent, acked by all replicas, bounded buffer); acks are served by a thread of its own.
Never: blocks the loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message

from trainhouse.events import Event, envelope_of
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.settings import KafkaSettings

SOURCE = "trainhouse/gateway"
ACK_S = 15.0
POLL_S = 0.05


@dataclass(frozen=True)
class Sent:
    """Position of a published event."""

    event_id: str
    topic: str
    partition: int
    offset: int


class Bus:
    """A producer of the process. Connects at the first send."""

    def __init__(self, settings: KafkaSettings, signing: Callable[[], SigningKey] | None = None) -> None:
        """`signing`: returns the key that signs what is sent, asked at each event, since a rotation may have changed it."""
        self._settings = settings
        self._signing = signing
        self._producer: EventProducer | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    async def send(self, topic: str, event: Event, event_id: str, *, key: str | None = None) -> Sent:
        """Sends one event. Raises BusUnavailableError when it is not acked in time; it may still arrive: send it again under the same
        id."""
        loop = asyncio.get_running_loop()
        acked: asyncio.Future[Sent] = loop.create_future()

        def on_ack(error: KafkaError | None, message: Message) -> None:
            loop.call_soon_threadsafe(_settle, acked, error, message, event_id)

        self._queue(topic, event, event_id, key, on_ack)
        try:
            return await asyncio.wait_for(acked, ACK_S + 1)
        except TimeoutError as error:
            raise BusUnavailableError(f"{topic}: Kafka did not take the event within {ACK_S:.0f} s; send it again") from error

    def send_nowait(
        self, topic: str, event: Event, event_id: str, *, key: str | None = None, on_done: Callable[[bool], None] = lambda taken: None
    ) -> None:
        """Sends one event without waiting; `on_done` is told, by another thread, whether the brokers took it. Raises
        BusUnavailableError."""
        self._queue(topic, event, event_id, key, lambda error, message: on_done(error is None))

    def close(self) -> None:
        """Waits for what is on its way, a few seconds at most. Blocks."""
        self._closing.set()
        if self._thread is not None and self._producer is not None:
            self._thread.join(1)
            try:
                self._producer.flush(3)
            except BusUnavailableError:
                return

    def _queue(self, topic: str, event: Event, event_id: str, key: str | None, on_ack: object) -> None:
        envelope = envelope_of(event, id=event_id, source=SOURCE, now_ms=time.time_ns() // 1_000_000)
        try:
            self._open().send(topic, envelope, key=key, on_ack=on_ack)  # type: ignore[arg-type]
        except BufferError as error:
            raise BusUnavailableError(f"{topic}: too much waits for Kafka at {self._settings.bootstrap}; try again in a moment") from error

    def _open(self) -> EventProducer:
        if self._producer is None:
            # A caller waits for each ack, so nothing lingers; what comes while a request is on its way goes together in the next one.
            more = {"message.timeout.ms": round(ACK_S * 1000), "linger.ms": 0, "log_level": 3}
            self._producer = EventProducer(self._settings, **more)
            self._thread = threading.Thread(target=self._serve, args=(self._producer,), name="acks", daemon=True)
            self._thread.start()
        if self._signing is not None:
            self._producer.signing = self._signing()
        return self._producer

    def _serve(self, producer: EventProducer) -> None:
        while not self._closing.is_set():
            producer.poll(POLL_S)


def _settle(acked: asyncio.Future[Sent], error: KafkaError | None, message: Message, event_id: str) -> None:
    if acked.done():
        return
    topic = str(message.topic())
    if error is not None:
        acked.set_exception(BusUnavailableError(f"{topic}: Kafka did not take the event: {error.str()}"))
    else:
        acked.set_result(Sent(event_id, topic, message.partition() or 0, message.offset() or 0))
