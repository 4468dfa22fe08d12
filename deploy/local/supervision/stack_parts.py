"""The parts of a stack: what runs, how it is started, stopped and signalled, and where it answers.

Always: our own parts run as `python -m trainhouse.cli.main run NAME`, by settings alone, as they do on any machine; the supervisor forks
them, which is that command in less time and memory (`forked_parts`).
Never: a part that only this stack can start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainhouse.deploy.local import client_config
from trainhouse.deploy.local.layout import StackFolder, StackPorts, endpoint
from trainhouse.deploy.local.servers import kafka_sasl
from trainhouse.deploy.local.servers.certificates import gateway_url
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.deploy.local.servers.seaweedfs import StoreKeys, StoreServer
from trainhouse.deploy.local.servers.server_process import PRIVATE_UMASK
from trainhouse.deploy.local.supervision.part_groups import TIMED

SERVERS = ("kafka", "store")
PROJECTOR = "projector"
PROCESSORS = ("intake", "scheduler", "detector", "tuner", PROJECTOR, "alerts", "gateway")
STREAMS = ("intake", "scheduler", "detector", "tuner")
AGENT = "agent"
# Of a Unix socket's path.
MOST_SOCKET_BYTES = 107
# What is only looked at leaves the processors to what jobs wait for, where one machine has both; who watches, to all others.
NICENESS = {"tuner": "5", PROJECTOR: "5", "gateway": "5", "alerts": "10"}
# What runs all the time.
NAMES = (*SERVERS, *PROCESSORS, AGENT)
# One pass of each, from the first full hour after `up` on.
EXPIRE, SWEEP = PASSES = ("expire", "sweep")
PASS_EVERY_S = 24 * 3600


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
    # Where it serves its figures.
    metrics: str = ""
    stop_signal: str = "TERM"
    stop_wait_s: int = 10
    # What the kernel sends it when the supervisor itself is killed.
    orphan_signal: str = "SIGTERM"
    # None: as the supervisor's own.
    umask: int | None = None
    # 0: it runs all the time; else the supervisor starts it this often (5 s at least), and it ends by itself.
    every_s: int = 0


def kafka_server(folder: StackFolder, ports: StackPorts) -> KafkaServer:
    """The stack's broker."""
    own = client_config.account(folder, kafka_sasl.BROKER)
    return KafkaServer(folder.part("kafka"), ports.kafka, ports.kafka_controller, account=own)


def store_server(folder: StackFolder, ports: StackPorts, keys: StoreKeys) -> StoreServer:
    """The stack's object store."""
    return StoreServer(folder.part("store"), ports.store, keys, old_keys=client_config.taken_keys(folder))


def all_parts(folder: StackFolder, ports: StackPorts, keys: StoreKeys) -> list[Part]:
    """Every part, in the order of starting; a stop goes the other way round (the agent first)."""
    kafka, store = kafka_server(folder, ports), store_server(folder, ports, keys)
    servers = [
        Part(
            "kafka", "servers", kafka.command(), kafka.folder, 10, kafka.environment(), kafka.bootstrap, stop_wait_s=20, umask=PRIVATE_UMASK
        ),
        # SIGKILL for the reason that StoreServer.stop_timeout_s gives.
        Part(
            "store",
            "servers",
            store.command(),
            store.folder,
            10,
            store.environment(),
            store.endpoint,
            stop_signal="KILL",
            stop_wait_s=5,
            orphan_signal="SIGKILL",
            umask=PRIVATE_UMASK,
        ),
    ]
    addresses = {"projector": endpoint(ports.clickhouse, "http"), "gateway": gateway_url(folder, ports.gateway)}
    # The one process of its kind here: a restart takes its partitions back at once, without waiting for the session of
    # the one that was killed. Not in the settings file: a second scheduler started by hand must not share the name.
    instance = {"TRAINHOUSE_SCHEDULER_INSTANCE": "local"}
    # Neither is the index of settled jobs: two intakes must not share it.
    index = {"intake": {"TRAINHOUSE_SCHEDULER_INDEX_DIR": str(folder.part("intake"))}}
    environments = {n: instance | index.get(n, {}) | _own(folder, n) | _watched(folder, n) for n in PROCESSORS}
    processors = [
        _metered(ports, Part(n, "processors", _polite(n), folder.root, 20, environments[n], address=addresses.get(n, "")))
        for n in PROCESSORS
    ]
    # The agent has the longest time to stop. If the supervisor is killed, so is the agent: its ranks go on, and the
    # agent of the next `up` adopts them.
    agent = _metered(ports, Part(AGENT, "agent", run(AGENT), folder.root, 30, _own(folder, AGENT), stop_wait_s=45, orphan_signal="SIGKILL"))
    # The sweep asks the store alone, so it needs no account of its own on the brokers.
    return [*servers, *processors, agent, _pass(folder, EXPIRE, EXPIRE), _pass(folder, SWEEP, "store", "sweep")]


def _pass(folder: StackFolder, name: str, *command: str) -> Part:
    """A short process now and then, since one that stayed would hold memory all day."""
    whole = ["nice", "-n", "10", sys.executable, "-m", "trainhouse.cli.main", *command]
    return Part(name, TIMED, whole, folder.root, 40, _own(folder, EXPIRE), every_s=PASS_EVERY_S)


def _own(folder: StackFolder, name: str) -> dict[str, str]:
    """The part's own settings, with its own account: in a file, so that no environment or argument holds a password."""
    return {"TRAINHOUSE_CONFIG": str(client_config.part_config(folder, name))}


def _metered(ports: StackPorts, part: Part) -> Part:
    """The part, told where to serve its figures. Not in the settings file: two processes cannot share a port."""
    port = ports.metrics(part.name)
    if not port:
        return part
    environment = {**part.environment, "TRAINHOUSE_METRICS_PORT": str(port)}
    return replace(part, environment=environment, metrics=f"{endpoint(port, 'http')}/metrics")


def _watched(folder: StackFolder, name: str) -> dict[str, str]:
    """Setting of Faust's monitor socket: a Unix socket that the folder's owner alone can open, since its server has no authentication."""
    path = str(folder.part(name) / "web" / "socket")
    fits = name in STREAMS and len(os.fsencode(path)) <= MOST_SOCKET_BYTES
    return {"TRAINHOUSE_SCHEDULER_WEB_SOCKET": path} if fits else {}


def _polite(name: str) -> list[str]:
    return ["nice", "-n", NICENESS[name], *run(name)] if name in NICENESS else run(name)


def run(name: str) -> list[str]:
    """The command line that runs one of our own parts."""
    return [sys.executable, "-m", "trainhouse.cli.main", "run", name]
