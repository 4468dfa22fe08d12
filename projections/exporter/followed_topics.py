"""The exporter's topics: events in, and what must be remembered of each job, in and out.

Holds: offsets are committed after what was remembered is acked, and that is written after everything was told; so a crash at any point
tells some things again, under the same ids, and loses none.
"""

from collections.abc import Mapping

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from trainhouse.events.bus.kafka import TO_END, consumer, partitions_of, producer_config, read_to_end, watermarks
from trainhouse.events.bus.outage import ProducerWatch
from trainhouse.events.model.errors import BusUnavailableError, InvalidEvent
from trainhouse.events.model.trace_state import JobTraced
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS, decode, encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.projections.exporter.reorder_buffer import Place
from trainhouse.projections.messages import TopicTroubles

GROUP = "trainhouse-exporter"
SOURCE = "trainhouse/exporter"
FOLLOWED = (topics.JOBS, topics.DECISIONS, topics.ALLOCATIONS, topics.STATUS, topics.CHECKPOINTS, topics.TRACKING)
ANSWER_S = 30.0
BATCH = 2000

log = structlog.get_logger(__name__)


class ExporterBus:
    """The brokers. Every call blocks and raises BusUnavailableError while they are away."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._reader = consumer(settings, group=GROUP, **{"queued.max.messages.kbytes": 8192})
        self._watch = ProducerWatch(settings)
        self._producer = self._new_producer()
        self._troubles = TopicTroubles()
        self._refused: str | None = None

    def open(self, from_beginning: bool) -> tuple[list[JobTraced], dict[Place, int]]:
        """Goes to where an earlier exporter committed, at first to the ends (or beginnings).

        Gives what was remembered, and where each partition is read from: commit that at once, or what comes before the first read of a
        partition is lost with this process.
        """
        try:
            starts = [self._start(topic, p, from_beginning) for topic in FOLLOWED for p in partitions_of(self._reader, topic, ANSWER_S)]
            self._reader.assign(starts)
        except KafkaException as error:
            raise BusUnavailableError(f"the brokers at {self._settings.bootstrap} did not answer: {error}") from error
        return self._remembered(), {(at.topic, at.partition): at.offset for at in starts}

    def poll(self, wait_s: float) -> list[Message]:
        """The next records; empty when none came in `wait_s`. What is wrong with a topic is logged once; the others go on."""
        return self._troubles.good(self._reader.consume(BATCH, timeout=wait_s))

    def remember(self, changed: Mapping[str, JobTraced | None], now_ms: int) -> None:
        """Writes jobs as they are now, tombstones for None. Returns once all is acked."""
        for job_id, job in changed.items():
            value = None
            if job is not None:
                value = encode(envelope_of(job, id=f"{job_id}:traced:{now_ms}", source=SOURCE, now_ms=now_ms))
            self._producer.produce(topics.TRACES, value=value, key=job_id.encode(), headers=list(HEADERS), on_delivery=self._delivered)
            self._producer.poll(0)
        left = self._producer.flush(ANSWER_S)
        refused, self._refused = self._refused, None
        if left or refused:
            if self._watch.due() and self._watch.lost(self._producer, topics.TRACES):
                log.warning("a producer lost all brokers for good, though they answer; a new one is started", unacked=left)
                self._producer.purge()
                self._producer = self._new_producer()
            raise BusUnavailableError(f"what was told is not remembered by {self._settings.bootstrap}: {refused or 'no answer'}")

    def commit(self, done: Mapping[Place, int]) -> None:
        """The next start goes on from here."""
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in done.items()]
        try:
            if offsets:
                self._reader.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise BusUnavailableError(f"offsets are not committed at {self._settings.bootstrap}: {error}") from error

    def close(self) -> None:
        """Leaves."""
        self._reader.close()

    def _new_producer(self) -> Producer:
        return Producer(producer_config(self._settings, error_cb=self._watch.on_error))

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._refused = error.str()

    def _start(self, topic: str, partition: int, from_beginning: bool) -> TopicPartition:
        (found,) = self._reader.committed([TopicPartition(topic, partition)], timeout=ANSWER_S)
        if found.error is not None:  # a coordinator that starts: not to know is not the same as never to have committed
            raise BusUnavailableError(f"how far {topic}-{partition} was told is not known: {found.error.str()}")
        low, high = watermarks(self._reader, topic, partition, ANSWER_S)
        if found.offset >= 0:
            return TopicPartition(topic, partition, min(max(found.offset, low), high))
        return TopicPartition(topic, partition, low if from_beginning else high)

    def _remembered(self) -> list[JobTraced]:
        reader = consumer(self._settings, group=GROUP, **TO_END)
        jobs: dict[bytes, JobTraced] = {}
        try:
            for message in read_to_end(reader, topics.TRACES, partitions_of(reader, topics.TRACES, ANSWER_S), ANSWER_S):
                key, value = message.key() or b"", message.value()
                if value is None:
                    jobs.pop(key, None)
                    continue
                try:
                    event = decode(value).event
                except InvalidEvent as error:
                    log.warning("what was remembered of a job cannot be read; it is told of no more", key=str(key), error=str(error))
                    continue
                if isinstance(event, JobTraced):
                    jobs[key] = event
        finally:
            reader.close()
        return list(jobs.values())
