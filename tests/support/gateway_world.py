"""A gateway's app over the real embedded engine, with two projects in it; Kafka alone is a list.

Holds: `vision` has jobs of its own, `speech` has others; `world.token(...)` speaks for anybody.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from tests.support.tables.alert_tables import Tables, tables_in
from trainhouse.events import Event, JobStatus, JobSubmitted, LogLines, StepMetrics
from trainhouse.events.wire import topics
from trainhouse.gateway.app import make_app
from trainhouse.gateway.auth import tokens
from trainhouse.gateway.auth.keyring import Keyring
from trainhouse.gateway.bus import Sent
from trainhouse.gateway.context import Gateway
from trainhouse.gateway.live.hub import Hub
from trainhouse.gateway.queries.sql_reader import SqlReader
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.projections.settings import ClickHouseSettings

KEY = secrets.token_hex(32).encode()
NOW_MS = time.time_ns() // 1_000_000
SPEC: dict[str, Any] = {"name": "gpt", "runtime": {"command": ["python", "train.py"]}}


@dataclass
class ListBus:
    """Keeps what would go to Kafka."""

    sent: list[tuple[str, str, Event]] = field(default_factory=list)

    async def send(self, topic: str, event: Event, event_id: str, *, key: str | None = None) -> Sent:
        self.sent.append((topic, event_id, event))
        return Sent(event_id, topic, 0, len(self.sent))

    def send_nowait(
        self, topic: str, event: Event, event_id: str, *, key: str | None = None, on_done: Callable[[bool], None] = lambda taken: None
    ) -> None:
        self.sent.append((topic, event_id, event))
        on_done(True)

    def close(self) -> None:
        pass

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for _, _, event in self.sent if isinstance(event, kind)]


@dataclass
class World:
    """The app, what is in its tables, and what it sent."""

    tables: Tables
    gateway: Gateway
    bus: ListBus
    client: TestClient

    def token(self, sub: str = "ana", role: str = "submitter", projects: Sequence[str] = ("vision",), **more: Any) -> dict[str, str]:
        """Headers of somebody."""
        made = tokens.issue(KEY, sub, [role], list(projects), now_s=int(time.time()), **more)
        return {"Authorization": f"Bearer {made}"}

    def admin(self) -> dict[str, str]:
        return self.token("root", "admin", ["*"])

    def submit(self, job_id: str, project: str, at_ms: int = NOW_MS, seq: int = 1, state: str = "RUNNING", **more: Any) -> None:
        """A job as the platform would tell of it."""
        spec = SPEC | {"project": project, "user": "ana"}
        event = JobSubmitted.model_validate({"job_id": job_id, "spec": spec})
        self.tables.put(topics.JOBS, [event], at_ms)
        fields = {"job_id": job_id, "status_seq": seq, "state": state, "name": "gpt", "project": project, "user": "ana", "pool": "default"}
        times = {"submitted_at_ms": at_ms, "updated_at_ms": at_ms, "spec_sha256": event.spec.sha256()}
        self.tables.put(topics.STATUS, [JobStatus.model_validate(fields | times | more)], at_ms)

    def log(self, job_id: str, texts: Sequence[str], start: int = 0) -> None:
        """Lines of rank 0, ten bytes each."""
        offsets = tuple(start + 10 * n for n in range(len(texts)))
        of = {"job_id": job_id, "attempt": 0, "epoch": 1, "rank": 0, "node_id": "n1", "stream": "stdout", "read_at_ms": NOW_MS}
        lines = LogLines.model_validate(of | {"start": start, "end": start + 10 * len(texts), "lines": tuple(texts), "offsets": offsets})
        self.tables.put(topics.LOGS, [lines], NOW_MS)

    def points(self, job_id: str, steps: Sequence[int], start: int = 0) -> None:
        """A loss of rank 0 at some steps."""
        offsets = tuple(start + 10 * n for n in range(len(steps)))
        of = {"job_id": job_id, "attempt": 0, "epoch": 1, "rank": 0, "node_id": "n1", "start": start, "end": start + 10 * len(steps)}
        values: dict[str, Any] = {"steps": tuple(steps), "times_ms": tuple(NOW_MS + step for step in steps), "offsets": offsets}
        values["metrics"] = {"loss": tuple(1.0 / (step + 1) for step in steps)}
        self.tables.put(topics.METRICS, [StepMetrics.model_validate(of | values)], NOW_MS)


@contextmanager
def world_in(folder: Path, **settings: Any) -> Iterator[World]:
    """A world in a fresh folder."""
    with tables_in(folder) as tables:
        bus = ListBus()
        chosen = GatewaySettings.model_validate(
            {"key": KEY.decode(), "stream_poll_s": 0.1, "hosts": "gateway", "after_wait_s": 1.0} | settings
        )
        reader = SqlReader(ClickHouseSettings(url=tables.url))
        gateway = Gateway(chosen, Keyring.of_settings(chosen), reader, bus, Hub(50, 100))  # type: ignore[arg-type]
        gateway.revocations.complete()
        gateway.projects.complete()
        with TestClient(make_app(gateway), base_url="http://gateway", raise_server_exceptions=False) as client:
            yield World(tables, gateway, bus, client)
