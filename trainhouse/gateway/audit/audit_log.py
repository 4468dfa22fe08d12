"""Events of the audit on their way to Kafka: kept until the brokers have them, up to a bound.

Holds: what the brokers did not take is sent again under the same id; no more than `most_waiting` are kept; what goes beyond is counted, and
told as an event of its own as soon as the brokers take one again.
Never: waits, but where its caller asks for that.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque

import structlog

from trainhouse.events import AuditLost, Event
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.wire.topics import AUDIT
from trainhouse.gateway.bus import SOURCE, Bus

log = structlog.get_logger(__name__)


class AuditLog:
    """The way of one gateway's audit. Used by the event loop; acks come from the bus's own thread."""

    def __init__(self, bus: Bus, most_waiting: int) -> None:
        self._bus = bus
        self._most_waiting = most_waiting
        self._lock = threading.Lock()
        self._under_way = 0
        self._failed: deque[tuple[str, Event]] = deque()
        self._unreported = 0
        self._unreported_since_ms = 0
        self.lost = 0

    @property
    def waiting(self) -> int:
        """Number of events that the brokers do not have yet."""
        with self._lock:
            return self._under_way + len(self._failed)

    @property
    def full(self) -> bool:
        """True if the next one would be lost."""
        return self.waiting >= self._most_waiting

    def offer(self, event: Event) -> None:
        """Sends an event without waiting; one for which there is no room is counted as lost."""
        if self.full:
            self._lose()
        else:
            self._send(secrets.token_hex(16), event)

    async def write(self, event: Event) -> None:
        """Sends an event, and waits until the brokers have it. Raises BusUnavailableError."""
        await self._bus.send(AUDIT, event, secrets.token_hex(16))

    def again(self, now_ms: int) -> None:
        """Sends what the brokers did not take; then tells of what was lost."""
        with self._lock:
            failed, self._failed = self._failed, deque()
        for event_id, event in failed:
            self._send(event_id, event)
        with self._lock:
            ready = self._unreported > 0 and not self._failed and self._under_way < self._most_waiting
            count, since_ms = self._unreported, self._unreported_since_ms
            if ready:
                self._unreported = 0
        if ready:
            reason = "the brokers did not take them, and there was no room to keep more"
            lost = AuditLost(at_ms=now_ms, since_ms=since_ms, count=count, source=SOURCE, reason=reason)
            self._send(secrets.token_hex(16), lost)

    def _send(self, event_id: str, event: Event) -> None:
        def done(taken: bool) -> None:
            with self._lock:
                self._under_way -= 1
                if not taken:
                    self._failed.append((event_id, event))

        with self._lock:
            self._under_way += 1
        try:
            self._bus.send_nowait(AUDIT, event, event_id, on_done=done)
        except BusUnavailableError:
            done(False)

    def _lose(self) -> None:
        with self._lock:
            self.lost += 1
            self._unreported += 1
            if self._unreported == 1:
                self._unreported_since_ms = time.time_ns() // 1_000_000
        if self.lost == 1 or self.lost % 1000 == 0:
            log.warning("events of the audit are lost: the brokers do not take them, and no room is left to keep more", lost=self.lost)
