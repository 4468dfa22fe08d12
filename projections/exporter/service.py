"""Exporter process: follows topics, exports traces and lineage, stores its state, commits.

Holds: nothing is committed before every peer took it; a peer or broker that is away is said once, and the process waits for it.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog

from trainhouse.events.bus.repair_log import emptied_records_patiently
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.runtime.metrics_server import new_registry, serve
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import DECISIONS
from trainhouse.projections.exporter.export_metrics import ExporterMeters
from trainhouse.projections.exporter.followed_topics import GROUP, ExporterBus
from trainhouse.projections.exporter.job_state import Kept
from trainhouse.projections.exporter.reading import Reading
from trainhouse.projections.exporter.reorder_buffer import Settling
from trainhouse.projections.exporter.senders import NotDeliveredError, Sender, senders
from trainhouse.projections.exporter.settings import ExporterSettings
from trainhouse.projections.exporter.translate import Exported, export_event
from trainhouse.projections.ingest.node_keys import KafkaNodeKeys, NodeKeys
from trainhouse.projections.shutdown import on_signal

WAIT_S = 0.5
RETRY_S = 1.0
COMMIT_EVERY_S = 5.0

# They tell of every try; that a peer is away, or refuses something, is said once, here.
QUIET = ("opentelemetry", "openlineage", "urllib3")

T = TypeVar("T")
log = structlog.get_logger(__name__)


class Exporter:
    """The exporter at work; `turn` is called again and again."""

    def __init__(
        self,
        bus: ExporterBus,
        peers: list[Sender],
        kept: Kept,
        settling: Settling,
        stop: threading.Event,
        meters: ExporterMeters,
        keys: NodeKeys | None = None,
        emptied: frozenset[str] = frozenset(),
    ) -> None:
        self._bus = bus
        self._peers = peers
        self._kept = kept
        self._settling = settling
        self._reading = Reading(keys, emptied)
        self._stop = stop
        self._meters = meters
        self._committed_s = 0.0

    def turn(self, clock_ms: Callable[[], int]) -> None:
        """Reads, tells, remembers, commits. Blocks until the peers took it, or until it is stopped."""
        for message in self._bus.poll(WAIT_S):
            place = (message.topic() or "", message.partition() or 0)
            seen_in = patiently(partial(self._reading.seen_in, message), self._stop, self._meters)
            self._settling.add(place, message.offset() or 0, seen_in)
        exported = Exported()
        for seen in self._settling.take(clock_ms()):
            export_event(self._kept, seen, exported)
        self._kept.forget_ended(clock_ms())
        for peer in self._peers:
            patiently(partial(peer.send, exported), self._stop, self._meters)
        changed = self._kept.take_changed()
        if changed:
            patiently(lambda: self._bus.remember(changed, clock_ms()), self._stop, self._meters)
        now_s = time.monotonic()
        if changed or now_s - self._committed_s > COMMIT_EVERY_S:
            patiently(lambda: self._bus.commit(self._settling.done()), self._stop, self._meters)
            self._committed_s = now_s
        self._meters.jobs.set(len(self._kept.jobs))
        self._meters.waiting.set(len(self._settling))


class StoppedError(Exception):
    """The process is to end; what is not done now is done by the next start."""


def patiently(call: Callable[[], T], stop: threading.Event, meters: ExporterMeters) -> T:
    """The call's result, again until it has one. Raises StoppedError."""
    away = False
    while not stop.is_set():
        try:
            result = call()
        except (NotDeliveredError, BusUnavailableError) as error:
            meters.untaken.inc()
            if not away:
                log.warning("waiting; nothing is lost", error=str(error))
            away = True
            stop.wait(RETRY_S)
        else:
            if away:
                log.info("going on")
            return result
    raise StoppedError


def main(kafka: KafkaSettings, settings: ExporterSettings) -> int:
    """Runs until a signal; returns 0. Blocks."""
    stop = on_signal()
    os.environ.setdefault("TZ", "UTC")
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    registry = new_registry()
    meters = ExporterMeters(registry)
    serving = serve(registry)
    bus, peers = ExporterBus(kafka), senders(settings, meters)
    keys = KafkaNodeKeys(kafka, settings.signatures == "required", GROUP)
    try:
        remembered, starts = patiently(lambda: bus.open(settings.from_beginning), stop, meters)
        kept, settling = Kept(remembered), Settling(round(settings.settle_s * 1000), starts)
        patiently(lambda: bus.commit(starts), stop, meters)
        log.info("telling", traces=settings.otlp_endpoint, lineage=settings.openlineage_url, jobs=len(kept.jobs))
        emptied = emptied_records_patiently(kafka, DECISIONS, stop, GROUP)
        exporter = Exporter(bus, peers, kept, settling, stop, meters, keys, emptied)
        while not stop.is_set():
            exporter.turn(lambda: time.time_ns() // 1_000_000)
    except StoppedError:
        pass
    finally:
        for peer in peers:
            peer.close()
        keys.close()
        bus.close()
        if serving is not None:
            serving.close()
    return 0
