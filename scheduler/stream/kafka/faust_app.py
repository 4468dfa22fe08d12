"""A Faust app as Trainhouse uses it: group membership, agents over batches of raw records, figures, and a web view on a Unix socket.

There are no tables: state is exact in the journals, and Faust's are not (its changelogs follow its acks). Group offsets are only a hint
where a journal has a cursor, so they are committed seldom there.

Holds: agents see bytes, so nothing can fail in Faust's decoding; topics are never declared from here; a process without its own services
is no process: one that ends ends it.
Never: trusted for exactness (it acks a batch even when its agent raises): see the feed. A port without credentials.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any

import faust
from prometheus_client import CollectorRegistry

from trainhouse.events.runtime.metrics_server import serve as serve_figures
from trainhouse.events.settings import KafkaSettings
from trainhouse.private_files import private_folder
from trainhouse.scheduler.stream.gc_tuning import Settling
from trainhouse.scheduler.stream.kafka.auth import faust_broker, faust_credentials
from trainhouse.scheduler.stream.kafka.batching import BatchScheduling, BatchSchema
from trainhouse.scheduler.stream.kafka.faust_metrics import FaustFigures
from trainhouse.scheduler.stream.process import unending
from trainhouse.scheduler.stream.settings import StreamSettings

MAX_FETCH_BYTES = 4 * 1024 * 1024
# Batches that wait for an agent, of all partitions of its topic.
WAITING_BATCHES = 64
Service = Callable[[], Awaitable[None]]


class ProcessorApp(faust.App):
    """One process's app. `beside`: what runs beside its agents from the start on, whatever the group does."""

    def __init__(self, *args: Any, registry: CollectorRegistry, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.registry = registry
        self.monitor = FaustFigures(registry)
        self.beside: list[Service] = [Settling().run]

    async def on_start(self) -> None:
        """Serves figures, and starts what runs beside the agents."""
        await super().on_start()
        serve_figures(self.registry)
        if self.conf.web_enabled and self.conf.web_transport.scheme == "unix":
            private_folder(Path(self.conf.web_transport.path).parent)  # the view asks for no credentials
        for service in self.beside:
            self.add_future(unending(service()))


def make_app(name: str, kafka: KafkaSettings, settings: StreamSettings, registry: CollectorRegistry, commit_every_s: float) -> ProcessorApp:
    """The app of one group; opens no connection yet."""
    datadir = _datadir(name)
    app = ProcessorApp(
        f"trainhouse-{name}",
        registry=registry,
        broker=faust_broker(kafka),
        broker_credentials=faust_credentials(kafka),
        store="memory://",
        autodiscover=False,
        web_enabled=settings.web_socket is not None,
        # Faust's server asks nobody who they are: the folder's permissions do. `faust worker` starts it unless it is told not to.
        web_transport=f"unix://{settings.web_socket or datadir / 'web' / 'socket'}",
        datadir=datadir,
        broker_session_timeout=settings.group_session_s,
        broker_heartbeat_interval=settings.group_session_s / 3,
        broker_commit_interval=commit_every_s,
        broker_max_poll_records=settings.batch_count,
        consumer_group_instance_id=f"{name}-{settings.instance}" if settings.instance else None,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=MAX_FETCH_BYTES,
        ConsumerScheduler=BatchScheduling,
        stream_buffer_maxsize=WAITING_BATCHES,
        stream_wait_empty=False,
        stream_recovery_delay=0.0,
        topic_allow_declare=False,
        topic_disable_leader=True,
        worker_redirect_stdouts=False,
    )
    app.web.blueprints.add("/stats", "faust.web.apps.stats:blueprint")
    return app


def batches(app: ProcessorApp, topic: str) -> Any:
    """A topic as its agent sees it: `Batch` after `Batch`."""
    return app.topic(topic, schema=BatchSchema())


def on_assignment(app: Any, topic: str, changed: Callable[[set[int]], None]) -> None:
    """Calls `changed` with all partitions of `topic` that the group gives this process, whenever that changes."""

    async def assigned(_: Any, assigned: Any, **__: Any) -> None:
        changed({tp.partition for tp in assigned if tp.topic == topic})

    async def revoked(_: Any, revoked: Any, **__: Any) -> None:
        changed(set())

    app.on_partitions_assigned.connect(assigned)
    app.on_partitions_revoked.connect(revoked)


def _datadir(name: str) -> Path:
    """Faust's own folder, in which it keeps nothing, since there are no tables: one for all starts, unless another user has it."""
    path = Path(gettempdir()) / f"trainhouse-{os.getuid()}-{name}"
    try:
        return private_folder(path, mend=True)  # Faust itself, and versions before, make it for all to read
    except OSError:
        return Path(mkdtemp(prefix=f"trainhouse-{name}-"))
