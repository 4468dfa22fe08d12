"""A Faust app as Trainhouse uses it: group membership and batches of raw records; no tables, no web server, no discovery.

Holds: agents see bytes, so nothing can fail in Faust's decoding; topics are never declared from here.
Never: trusted for exactness (it acks a batch even when its agent raises): see the feed.
"""

from collections.abc import Callable, Sequence
from os import getuid
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import faust

from trainhouse.events.settings import KafkaSettings
from trainhouse.scheduler.stream.batch_transport import Batches, BatchTransport
from trainhouse.scheduler.stream.gathering import Gathering
from trainhouse.scheduler.stream.kafka_auth import faust_broker, faust_credentials
from trainhouse.scheduler.stream.ports import Entry
from trainhouse.scheduler.stream.settings import StreamSettings

MAX_FETCH_BYTES = 4 * 1024 * 1024


def make_app(name: str, kafka: KafkaSettings, settings: StreamSettings) -> Any:
    """The app of one group; opens no connection yet."""
    app = faust.App(
        f"trainhouse-{name}",
        broker=faust_broker(kafka),
        broker_credentials=faust_credentials(kafka),
        store="memory://",
        autodiscover=False,
        web_enabled=False,
        # Faust makes it at its start and, without tables, keeps nothing there: one for all starts.
        datadir=Path(gettempdir()) / f"trainhouse-{getuid()}-{name}",
        broker_session_timeout=settings.group_session_s,
        broker_heartbeat_interval=settings.group_session_s / 3,
        broker_commit_interval=0.5,
        consumer_group_instance_id=f"{name}-{settings.instance}" if settings.instance else None,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=MAX_FETCH_BYTES,
        stream_wait_empty=False,
        stream_recovery_delay=0.0,
        topic_allow_declare=False,
        topic_disable_leader=True,
        worker_redirect_stdouts=False,
    )
    app.transport = BatchTransport(app.conf.broker_consumer, app)
    return app


def add_agent(app: Any, topic: str, settings: StreamSettings, batches: Batches) -> None:
    """Feeds batches of a topic, split by partition and in order, to `batches`, which must not raise."""

    async def take(stream: Any) -> None:
        async def handle(events: Sequence[Any]) -> None:
            by_partition: dict[int, list[Entry]] = {}
            for event in events:
                entry = _entry(event.message)
                by_partition.setdefault(entry.partition, []).append(entry)
            await batches(by_partition)

        # Not `take_events`: it looks every few milliseconds whether something came, and a lone record waits for that.
        stream.enable_acks = False
        await Gathering(handle, stream.ack, settings.batch_count).run(stream.events())

    app.agent(_raw(app, topic), name=f"{app.conf.id}.{topic}")(take)


def add_batches(app: Any, topic: str, batches: Batches) -> None:
    """Hands a topic's fetched batches to `batches`, which must not raise nor wait for long; for who knows itself what it has handled."""

    async def nothing(stream: Any) -> None:
        async for _ in stream:
            pass

    # The agent makes the app a member for the topic; its stream stays empty.
    app.agent(_raw(app, topic), name=f"{app.conf.id}.{topic}")(nothing)
    app.transport.whole[topic] = batches


def on_assignment(app: Any, topic: str, changed: Callable[[set[int]], None]) -> None:
    """Calls `changed` with all partitions of `topic` that the group gives this process, whenever that changes."""

    async def assigned(_: Any, assigned: Any, **__: Any) -> None:
        changed({tp.partition for tp in assigned if tp.topic == topic})

    async def revoked(_: Any, revoked: Any, **__: Any) -> None:
        changed(set())

    app.on_partitions_assigned.connect(assigned)
    app.on_partitions_revoked.connect(revoked)


def _raw(app: Any, topic: str) -> Any:
    return app.topic(topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")


def _entry(message: Any) -> Entry:
    timestamp = message.timestamp
    headers = message.headers.items() if isinstance(message.headers, dict) else message.headers or ()
    return Entry(
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=-1 if timestamp is None else round(timestamp * 1000),
        key=message.key,
        value=message.value,
        headers=tuple(headers),
    )
