"""Sender of the SQL port's audit to Kafka: a bounded queue until the brokers acknowledge; events beyond the bound are counted as lost.

Never: waits, but at its end, and there CLOSE_S at most.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

import structlog
from confluent_kafka import KafkaException

from trainhouse.events import AuditLost, Event, envelope_of
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import AUDIT

SOURCE = "trainhouse/projector"
CLOSE_S = 3.0
log = structlog.get_logger(__name__)


class AuditWay:
    """One projector's. A record waits for as long as the brokers are away; at most `most_waiting` do."""

    def __init__(self, kafka: KafkaSettings, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        more = {"message.timeout.ms": 0, "queue.buffering.max.messages": most_waiting + 1}
        self._producer = EventProducer(kafka, **more)
        self._lock = threading.Lock()
        self._waiting = self._unreported = self.lost = 0
        self._unreported_since_ms = 0

    @property
    def full(self) -> bool:
        """True if the next one would be lost."""
        return self._waiting >= self._most_waiting

    def offer(self, event: Event) -> bool:
        """Sends an event without waiting; one for which there is no room is counted as lost. Returns whether it is kept."""
        return self._send(event, self._lose)

    def turn(self) -> None:
        """Polls for acks, and publishes the count of lost events as soon as there is room."""
        self._producer.poll(0)
        if self._unreported and not self.full:
            count, since_ms = self._unreported, self._unreported_since_ms
            self._unreported = 0
            reason = "the brokers did not take them, and there was no room to keep more"
            event = AuditLost(at_ms=time.time_ns() // 1_000_000, since_ms=since_ms, count=count, source=SOURCE, reason=reason)
            self._send(event, lambda: self._report_later(count, since_ms))

    def close(self) -> None:
        """Waits for the brokers for CLOSE_S."""
        try:
            self._producer.flush(CLOSE_S)
        except BusUnavailableError as error:
            log.warning("events of the audit are lost", reason=str(error))

    def _count(self, more: int) -> None:
        with self._lock:
            self._waiting += more

    def _send(self, event: Event, lose: Callable[[], None]) -> bool:
        if self.full:
            lose()
            return False
        envelope = envelope_of(event, id=secrets.token_hex(16), source=SOURCE, now_ms=time.time_ns() // 1_000_000)
        self._count(1)

        def acked(error: object, _: object) -> None:
            self._count(-1)
            if error is not None:
                lose()

        try:
            self._producer.send(AUDIT, envelope, on_ack=acked)
        except (BufferError, KafkaException) as error:  # no room for its bytes, or a client that sends nothing more
            acked(error, None)
            return False
        return True

    def _lose(self) -> None:
        self.lost += 1
        self._report_later(1, time.time_ns() // 1_000_000)
        if self.lost == 1 or self.lost % 1000 == 0:
            log.warning("events of the audit are lost: the brokers do not take them, and no room is left to keep more", lost=self.lost)

    def _report_later(self, count: int, since_ms: int) -> None:
        self._unreported_since_ms = min(self._unreported_since_ms, since_ms) if self._unreported else since_ms
        self._unreported += count
