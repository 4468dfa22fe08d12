"""Node agents of one's own beside a running stack: started by settings alone, as on another machine, and stopped by pid."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import PATIENCE_S, until
from trainhouse.deploy.local.client_config import exports
from trainhouse.deploy.local.layout import StackFolder
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.events import PoolCreated, envelope_of
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.events.wire.topics import JOBS

# Given up after 15 of them: no agent that has to wait for a processor for half a minute is, and no test waits for that.
HEARTBEAT_S = "3"


@dataclass(frozen=True)
class Agents:
    """The nodes of one pool, and what their agents write."""

    pool: str
    node_ids: tuple[str, ...]
    logs: tuple[Path, ...]

    def told(self) -> str:
        """The last lines of every agent."""
        return "\n".join(f"{log.name}: {log.read_text()[-3000:]}" for log in self.logs)


def a_pool(stack: LiveStack, prefix: str, partition: int) -> str:
    """Asks for a pool of one's own; its name."""
    name = f"{prefix}-{secrets.token_hex(4)}"
    producer = EventProducer(stack.client().kafka)
    event = PoolCreated.model_validate({"pool": name, "partition": partition})
    producer.send(JOBS, envelope_of(event, id=f"pool:{name}", source="test", now_ms=wall_ms()))
    producer.flush()
    return name


def shown(folder: Path) -> Path:
    """What jobs of these agents see beside their own folders: scripts of tests, and files that tell them something."""
    path = folder / "shown"
    path.mkdir(exist_ok=True)
    return path


@contextmanager
def agents(stack: LiveStack, pool: str, folder: Path, *node_ids: str, **settings: str) -> Iterator[Agents]:
    """Agents with two slots each, from when all of them are in SQL; each must end with 0 after SIGTERM."""
    environment = {k: v for k, v in stack.environment.items() if not k.startswith("TRAINHOUSE_")}
    told = exports(StackFolder(stack.data_dir), "agent")
    environment |= {k: v for k, v in told.items() if k not in ("TRAINHOUSE_CONFIG", "TRAINHOUSE_DATA_DIR")}
    made = Agents(pool, node_ids, tuple(folder / f"{node_id}.log" for node_id in node_ids))
    processes = []
    for node_id, path in zip(node_ids, made.logs, strict=True):
        own = {"POOL": pool, "NODE_ID": node_id, "DIR": str(folder / node_id), "SLOTS": "2", "ACCELERATORS": "none"}
        own |= {"HEARTBEAT_INTERVAL_S": HEARTBEAT_S}
        own |= {"JOB_PATHS": str(shown(folder))} | settings
        with path.open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "trainhouse.cli.main", "run", "agent"],
                    env=environment | {f"TRAINHOUSE_AGENT_{k}": v for k, v in own.items()},
                    cwd=folder,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    preexec_fn=die_with_parent(signal.SIGTERM),  # which ends its ranks too
                )
            )
    alive = f"SELECT node_id FROM nodes WHERE pool = '{pool}' AND state = 'ALIVE'"
    try:
        until(lambda: {str(row["node_id"]) for row in stack.rows(alive)} >= set(node_ids), made.told)
        yield made
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        ended = [process.wait(PATIENCE_S) for process in processes]
    assert ended == [0] * len(processes), made.told()


@contextmanager
def two_nodes(stack: LiveStack, prefix: str, partition: int, folder: Path) -> Iterator[Agents]:
    """Two nodes with two slots each, in a pool of their own."""
    pool = a_pool(stack, prefix, partition)
    with agents(stack, pool, folder, f"{pool}-a", f"{pool}-b") as made:
        yield made
