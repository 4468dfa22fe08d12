"""Topics of the alerts process: verdicts in, alerts out, and the alerts already published.

Holds: alerts go out in transactions of one name, so a process that was killed or replaced tells nothing after its successor has read
what was told; verdicts are read back as far as any rule remembers them, so a restart misses none.
Never: commits offsets.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from trainhouse.events.bus.kafka import TO_END, consumer, headers_of, partitions_of, producer_config, read_to_end, watermarks
from trainhouse.events.bus.outage import ProducerWatch
from trainhouse.events.model.alert import AlertEvent
from trainhouse.events.model.errors import BusUnavailableError, InvalidEvent
from trainhouse.events.model.service_level import ServiceMeasured
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.codec import HEADERS, decode, encode
from trainhouse.events.wire.envelope import Envelope, envelope_of
from trainhouse.events.wire.topics import ALERTS, SERVICES, VERDICTS
from trainhouse.projections.alerts.alert_case import SOURCE, event_id
from trainhouse.projections.alerts.errors import WatcherReplacedError
from trainhouse.projections.messages import TopicTroubles
from trainhouse.projections.rows.verdict_rows import TYPES, values

OWNER = "trainhouse-alerts"
ANSWER_S = 30.0
COMMIT_S = 60.0
BATCH = 1000
# Enough for verdicts and alerts, in a process that should be small.
SMALL: dict[str, Any] = {"queued.max.messages.kbytes": 2048, "reconnect.backoff.ms": 200, "reconnect.backoff.max.ms": 2000}
PATIENT: dict[str, Any] = {"transactional.id": OWNER, "transaction.timeout.ms": 30_000, "queue.buffering.max.kbytes": 8192}

log = structlog.get_logger(__name__)


class AlertsBus:
    """The brokers. Every call blocks and raises BusUnavailableError while they are away; WatcherReplacedError once another process took
    over."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._watch = ProducerWatch(settings)
        self._producer = Producer(producer_config(settings, **PATIENT, error_cb=self._watch.on_error))
        self._reader = consumer(settings, group=OWNER, **SMALL)
        self._troubles = TopicTroubles()
        self._refused: str | None = None

    def open(self, since_ms: int) -> tuple[list[AlertEvent], list[dict[str, Any]]]:
        """Shuts out whoever was before; then what was told so far, and the verdicts since a moment, both in order."""
        try:
            self._producer.init_transactions(ANSWER_S)
        except KafkaException as error:
            raise BusUnavailableError(f"the brokers at {self._settings.bootstrap} do not answer: {error}; are they up?") from error
        # The key is the rule, so a rule's events are in order.
        alerts = [event for _, event in _decoded(self._whole(ALERTS)) if isinstance(event, AlertEvent)]
        starts = self._starts(since_ms)
        verdicts = [row for message in self._whole(VERDICTS, starts) for row in _row(message)]
        return alerts, sorted(verdicts, key=lambda row: int(row["at"]))

    def verdicts(self, wait_s: float) -> list[dict[str, Any]]:
        """The next verdicts as rows; empty when none came in `wait_s`. What is wrong with their topic is logged once; it is tried again."""
        return [row for message in self._troubles.good(self._reader.consume(BATCH, timeout=wait_s)) for row in _row(message)]

    def publish(self, events: Sequence[AlertEvent], now_ms: int) -> None:
        """All of them or none; when it raises BusUnavailableError it may be tried again with the same ones."""
        self._publish(ALERTS, [(event.rule, envelope_of(event, id=event_id(event), source=SOURCE, now_ms=now_ms)) for event in events])

    def publish_measured(self, event: ServiceMeasured) -> None:
        """Publishes the measured latency of a service; raises BusUnavailableError."""
        about = f"{event.service}:{event.source}:{event.at_ms}"
        self._publish(SERVICES, [(event.service, envelope_of(event, id=about, source=SOURCE, now_ms=event.at_ms))])

    def publish_of_models(self, topic: str, envelopes: Sequence[Envelope]) -> None:
        """Publishes what follows from predictions of models: drift, or requests; all or none. Raises BusUnavailableError."""
        self._publish(topic, [(envelope.subject, envelope) for envelope in envelopes])

    def close(self) -> None:
        """Leaves."""
        self._reader.close()

    def _publish(self, topic: str, events: Sequence[tuple[str, Envelope]]) -> None:
        self._refused = None
        try:
            self._producer.begin_transaction()
            for key, envelope in events:
                value = encode(envelope)
                self._producer.produce(topic, value=value, key=key.encode(), headers=list(HEADERS), on_delivery=self._delivered)
            self._commit()
        except KafkaException as error:
            raise self._explain(error) from error

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refused = f"{message.topic()}: {error.str()}"

    def _commit(self) -> None:
        deadline = time.monotonic() + COMMIT_S
        while True:
            try:
                return self._producer.commit_transaction(ANSWER_S)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _explain(self, error: KafkaException) -> Exception:
        cause: KafkaError = error.args[0]
        if cause.fatal():
            return WatcherReplacedError(f"another alerts process took over ({cause.str()}); one is enough: stop one of them")
        if self._watch.due() and self._watch.lost(self._producer, ALERTS):
            return WatcherReplacedError(f"the producer lost all brokers at {self._settings.bootstrap} for good, though they answer")
        if cause.code() == KafkaError._STATE:
            return WatcherReplacedError(f"a transaction with {self._settings.bootstrap} has no known end ({cause.str()})")
        if cause.txn_requires_abort():
            try:
                self._producer.abort_transaction(ANSWER_S)
            except KafkaException as failed:
                return WatcherReplacedError(f"a transaction with {self._settings.bootstrap} has no known end ({failed.args[0].str()})")
        why = self._refused or f"{cause.str()}; are the brokers up?"
        return BusUnavailableError(f"alerts could not be told to {self._settings.bootstrap}: {why}")

    def _starts(self, since_ms: int) -> dict[int, int]:
        """Start offsets of the verdicts, by partition; assigns the reader to their present ends."""
        partitions = partitions_of(self._reader, VERDICTS, ANSWER_S)
        wanted = [TopicPartition(VERDICTS, p, max(0, since_ms)) for p in partitions]
        ends = {p: watermarks(self._reader, VERDICTS, p, ANSWER_S)[1] for p in partitions}
        try:
            found = self._reader.offsets_for_times(wanted, timeout=ANSWER_S)
        except KafkaException as error:
            raise BusUnavailableError(f"the brokers at {self._settings.bootstrap} do not answer: {error}") from error
        for at in found:
            if at.error is not None:  # not to know where to begin is not the same as nothing to read
                raise BusUnavailableError(f"where to begin in {VERDICTS}-{at.partition} is not known: {at.error.str()}")
        self._reader.assign([TopicPartition(VERDICTS, p, end) for p, end in ends.items()])
        return {tp.partition: tp.offset if tp.offset >= 0 else ends[tp.partition] for tp in found}

    def _whole(self, topic: str, starts: dict[int, int] | None = None) -> list[Message]:
        reader = consumer(self._settings, group=OWNER, **SMALL, **TO_END)
        try:
            return list(read_to_end(reader, topic, partitions_of(reader, topic, ANSWER_S), ANSWER_S, starts))
        finally:
            reader.close()


def _decoded(messages: Sequence[Message]) -> Iterator[tuple[Any, Any]]:
    for message in messages:
        try:
            envelope = decode(message.value(), headers_of(message))
        except InvalidEvent as error:
            log.warning("no event", topic=message.topic(), partition=message.partition(), offset=message.offset(), error=str(error))
            continue
        yield envelope, envelope.event


def _row(message: Message) -> Iterator[dict[str, Any]]:
    for envelope, event in _decoded([message]):
        if isinstance(event, TYPES):
            yield values(envelope, event)
