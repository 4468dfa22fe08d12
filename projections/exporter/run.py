"""The exporter's process: follows the topics, tells traces and lineage, remembers, commits.

Holds: nothing is committed before every peer took it; a peer or broker that is away is said once, and the process waits for it.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import structlog
from confluent_kafka import Message
from prometheus_client import CollectorRegistry, Counter, Gauge

from trainhouse.events import topics
from trainhouse.events.checkpoint import CheckpointCompleted
from trainhouse.events.codec import decode
from trainhouse.events.errors import BusUnavailable, InvalidEvent
from trainhouse.events.metering import new_registry, serve
from trainhouse.events.settings import KafkaSettings
from trainhouse.projections.ending import on_signal
from trainhouse.projections.exporter.bus import ExporterBus
from trainhouse.projections.exporter.keeping import Kept, Seen
from trainhouse.projections.exporter.senders import Sender, Untaken, senders
from trainhouse.projections.exporter.settings import ExporterSettings
from trainhouse.projections.exporter.settling import Settling
from trainhouse.projections.exporter.telling import Told, tell

WAIT_S = 0.5
RETRY_S = 1.0
COMMIT_EVERY_S = 5.0

T = TypeVar("T")
log = structlog.get_logger(__name__)


class ExporterMeters:
    """Figures of the exporter."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.spans = Counter("trainhouse_exporter_spans", "Spans told", registry=registry)
        self.runs = Counter("trainhouse_exporter_lineage_events", "Events of lineage told", registry=registry)
        self.untaken = Counter("trainhouse_exporter_untaken", "Times that a peer or the brokers did not answer", registry=registry)
        self.jobs = Gauge("trainhouse_exporter_jobs", "Jobs that are followed", registry=registry)
        self.waiting = Gauge("trainhouse_exporter_waiting_events", "Events that wait to be put in order", registry=registry)


class Exporter:
    """The exporter at work; `turn` is called again and again."""

    def __init__(
        self, bus: ExporterBus, peers: list[Sender], kept: Kept, settling: Settling, stop: threading.Event, meters: ExporterMeters
    ) -> None:
        self._bus = bus
        self._peers = peers
        self._kept = kept
        self._settling = settling
        self._stop = stop
        self._meters = meters
        self._committed_s = 0.0

    def turn(self, clock_ms: Callable[[], int]) -> None:
        """Reads, tells, remembers, commits. Blocks until the peers took it, or until it is stopped."""
        for message in self._bus.poll(WAIT_S):
            place = (message.topic() or "", message.partition() or 0)
            self._settling.add(place, message.offset() or 0, seen_in(message))
        told = Told()
        for seen in self._settling.take(clock_ms()):
            tell(self._kept, seen, told)
        self._kept.forget_ended(clock_ms())
        self._tell(told)
        changed = self._kept.take_changed()
        if changed:
            patiently(lambda: self._bus.remember(changed, clock_ms()), self._stop, self._meters)
        now_s = time.monotonic()
        if changed or now_s - self._committed_s > COMMIT_EVERY_S:
            patiently(lambda: self._bus.commit(self._settling.done()), self._stop, self._meters)
            self._committed_s = now_s
        self._meters.jobs.set(len(self._kept.jobs))
        self._meters.waiting.set(len(self._settling))

    def _tell(self, told: Told) -> None:
        if not told.spans and not told.runs:
            return
        for peer in self._peers:
            patiently(lambda peer=peer: peer.send(told), self._stop, self._meters)  # type: ignore[misc]
        self._meters.spans.inc(len(told.spans))
        self._meters.runs.inc(len(told.runs))


class Stopped(Exception):
    """The process is to end; what is not done now is done by the next start."""


def patiently(call: Callable[[], T], stop: threading.Event, meters: ExporterMeters) -> T:
    """The call's result, again until it has one. Raises Stopped."""
    away = False
    while not stop.is_set():
        try:
            result = call()
        except (Untaken, BusUnavailable) as error:
            meters.untaken.inc()
            if not away:
                log.warning("waiting; nothing is lost", error=str(error))
            away = True
            stop.wait(RETRY_S)
        else:
            if away:
                log.info("going on")
            return result
    raise Stopped


def seen_in(message: Message) -> Seen | None:
    """The event of a record; None for what nobody is told of."""
    value = message.value()
    if value is None:
        return None
    try:
        envelope = decode(value, message.headers())
    except InvalidEvent:
        return None  # intake and the projector say so
    if message.topic() == topics.CONTROL and isinstance(envelope.event, CheckpointCompleted):
        return None  # a copy; its home is the topic of checkpoints
    return Seen(envelope, message.timestamp()[1])


def main(kafka: KafkaSettings, settings: ExporterSettings) -> int:
    """Runs until a signal; returns 0. Blocks."""
    stop = on_signal()
    os.environ.setdefault("TZ", "UTC")
    registry = new_registry()
    meters = ExporterMeters(registry)
    serving = serve(registry)
    bus, peers = ExporterBus(kafka), senders(settings)
    try:
        remembered, starts = patiently(lambda: bus.open(settings.from_beginning), stop, meters)
        kept, settling = Kept(remembered), Settling(round(settings.settle_s * 1000), starts)
        patiently(lambda: bus.commit(starts), stop, meters)
        log.info("telling", traces=settings.otlp_endpoint, lineage=settings.openlineage_url, jobs=len(kept.jobs))
        exporter = Exporter(bus, peers, kept, settling, stop, meters)
        while not stop.is_set():
            exporter.turn(lambda: time.time_ns() // 1_000_000)
    except Stopped:
        pass
    finally:
        for peer in peers:
            peer.close()
        bus.close()
        if serving is not None:
            serving.close()
    return 0
