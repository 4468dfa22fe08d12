"""What an agent's stream costs on a real broker: one record an event, `stream.take`, and one fetched batch an event (ours).

Each way is an app of its own with one agent on a topic of its own. Beside them, aiokafka's bare consumer. Measured: records a second of a
backlog, how long a lone record takes from its producer to the agent, and how long a burst of 512 does (the reports of a gang's end) until
its last record is there.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiokafka import AIOKafkaConsumer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from faust.sensors import Monitor
from faust.transport.utils import DefaultSchedulingStrategy
from prometheus_client import CollectorRegistry

from tests.bench import report
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.events.settings import KafkaSettings
from trainhouse.scheduler.stream.kafka.auth import aiokafka_config
from trainhouse.scheduler.stream.kafka.faust_app import batches, make_app
from trainhouse.scheduler.stream.settings import StreamSettings

BACKLOG, BURST, BURSTS, LONE = 20_000, 512, 10, 60
VALUE = b"x" * 600
WITHIN_S = 0.02
PATIENCE_S = 120.0


class Seen:
    """Counts what came to an agent."""

    def __init__(self) -> None:
        self.count = 0
        self._due = 0
        self._there = asyncio.Event()

    def add(self, records: int) -> None:
        self.count += records
        if self.count >= self._due:
            self._there.set()

    async def reaches(self, count: int) -> float:
        """When it did."""
        self._due = count
        if self.count < count:
            self._there.clear()
            await asyncio.wait_for(self._there.wait(), PATIENCE_S)
        return time.perf_counter()


Way = Callable[[KafkaSettings, str, Seen], Awaitable[Callable[[], Awaitable[None]]]]


async def events(kafka: KafkaSettings, topic: str, seen: Seen) -> Callable[[], Awaitable[None]]:
    """Faust's plain loop over a stream."""
    app = plain(kafka, topic)

    @app.agent(app.topic(topic, value_type=bytes, value_serializer="raw"), name=topic)
    async def loop(stream: Any) -> None:
        async for _ in stream.events():
            seen.add(1)

    await app.start()
    return _stop(app)


async def take(kafka: KafkaSettings, topic: str, seen: Seen) -> Callable[[], Awaitable[None]]:
    """`stream.take`."""
    app = plain(kafka, topic)

    @app.agent(app.topic(topic, value_type=bytes, value_serializer="raw"), name=topic)
    async def loop(stream: Any) -> None:
        async for taken in stream.take(500, within=WITHIN_S):
            seen.add(len(taken))

    await app.start()
    return _stop(app)


async def ours(kafka: KafkaSettings, topic: str, seen: Seen) -> Callable[[], Awaitable[None]]:
    """A fetched batch an event."""
    app = make_app(topic, kafka, StreamSettings(), CollectorRegistry(), 0.5)

    @app.agent(batches(app, topic), name=topic)
    async def loop(stream: Any) -> None:
        async for batch in stream:
            seen.add(len(batch.entries))

    await app.start()
    return _stop(app)


async def bare(kafka: KafkaSettings, topic: str, seen: Seen) -> Callable[[], Awaitable[None]]:
    """No Faust: a member of a group that polls."""
    consumer = AIOKafkaConsumer(topic, **aiokafka_config(kafka), group_id=topic, auto_offset_reset="earliest")
    await consumer.start()

    async def loop() -> None:
        while True:
            found = await consumer.getmany(timeout_ms=1000, max_records=500)
            seen.add(sum(map(len, found.values())))

    task = asyncio.ensure_future(loop())

    async def stop() -> None:
        task.cancel()
        await consumer.stop()

    return stop


def plain(kafka: KafkaSettings, topic: str) -> Any:
    """An app that gives a stream one record at a time."""
    app = make_app(topic, kafka, StreamSettings(), CollectorRegistry(), 0.5)
    app.conf.ConsumerScheduler = DefaultSchedulingStrategy
    app.conf.stream_buffer_maxsize = 4096
    app.monitor = Monitor()
    return app


def _stop(app: Any) -> Callable[[], Awaitable[None]]:
    return app.stop  # type: ignore[no-any-return]


WAYS: dict[str, Way] = {"take": take, "events": events, "batches": ours, "bare_consumer": bare}


def run() -> None:
    """Prints a line for each way."""
    with TemporaryDirectory() as folder, KafkaServer(Path(folder)) as server:
        kafka = KafkaSettings(bootstrap=server.bootstrap)
        for name, way in WAYS.items():
            report.line(f"faust_streams_{name}", **asyncio.run(_measured(kafka, name, way)))


async def _measured(kafka: KafkaSettings, name: str, way: Way) -> dict[str, Any]:
    topic, seen = f"bench.{name}", Seen()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
    await asyncio.to_thread(_send, producer, topic, BACKLOG)
    stop = await way(kafka, topic, seen)
    await seen.reaches(1)
    begin_s, first, cpu_s = time.perf_counter(), seen.count, time.process_time()
    took_s = await seen.reaches(BACKLOG) - begin_s
    cpu_s = time.process_time() - cpu_s
    lone_ms = [await _round(producer, topic, seen, 1) for _ in range(LONE)]
    burst_ms = [await _round(producer, topic, seen, BURST) for _ in range(BURSTS)]
    await stop()
    return {
        "records_per_s": (BACKLOG - first) / took_s,
        "cpu_ms_per_record": 1000 * cpu_s / max(1, BACKLOG - first),
        "lone_p50_ms": statistics.median(lone_ms),
        "lone_p90_ms": report.percentile(lone_ms, 90),
        "burst_512_p50_ms": statistics.median(burst_ms),
        "burst_512_worst_ms": max(burst_ms),
    }


async def _round(producer: Producer, topic: str, seen: Seen, count: int) -> float:
    await asyncio.sleep(0.03)
    due, begin_s = seen.count + count, time.perf_counter()
    await asyncio.to_thread(_send, producer, topic, count)
    return 1000 * (await seen.reaches(due) - begin_s)


def _send(producer: Producer, topic: str, count: int) -> None:
    for number in range(count):
        producer.produce(topic, VALUE, key=str(number).encode(), partition=number % 4 if count > BURST else 0)
    producer.flush()
