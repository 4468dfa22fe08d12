"""A world for the pages: real tables with a known fleet in them, their SQL endpoint, and a gateway as its own process before it.

Holds: tests may kill the gateway and start it again on the same port; Kafka and the object store are away until a test starts them where
the gateway looks for them, and what is written to Kafka then comes back to no table.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.browser.crowd import Size, fill
from tests.browser.dataset_story import tell_datasets
from tests.browser.report_story import tell_reports
from tests.browser.story import Story
from tests.support.tables.alert_tables import Tables, tables_in
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.deploy.local.servers.seaweedfs import StoreServer
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.gateway.auth import tokens

KEY = "k" * 40
START_S = 90.0
ROOT = Path(__file__).parents[2]


class Gateway:
    """A gateway process over an SQL endpoint."""

    def __init__(self, sql_url: str, log: Path, store: StoreServer) -> None:
        self._sql_url = sql_url
        self._log = log
        self._store = store
        self.port = free_port()
        self.kafka_port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts it and waits until it answers."""
        own = {
            "TRAINHOUSE_GATEWAY_KEY": KEY,
            "TRAINHOUSE_GATEWAY_PORT": str(self.port),
            "TRAINHOUSE_CLICKHOUSE_URL": self._sql_url,
            "TRAINHOUSE_KAFKA_BOOTSTRAP": f"127.0.0.1:{self.kafka_port}",
            "TRAINHOUSE_S3_ENDPOINT": self._store.endpoint,
            "TRAINHOUSE_S3_ACCESS_KEY": self._store.access_key,
            "TRAINHOUSE_S3_SECRET_KEY": self._store.secret_key,
        }
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHOUSE_")}
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "tests.browser.served"]
            self.process = subprocess.Popen(command, env=clean | own, stdout=log, stderr=log, cwd=ROOT, preexec_fn=die_with_parent())
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self.process.poll() is None and time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(0.1)

    def stop(self, hard: bool = False) -> None:
        """Ends it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL if hard else signal.SIGTERM)
        self.process.wait(120)

    def token(self, *roles: str, projects: tuple[str, ...] = ("*",), sub: str = "eva") -> str:
        """A token that it believes."""
        return tokens.issue(KEY.encode(), sub, roles or ("admin",), projects, now_s=int(time.time()))

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


class World:
    """What tests have of it."""

    def __init__(self, tables: Tables, gateway: Gateway, story: Story, store: StoreServer) -> None:
        self.tables = tables
        self.gateway = gateway
        self.story = story
        self._store = store
        self._objects: S3ObjectStore | None = None

    @property
    def objects(self) -> S3ObjectStore:
        """The gateway's object store, started at its first use."""
        if self._objects is None:
            self._store.start()
            found: dict[str, Any] = {name: getattr(self._store, name) for name in ("endpoint", "access_key", "secret_key", "bucket")}
            self._objects = S3ObjectStore(StoreSettings(**found))
        return self._objects

    def stop(self) -> None:
        """Ends the store, where there is one."""
        if self._objects is not None:
            self._store.stop()


@contextmanager
def world_in(folder: Path, size: Size) -> Iterator[World]:
    """A world of a size; everything ends with it."""
    with tables_in(folder / "clickhouse") as tables:
        fill(tables, size)
        story = Story(tables)
        story.tell()
        tell_datasets(story)
        tell_reports(story)
        store = StoreServer(folder / "store")
        gateway = Gateway(tables.url, folder / "gateway.log", store)
        gateway.start()
        world = World(tables, gateway, story, store)
        try:
            yield world
        finally:
            gateway.stop()
            world.stop()
