"""Follower of the bus: statuses of jobs from now on; revocations of tokens, and projects, from the beginning.

Holds: a thread of its own reads; what it reads is handed to the event loop. Until all revocations and projects of before are known, none
counts as known.
Never: commits offsets, or joins a group.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from trainhouse.events import InvalidEvent, JobStatus, ProjectApplied, TokenRevoked, decode
from trainhouse.events.bus.kafka import consumer, headers_of, partitions_of, watermarks
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import PROJECTS, STATUS, TOKENS

log = structlog.get_logger(__name__)

RETRY_S = 1.0
POLL_S = 0.1
METADATA_S = 10.0
QUIET: dict[str, Any] = {"log_level": 0, "enable.partition.eof": True}


class BusFeed:
    """`on_status(key, status)`, `on_revoked(token_id, event_id)`, `on_project(applied)` and, once, `on_ready()` run on the event loop."""

    def __init__(
        self,
        settings: KafkaSettings,
        on_status: Callable[[str, JobStatus], None],
        on_revoked: Callable[[str, str], None],
        on_project: Callable[[ProjectApplied], None],
        on_ready: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._on_status = on_status
        self._on_revoked = on_revoked
        self._on_project = on_project
        self._on_ready = on_ready
        self._unread = {TOKENS, PROJECTS}
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to read. Call it on the event loop."""
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="bus-feed", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops. Blocks for a moment."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._closing.is_set():
            reader = consumer(self._settings, **QUIET)
            try:
                reader.assign(self._beginnings(reader))
                while not self._closing.is_set():
                    found = reader.consume(1000, timeout=POLL_S)
                    if found and not loop.is_closed():
                        loop.call_soon_threadsafe(self._take, found)
                return
            except (KafkaException, BusUnavailableError) as error:
                log.warning("the bus cannot be followed; tried again", error=str(error))
                self._closing.wait(RETRY_S)
            except RuntimeError:
                return  # the loop ended between the check and the call
            finally:
                reader.close()

    def _beginnings(self, reader: Consumer) -> list[TopicPartition]:
        places = [TopicPartition(t, n, 0) for t in (TOKENS, PROJECTS) for n in partitions_of(reader, t, METADATA_S)]
        statuses = partitions_of(reader, STATUS, METADATA_S)
        return places + [TopicPartition(STATUS, n, watermarks(reader, STATUS, n, METADATA_S)[1]) for n in statuses]

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF and message.topic() in self._unread:
                    self._unread.discard(str(message.topic()))
                    if not self._unread:
                        self._on_ready()
                continue
            self._one(message)

    def _one(self, message: Message) -> None:
        try:
            envelope = decode(message.value(), headers_of(message))
        except InvalidEvent:
            return  # a newer writer's, or a tombstone
        event = envelope.event
        if isinstance(event, JobStatus):
            self._on_status((message.key() or b"").decode("utf-8", "replace"), event)
        elif isinstance(event, TokenRevoked):
            self._on_revoked(event.token_id, str(envelope.id))
        elif isinstance(event, ProjectApplied):
            self._on_project(event)
