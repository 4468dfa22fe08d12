"""Faust's own command line on the topology: agents, tables, and a worker on a real broker, with its figures and its web view."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.support.waiting import until
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.events.bus.kafka import TO_END, consumer, read_to_end
from trainhouse.events.wire import topics

if TYPE_CHECKING:
    from trainhouse.events.settings import KafkaSettings

pytestmark = pytest.mark.stack
AGENTS = {"intake": ("jobs", "admission"), "scheduler": ("control",), "detector": ("heartbeats",)}


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "faust", "-A", f"trainhouse.scheduler.stream.topology:{name}", *arguments]


def environment(**more: str) -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("TRAINHOUSE_", "FAUST_"))} | more


@pytest.mark.parametrize("name", AGENTS)
def test_agents_and_tables_are_listed_without_a_broker(name: str, tmp_path: Path) -> None:
    def listed(what: str) -> str:
        done = subprocess.run(
            command(name, what), env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    agents = listed("agents")
    for agent in AGENTS[name]:
        assert f"@{agent} " in agents and f"trainhouse.{agent} " in agents
    assert "Tables" in listed("tables")


@contextmanager
def worker(name: str, log: Path, **more: str) -> Iterator[psutil.Popen]:
    with log.open("ab") as out:
        told, die = environment(**more), die_with_parent()
        started = psutil.Popen(command(name, "worker"), env=told, stdout=out, stderr=out, preexec_fn=die)
        try:
            yield started
        finally:
            if started.poll() is None:
                started.kill()
            started.wait(120)


def dead_letters(settings: KafkaSettings) -> list[bytes | None]:
    reader = consumer(settings, **TO_END)
    try:
        partitions = list(reader.list_topics(topics.DEAD_LETTERS, 30).topics[topics.DEAD_LETTERS].partitions)
        return [message.value() for message in read_to_end(reader, topics.DEAD_LETTERS, partitions)]
    finally:
        reader.close()


def view(path: Path, page: str) -> Any:
    """What Faust's web view says on its socket."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(60)
        asking.connect(str(path))
        asking.sendall(f"GET {page} HTTP/1.1\r\nHost: faust\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: asking.recv(65536), b""))
    return json.loads(answer.partition(b"\r\n\r\n")[2])


@pytest.fixture
def web_socket() -> Iterator[Path]:
    """Not in the folder of the test: a socket's path has 107 bytes at most."""
    with TemporaryDirectory(prefix="th-") as folder:
        yield Path(folder) / "socket"


def test_a_worker_does_its_work_and_shows_it(settings: KafkaSettings, tmp_path: Path, web_socket: Path) -> None:
    from confluent_kafka import Producer

    port, log, nonsense = free_port(), tmp_path / "worker.log", b"no job of this test at all"
    more = {
        "TRAINHOUSE_KAFKA_BOOTSTRAP": settings.bootstrap,
        "TRAINHOUSE_METRICS_PORT": str(port),
        "TRAINHOUSE_SCHEDULER_WEB_SOCKET": str(web_socket),
    }
    with worker("intake", log, **more) as running:
        producer = Producer({"bootstrap.servers": settings.bootstrap})
        producer.produce(topics.JOBS, nonsense)
        producer.flush()
        until(lambda: nonsense in dead_letters(settings), log.read_text)

        def figures() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                return str(answer.read().decode())

        until(lambda: f'trainhouse_faust_events_total{{topic="{topics.JOBS}"}}' in figures(), figures)
        until(lambda: f'trainhouse_faust_assigned_partitions{{topic="{topics.ADMISSION}"}}' in figures(), figures)
        until(web_socket.exists, log.read_text)
        assert view(web_socket, "/stats/")["Sensor0"]["events_total"] >= 1
        listening = {c.laddr.port for c in running.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        assert listening == {port}
        running.send_signal(signal.SIGTERM)
        until(lambda: running.poll() is not None, log.read_text)
        assert running.returncode == 0, log.read_text()[-3000:]
