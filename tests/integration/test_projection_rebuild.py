"""`trainhouse projections`: on a real Kafka, a rebuild beside a projector that serves gives its tables, takes their place, and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir

import pytest

from tests.support.waiting import until
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.model.base import Event
from trainhouse.events.model.job import JobState, JobStatus
from trainhouse.events.model.node import Device, DeviceHealth, NodeHeartbeat, NodeRegistered
from trainhouse.events.model.telemetry import LogLines, StepMetrics
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.projections.settings import ClickHouseSettings
from trainhouse.projections.store.clickhouse import connect_server

pytestmark = pytest.mark.stack
NOW = 1_800_000_000_000
JOB = f"rebuilt-{uuid.uuid4().hex[:8]}"
COMMAND = [sys.executable, "-m", "trainhouse.cli.main"]


class Site:
    """A projector over the shared broker, and the command line beside it."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        port = free_port()
        self._log = folder / "projector.log"
        self.url = f"http://127.0.0.1:{port}"
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHOUSE_")} | {
            "TRAINHOUSE_KAFKA_BOOTSTRAP": bootstrap,
            "TRAINHOUSE_CLICKHOUSE_PASSWORD": "of-the-tests",  # pragma: allowlist secret
            "TRAINHOUSE_PROJECTOR_DATA_DIR": str(folder / "clickhouse"),
            "TRAINHOUSE_PROJECTOR_HTTP_PORT": str(port),
            "TRAINHOUSE_CLICKHOUSE_URL": self.url,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [*COMMAND, "run", "projector"]
            ends = die_with_parent(signal.SIGKILL)
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, preexec_fn=ends, cwd=gettempdir())

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(150)

    def trainhouse(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments], env=self._environment, capture_output=True, text=True, timeout=400, check=False, cwd=gettempdir()
        )

    def hashes(self, *arguments: str) -> dict[str, tuple[int, str]]:
        done = self.trainhouse("projections", *(arguments or ("hash",)), "--json")
        assert done.returncode == 0, done.stderr
        # Asking is itself an access: the audit has grown by the next look.
        rows = [r for r in map(json.loads, done.stdout.splitlines()) if r["table"] != "audit_rows"]
        return {r["table"]: (r["rows"], r["hash"]) for r in rows}

    def statuses(self) -> int:
        try:
            found = connect_server(ClickHouseSettings(url=self.url, password="of-the-tests"))
            return int(found.rows("SELECT count() FROM job_status_history WHERE job_id = {j:String}", {"j": JOB})[0][0])
        except Exception:
            return -1

    def wait_for(self, statuses: int) -> None:
        until(lambda: self.statuses() == statuses, lambda: self._log.read_text()[-4000:], 300)


@pytest.fixture
def site(settings: KafkaSettings, tmp_path: Path) -> Iterator[Site]:
    made = Site(settings.bootstrap, tmp_path)
    yield made
    made.stop()


def tell(settings: KafkaSettings, begin: int, end: int) -> None:
    producer = EventProducer(settings)

    def send(topic: str, event: Event, name: str) -> None:
        producer.send(topic, envelope_of(event, id=f"{JOB}-{name}", source="test", now_ms=NOW), key=JOB)

    of = {"job_id": JOB, "attempt": 0, "epoch": 1, "rank": 0, "node_id": "n"}
    node = {"node_id": f"n-{JOB}", "boot_id": "b", "incarnation": "i", "pool": "p"}
    for n in range(begin, end):
        file = {"start": n * 10, "end": n * 10 + 10, "offsets": (n * 10, n * 10 + 5)}
        send(
            topics.METRICS, StepMetrics(steps=(n, n), times_ms=(NOW, NOW + n), metrics={"loss": (1.0, 1 / (n + 1))}, **of, **file), f"m{n}"
        )  # type: ignore[arg-type]
        send(topics.LOGS, LogLines(stream="stdout", lines=("a", f"b{n}"), read_at_ms=NOW, **of, **file), f"l{n}")  # type: ignore[arg-type]
        devices = (Device(device_id="g0", index=0, type="H100"),)
        send(topics.CONTROL, NodeRegistered(address="a", devices=devices, rendezvous_ports=(1,), **node), f"r{n}")  # type: ignore[arg-type]
        health = (DeviceHealth(device_id="g0", utilization_pct=n % 100),)
        beat = NodeHeartbeat(sequence=n, at_ms=NOW + n * 10_000, interval_s=1.0, devices=health, **node)  # type: ignore[arg-type]
        send(topics.HEARTBEATS, beat, f"h{n}")
        send(topics.STATUS, JobStatus(job_id=JOB, status_seq=n, state=JobState.RUNNING, step=n, updated_at_ms=NOW + n), f"s{n}")
    producer.flush(60)


def test_a_rebuild_gives_the_same_tables_takes_their_place_and_goes_on(site: Site, settings: KafkaSettings, tmp_path: Path) -> None:
    tell(settings, 0, 300)
    site.start()
    site.wait_for(300)
    into = ("--into", str(tmp_path / "new"))
    fresh = site.hashes("rebuild", *into)
    assert fresh["step_metrics"][0] >= 600
    assert fresh["device_minutes_rows"][0] >= 50
    until(lambda: site.hashes() == fresh, lambda: str(set(site.hashes().items()) ^ set(fresh.items())), 300)

    refused = site.trainhouse("projections", "swap", *into)
    assert refused.returncode == 69, refused.stderr
    assert "does another process use it?" in refused.stderr
    site.stop()
    swapped = site.trainhouse("projections", "swap", *into)
    assert swapped.returncode == 0, swapped.stderr
    assert len(list(tmp_path.glob("clickhouse.before-*"))) == 1

    tell(settings, 300, 310)
    site.start()
    site.wait_for(310)
    grown = site.hashes()
    assert grown["logs"][0] >= fresh["logs"][0]
    assert grown["artifacts_rows"] == fresh["artifacts_rows"]
