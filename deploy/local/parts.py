"""The parts of a stack: what runs, how it is started, stopped and signalled, and where it answers.

Always: our own parts run as `python -m trainhouse.cli.main run NAME`, by settings alone, as they do on any machine.
Never: a part that only this stack can start.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainhouse.deploy.local.kafka import KafkaServer
from trainhouse.deploy.local.layout import StackFolder, StackPorts, endpoint
from trainhouse.deploy.local.store import StoreKeys, StoreServer

SERVERS = ("kafka", "store")
PROCESSORS = ("intake", "scheduler", "detector", "projector")
AGENT = "agent"
NAMES = (*SERVERS, *PROCESSORS, AGENT)


@dataclass(frozen=True)
class Part:
    """One supervised process."""

    name: str
    group: str
    command: list[str]
    directory: Path
    priority: int
    environment: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    stop_signal: str = "TERM"
    stop_wait_s: int = 10
    # What the kernel sends it when the supervisor itself is killed.
    orphan_signal: str = "SIGTERM"


def kafka_server(folder: StackFolder, ports: StackPorts) -> KafkaServer:
    """The stack's broker."""
    return KafkaServer(folder.part("kafka"), ports.kafka, ports.kafka_controller)


def store_server(folder: StackFolder, ports: StackPorts, keys: StoreKeys) -> StoreServer:
    """The stack's object store."""
    return StoreServer(folder.part("store"), ports.store, keys)


def all_parts(folder: StackFolder, ports: StackPorts, keys: StoreKeys) -> list[Part]:
    """Every part, in the order of starting; a stop goes the other way round (the agent first)."""
    kafka, store = kafka_server(folder, ports), store_server(folder, ports, keys)
    servers = [
        Part("kafka", "servers", kafka.command(), kafka.folder, 10, kafka.environment(), kafka.bootstrap, stop_wait_s=20),
        # SIGKILL for the reason that StoreServer.stop_timeout_s gives.
        Part("store", "servers", store.command(), store.folder, 10, store.environment(), store.endpoint, "KILL", 5, "SIGKILL"),
    ]
    addresses = {"projector": endpoint(ports.clickhouse, "http")}
    # The one process of its kind here: a restart takes its partitions back at once, without waiting for the session of
    # the one that was killed. Not in the settings file: a second scheduler started by hand must not share the name.
    instance = {"TRAINHOUSE_SCHEDULER_INSTANCE": "local"}
    processors = [Part(name, "processors", run(name), folder.root, 20, instance, address=addresses.get(name, "")) for name in PROCESSORS]
    # The agent has the longest time to stop. If the supervisor is killed, so is the agent: its ranks go on, and the
    # agent of the next `up` adopts them.
    agent = Part(AGENT, "agent", run(AGENT), folder.root, 30, stop_wait_s=45, orphan_signal="SIGKILL")
    return [*servers, *processors, agent]


def run(name: str) -> list[str]:
    """The command line that runs one of our own parts."""
    return [sys.executable, "-m", "trainhouse.cli.main", "run", name]
