"""500 watchers of 500 live jobs through the gateway: from a fact's making until its watcher has it.

Each job tells a point of a metric and a status every second, as an agent and the scheduler do. A status comes to the gateway by its
topic, a point by the tables. Producers and watchers are one process beside the stack, so its own work is in the delay.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from urllib.parse import urlsplit

from tests.bench import report
from tests.bench.stack import bench_stack
from trainhouse.events import JobStatus, StepMetrics, envelope_of
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.events.wire.envelope import from_rfc3339

WATCHERS = 500
SECONDS = 20
WARM_S = 5
PATIENCE_S = 300.0
CONNECTING = 25
LINE_BYTES = 4 * 1024 * 1024


class Watched:
    """What watchers saw: delays in ms of points and of statuses."""

    def __init__(self) -> None:
        self.points_ms: list[float] = []
        self.statuses_ms: list[float] = []
        self.live = 0
        self.measuring = False

    def take(self, name: str, data: dict[str, Any]) -> None:
        """One event of a stream."""
        now_s = time.time()
        if not self.measuring:
            return
        if name == "metrics":
            self.points_ms += [(now_s - point["value"]) * 1000 for point in data["points"]]
        elif name == "status":
            self.statuses_ms.append(now_s * 1000 - from_rfc3339(data["updated_at"]))


def run() -> None:
    """Prints the delay of points and of statuses."""
    with bench_stack(slots=1) as stack:
        environment = stack.environment
        watched = asyncio.run(measure(stack.kafka, environment["TRAINHOUSE_GATEWAY_URL"], environment["TRAINHOUSE_GATEWAY_TOKEN"]))
    for figure, delays_ms in (("sse_metrics", watched.points_ms), ("sse_status", watched.statuses_ms)):
        report.line(
            figure,
            unit="ms",
            watchers=WATCHERS,
            events=len(delays_ms),
            expected=WATCHERS * SECONDS,
            p50=report.percentile(delays_ms, 50),
            p99=report.percentile(delays_ms, 99),
        )


async def measure(kafka: KafkaSettings, url: str, token: str, watchers: int = WATCHERS) -> Watched:
    """Runs the load and watches it."""
    producer = EventProducer(kafka)
    jobs = [f"watched-{time.time_ns() // 10**9}-{n}" for n in range(watchers)]
    _tell(producer, jobs, 0)
    await asyncio.to_thread(producer.flush)
    watched = Watched()
    turns = asyncio.Semaphore(CONNECTING)
    watching = [asyncio.create_task(_watch(url, token, job, watched, turns)) for job in jobs]
    deadline = time.monotonic() + PATIENCE_S
    while watched.live < watchers:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{watched.live} of {watchers} streams are live after {PATIENCE_S:.0f} s")
        await asyncio.sleep(0.1)
    for second in range(1, WARM_S + SECONDS + 1):
        watched.measuring = second > WARM_S
        began = time.monotonic()
        for part in range(10):
            _tell(producer, jobs[part::10], second)
            await asyncio.sleep(max(0.0, began + (part + 1) / 10 - time.monotonic()))
    await asyncio.sleep(3)
    for task in watching:
        task.cancel()
    return watched


def _tell(producer: EventProducer, jobs: list[str], step: int) -> None:
    for job in jobs:
        now_ms = time.time_ns() // 1_000_000
        of: dict[str, Any] = {"job_id": job, "attempt": 0, "epoch": 1}
        status = {"status_seq": step, "state": "RUNNING", "name": "watched", "project": "bench", "step": step, "updated_at_ms": now_ms}
        where = {"rank": 0, "node_id": "bench", "start": step * 10, "end": step * 10 + 10, "steps": (step,), "times_ms": (now_ms,)}
        points = StepMetrics.model_validate(of | where | {"offsets": (step * 10,), "metrics": {"sent_at_s": (now_ms / 1000,)}})
        for topic, event in ((topics.STATUS, JobStatus.model_validate(of | status)), (topics.METRICS, points)):
            producer.send(topic, envelope_of(event, id=f"{job}:{topic}:{step}", source="bench", now_ms=now_ms))


async def _watch(url: str, token: str, job: str, watched: Watched, turns: asyncio.Semaphore) -> None:
    """One stream, connected again until its job is known."""
    at = urlsplit(url)
    request = (
        f"GET /v1/training-jobs/{job}/stream?include=status&include=metrics HTTP/1.1\r\n"
        f"Host: {at.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
    while True:
        async with turns:
            reader, writer = await asyncio.open_connection(at.hostname, at.port, limit=LINE_BYTES)
            writer.write(request.encode())
            found = b" 200 " in await reader.readline()
            if found:
                await reader.readuntil(b"event: status")
                watched.live += 1
        try:
            if found:
                await _read(reader, watched)
                watched.live -= 1
        finally:
            writer.close()
        await asyncio.sleep(0.5)


async def _read(reader: asyncio.StreamReader, watched: Watched) -> None:
    name = ""
    while line := await reader.readline():
        if line.startswith(b"event: "):
            name = line[7:].decode().strip()
        elif line.startswith(b"data: "):
            watched.take(name, json.loads(line[6:]))
