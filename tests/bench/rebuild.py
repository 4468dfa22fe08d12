"""Building all tables anew from the topics, as `trainhouse projections rebuild` does it: events/s, and the rows that came of them.

The peer is the least that any rebuild must do: reading the same topics to their ends.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from confluent_kafka import Producer

from tests.bench import report
from tests.support.spooled import lines, points
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.events import JobState, JobStatus, envelope_of
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import TO_END, EventProducer, consumer, producer_config, read_to_end
from trainhouse.events.model.base import Event
from trainhouse.events.model.node import AttemptHeartbeat, DeviceHealth, NodeHeartbeat, RankHeartbeat, RankState
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.events.wire.journal import NO_HASH, JournalRecord, record_hash

JOBS = 200
STATUSES = 10_000
BEATS = 6_000
TELEMETRY = 3_000
POINTS = 200
LINES = 50
NOW = 1_795_000_000_000


def run() -> None:
    """Prints the rate of a rebuild over a mix of all that a fleet says."""
    with TemporaryDirectory() as folder, KafkaServer(Path(folder) / "kafka", port=free_port()) as server:
        settings = KafkaSettings(bootstrap=server.bootstrap)
        create_topics(settings)
        _fill(settings)
        reading = _read(settings)
        events, elapsed_s, rows = _rebuild(settings, Path(folder) / "new")
    report.line(
        "rebuild",
        unit="events/s",
        events=events,
        value=events / elapsed_s,
        rows=rows,
        rows_per_s=rows / elapsed_s,
        peer={"reading_the_topics_alone": reading},
    )


def _fill(settings: KafkaSettings) -> None:
    producer, journal = EventProducer(settings), Producer(producer_config(settings))
    count = 0

    def send(topic: str, event: Event, key: str) -> None:
        nonlocal count
        count += 1
        producer.send(topic, envelope_of(event, id=f"bench-{count}", source="bench", now_ms=NOW), key=key)
        if count % 5_000 == 0:
            producer.flush(120)
            journal.flush(120)

    last_hash = NO_HASH
    for n in range(STATUSES):
        job = f"job-{n % JOBS}"
        status = JobStatus(job_id=job, status_seq=n // JOBS, state=JobState.RUNNING, step=n, updated_at_ms=NOW + n)
        send(topics.STATUS, status, job)
        value = JournalRecord(n + 1, "bench", NOW + n, n, (), (status,), 0, 1, 1, last_hash).encode()
        last_hash = record_hash(value)
        journal.produce(topics.DECISIONS, value, partition=0)
    for n in range(BEATS):
        send(topics.HEARTBEATS, _beat(n), f"node-{n % 100}")
    for n in range(TELEMETRY):
        job = f"job-{n % JOBS}"
        told = points(n // JOBS * POINTS, POINTS, lambda step: NOW + step * 100, {"loss": lambda step: 8.0 / (step + 1)}, job_id=job)
        send(topics.METRICS, told, job)
        written = lines(n // JOBS * LINES, LINES, lambda number: f"step {number}: loss {8.0 / (number + 1):.4f}", NOW, job_id=job)
        send(topics.LOGS, written, job)
    producer.flush(120)
    journal.flush(120)


def _beat(n: int) -> NodeHeartbeat:
    ranks = tuple(RankHeartbeat(rank=r, device_id=f"g{n % 100}-{r}", pid=1, state=RankState.RUNNING, step=n) for r in range(8))
    return NodeHeartbeat(
        node_id=f"node-{n % 100}",
        boot_id="b",
        incarnation="i",
        pool="default",
        sequence=n // 100,
        at_ms=NOW + n // 100 * 1000,
        interval_s=1.0,
        attempts=(AttemptHeartbeat(job_id=f"job-{n % 100}", attempt=0, epoch=1, ranks=ranks),),
        devices=tuple(DeviceHealth(device_id=f"g{n % 100}-{r}", utilization_pct=90.0, power_w=400.0) for r in range(8)),
    )


def _read(settings: KafkaSettings) -> float:
    """Records/s of a consumer that looks at nothing."""
    begin_s = time.perf_counter()
    records = 0
    for topic in (topics.STATUS, topics.DECISIONS, topics.HEARTBEATS, topics.METRICS, topics.LOGS):
        reader = consumer(settings, group="bench", **TO_END)
        records += sum(1 for _ in read_to_end(reader, topic, sorted(reader.list_topics(topic, timeout=30).topics[topic].partitions)))
        reader.close()
    return records / (time.perf_counter() - begin_s)


def _rebuild(settings: KafkaSettings, folder: Path) -> tuple[int, float, int]:
    """Events, seconds and rows, by the command's own words."""
    environment = os.environ | {"TRAINHOUSE_KAFKA_BOOTSTRAP": settings.bootstrap, "TRAINHOUSE_PROJECTOR_DATA_DIR": str(folder / "none")}
    command = [sys.executable, "-m", "trainhouse.cli.main", "projections", "rebuild", "--into", str(folder), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580, check=True)
    told = re.search(r"(\d+) events in ([\d.]+) s", done.stderr)
    if told is None:
        raise RuntimeError(f"the rebuild did not say what it did: {done.stderr[-500:]}")
    rows = sum(int(orjson.loads(line)["rows"]) for line in done.stdout.splitlines())
    return int(told[1]), float(told[2]), rows
