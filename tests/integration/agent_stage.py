"""A stage for one or more real agents on a real broker: a hand-written scheduler's voice, and ears on every topic.

Never: decides anything; a test says what is allocated and released.
"""

import itertools
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import TopicPartition

from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.events import (
    Envelope,
    Event,
    GangAllocated,
    GangReleased,
    JobSpec,
    NodeDesiredState,
    NodePlacement,
    NodeRegistered,
    Order,
    PoolCreated,
    decode,
    envelope_of,
)
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import EventProducer, consumer, watermarks
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import ALLOCATIONS, CHECKPOINTS, CONTROL, HEARTBEATS, LOGS, METRICS, OPERATION_REPLIES, POOLS, PROGRESS
from trainhouse.workers.launcher import AttemptPaths

T = TypeVar("T", bound=Event)
PARTITION = 1
TOPICS = (CONTROL, PROGRESS, METRICS, LOGS, CHECKPOINTS, HEARTBEATS, OPERATION_REPLIES)
# What is imported stays: looks for cycles in it are a sixth of the CPU time of an agent's start, and tests start many.
AGENT = "import gc; gc.disable(); from trainhouse.workers.agent.main import main; gc.enable(); main()"
_orders = itertools.count(1)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Heard:
    """One record that was heard, with where it lay."""

    topic: str
    partition: int
    envelope: Envelope

    @property
    def event(self) -> Event:
        return self.envelope.event


@dataclass
class Stage:
    """Speaks as the scheduler of one pool, and hears everything that agents say about its jobs and nodes."""

    kafka: KafkaSettings
    pool: str
    folder: Path
    heard: list[Heard] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    partition: int = PARTITION

    def __post_init__(self) -> None:
        self._producer = EventProducer(self.kafka)
        self._ear = consumer(self.kafka)
        places = []
        for topic in TOPICS:
            for number in self._ear.list_topics(topic, timeout=60).topics[topic].partitions:
                places.append(TopicPartition(topic, number, watermarks(self._ear, topic, number, 60)[1]))
        self._ear.assign(places)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._ear.close()

    def create_pool(self) -> None:
        self._say(POOLS, PoolCreated(pool=self.pool, partition=self.partition), partition=0)

    def move_pool(self, partition: int) -> None:
        """Says that the pool is on another partition, and speaks as that one's scheduler from now on."""
        self.partition = partition
        self.create_pool()

    def start_agent(self, node: str = "n1", folder: Path | None = None, **settings: object) -> subprocess.Popen[bytes]:
        """Starts a real agent process. `environment` has what it gets beside its own settings."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHOUSE_")}
        chosen = {
            "node_id": node,
            "pool": self.pool,
            "dir": folder or self.folder / node,
            "slots": 4,
            "accelerators": "none",
            "warm_start": False,
        } | settings
        env |= {f"TRAINHOUSE_AGENT_{k.upper()}": str(v) for k, v in chosen.items()}
        env |= {"TRAINHOUSE_KAFKA_BOOTSTRAP": self.kafka.bootstrap} | self.environment
        log = (self.folder / f"{node}.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, "-c", AGENT],
            env=env,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent(signal.SIGTERM),  # which ends its ranks too
        )
        log.close()
        self.processes.append(process)
        return process

    def registered(self, node: str = "n1", nth: int = 1) -> NodeRegistered:
        """Waits for the node's nth registration."""
        return self.wait(lambda: [e for e in self.events(NodeRegistered) if e.node_id == node], nth)[nth - 1]

    def allocate(
        self, job: str, epoch: int, spec: JobSpec, nodes: list[tuple[NodeRegistered, int]], order: Order | None = None
    ) -> GangAllocated:
        """Allocates the first devices of each node."""
        placements, first = [], 0
        for node, count in nodes:
            devices = tuple(d.device_id for d in node.devices[:count])
            placements.append(
                NodePlacement(node_id=node.node_id, boot_id=node.boot_id, address=node.address, first_rank=first, devices=devices)
            )
            first += count
        event = GangAllocated(
            job_id=job,
            attempt=epoch,
            epoch=epoch,
            pool=self.pool,
            spec=spec,
            spec_sha256=spec.sha256(),
            placements=tuple(placements),
            master_address=nodes[0][0].address,
            master_port=nodes[0][0].rendezvous_ports[0],
        )
        self.command(event, order)
        return event

    def release(self, gang: GangAllocated, reason: str = "cancelled", grace_s: float = 0.5) -> None:
        nodes = tuple(p.node_id for p in gang.placements)
        self.command(
            GangReleased(
                job_id=gang.job_id, attempt=gang.attempt, epoch=gang.epoch, pool=self.pool, node_ids=nodes, reason=reason, grace_s=grace_s
            )
        )

    def desire(self, node: NodeRegistered, *gangs: GangAllocated) -> None:
        self.command(
            NodeDesiredState(node_id=node.node_id, boot_id=node.boot_id, incarnation=node.incarnation, pool=self.pool, allocations=gangs)
        )

    def command(self, event: Event, order: Order | None = None) -> None:
        self._say(ALLOCATIONS, event, self.partition, order or Order(self.partition, now_ms(), next(_orders)))

    def say(self, topic: str, event: Event, key: str) -> None:
        self._producer.send(topic, envelope_of(event, id=f"stage-{now_ms()}-{next(_orders)}", source="test", now_ms=now_ms()), key=key)
        self._producer.flush()

    def _say(self, topic: str, event: Event, partition: int, order: Order | None = None) -> None:
        envelope = envelope_of(event, id=f"stage-{now_ms()}-{next(_orders)}", source="test", now_ms=now_ms(), order=order)
        self._producer.send(topic, envelope, key=self.pool, partition=partition)
        self._producer.flush()

    def listen(self, timeout_s: float = 0.05) -> None:
        for message in self._ear.consume(500, timeout=timeout_s):
            assert message.error() is None, message.error()
            self.heard.append(Heard(str(message.topic()), int(message.partition() or 0), decode(message.value(), message.headers())))

    def wait(self, find: Callable[[], list[T]], count: int = 1, timeout_s: float = 150.0) -> list[T]:
        """Listens until `find` gives `count` of them."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = find()
            if len(found) >= count:
                return found
            assert time.monotonic() < deadline, (
                f"only {found} after {timeout_s} s; heard {[h.event.event_type for h in self.heard[-20:]]}; {self.logs()}"
            )
            self.listen()

    def wait_for(self, kind: type[T], job: str, count: int = 1, timeout_s: float = 150.0) -> list[T]:
        """Waits until `count` events of a kind about a job were heard."""
        return self.wait(lambda: self.events(kind, job), count, timeout_s)

    def events(self, kind: type[T], job: str | None = None, topic: str | None = None) -> list[T]:
        return [h.event for h in self._of(kind, job, topic)]  # type: ignore[misc]

    def _of(self, kind: type[Event], job: str | None, topic: str | None) -> Iterator[Heard]:
        for h in self.heard:
            if isinstance(h.event, kind) and (job is None or getattr(h.event, "job_id", None) == job) and topic in (None, h.topic):
                yield h

    def ids(self, kind: type[Event], job: str) -> list[str]:
        return [str(h.envelope.id) for h in self._of(kind, job, None)]

    def paths(self, gang: GangAllocated, node: str = "n1") -> AttemptPaths:
        return AttemptPaths.of(self.folder / node, gang.job_id, int(gang.epoch))

    def logs(self) -> str:
        return "\n".join(p.read_text()[-3000:] for p in self.folder.glob("*.log"))


def script(body: str, **more: object) -> JobSpec:
    """A job of one inline program."""
    return JobSpec.model_validate({"runtime": {"command": ["python", "-c", body]}, **more})


@pytest.fixture
def stage(kafka: str, tmp_path: Path) -> Iterator[Stage]:
    """A stage with a pool of its own on the shared broker."""
    settings = KafkaSettings(bootstrap=kafka)
    create_topics(settings)
    made = Stage(settings, f"pool-{uuid.uuid4().hex[:8]}", tmp_path)
    made.create_pool()
    yield made
    made.close()
