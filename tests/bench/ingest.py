"""Metric points/s from Kafka into ClickHouse with all derived tables, beside what bounds it: raw Arrow inserts into the same engine (into
a table that feeds nothing, and with all that is derived from it), and a bare consumer.

The topic is filled first; then the projector starts on an empty database, and its rate is the slope between its first and last rows.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import clickhouse_connect

from tests.bench import report
from tests.support.spooled import points
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.events import StepMetrics, envelope_of
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import TO_END, EventProducer, consumer, read_to_end
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics

RECORDS = 6_000
POINTS_PER_RECORD = 500
PASSWORD = "of-the-bench"  # pragma: allowlist secret
POINTS = RECORDS * POINTS_PER_RECORD
JOBS = 40
SCRIPTS = Path(__file__).parent / "scripts"


def run() -> None:
    """Prints the projector's rate and the two that bound it."""
    with TemporaryDirectory() as folder, KafkaServer(Path(folder) / "kafka", port=free_port()) as server:
        settings = KafkaSettings(bootstrap=server.bootstrap)
        create_topics(settings)
        _fill(settings)
        bare = _consumer(settings)
        ours = _projector(settings, Path(folder) / "projector")
        raw, derived = _arrow(Path(folder) / "arrow")
    report.line(
        "metric_ingest",
        unit="points/s",
        points=POINTS,
        points_per_record=POINTS_PER_RECORD,
        projector=ours,
        peer={"raw_arrow_insert": raw, "arrow_insert_with_derived": derived, "bare_consumer": bare},
        share_of_raw=ours / raw,
        share_of_what_binds=ours / min(derived, bare),
        aim_share=0.6,
    )


def _fill(settings: KafkaSettings) -> None:
    producer = EventProducer(settings)
    sent: dict[int, int] = {}
    for record in range(RECORDS):
        job = record % JOBS
        first = sent.get(job, 0)
        sent[job] = first + POINTS_PER_RECORD
        envelope = envelope_of(_record(job, first), id=f"bench-{record}", source="bench", now_ms=first)
        producer.send(topics.METRICS, envelope, key=f"job-{job}")
        if record % 500 == 499:
            producer.flush(60)
    producer.flush(120)


def _record(job: int, first: int) -> StepMetrics:
    curves = {"loss": lambda step: 8.0 / (step + 1) + (step * 7919 % 1000) / 1e4}
    return points(first, POINTS_PER_RECORD, lambda step: 1_795_000_000_000 + step * 10, curves, job_id=f"job-{job}")


def _consumer(settings: KafkaSettings) -> float:
    """Points/s of a consumer that looks at nothing."""
    reader = consumer(settings, group="bench", **TO_END)
    begin = time.perf_counter()
    records = sum(1 for _ in read_to_end(reader, topics.METRICS, range(settings.partitions)))
    elapsed_s = time.perf_counter() - begin
    reader.close()
    if records != RECORDS:
        raise RuntimeError(f"{records} of {RECORDS} records came")
    return POINTS / elapsed_s


def _projector(settings: KafkaSettings, folder: Path) -> float:
    """Points/s of the projector's process, seen from outside over SQL."""
    port = free_port()
    with _process(settings, folder, port):
        sql = _connected(port)
        seen: list[tuple[float, int]] = []
        deadline = time.monotonic() + 180
        while not seen or seen[-1][1] < POINTS:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{seen[-1:]} of {POINTS} points were ingested in 180 s")
            count = int(sql.query("SELECT count() FROM step_metrics").result_rows[0][0])
            if count and (not seen or count > seen[-1][1]):
                seen.append((time.perf_counter(), count))
            time.sleep(0.02)
    (begin_s, first), (end_s, last) = seen[0], seen[-1]
    if last == first:
        raise RuntimeError("all points became visible at once: use more of them")
    return (last - first) / (end_s - begin_s)


@contextmanager
def _process(settings: KafkaSettings, folder: Path, port: int) -> Iterator[None]:
    environment = os.environ | {
        "TRAINHOUSE_KAFKA_BOOTSTRAP": settings.bootstrap,
        "TRAINHOUSE_PROJECTOR_DATA_DIR": str(folder),
        "TRAINHOUSE_PROJECTOR_HTTP_PORT": str(port),
        "TRAINHOUSE_CLICKHOUSE_URL": f"http://127.0.0.1:{port}",
        "TRAINHOUSE_CLICKHOUSE_PASSWORD": PASSWORD,
    }
    command = [sys.executable, "-m", "trainhouse.cli.main", "run", "projector"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def _connected(port: int) -> Any:
    deadline = time.monotonic() + 60
    while True:
        try:
            return clickhouse_connect.get_client(host="127.0.0.1", port=port, password=PASSWORD)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _arrow(folder: Path) -> tuple[float, float]:
    command = [sys.executable, str(SCRIPTS / "arrow_insert.py"), str(folder), str(POINTS), str(JOBS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=400)
    told = json.loads(done.stdout.splitlines()[-1])
    return float(told["rows_per_s"]), float(told["with_derived_per_s"])
