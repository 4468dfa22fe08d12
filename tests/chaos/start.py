"""Starts a stack for a campaign, in a folder and on ports of its own, and beside it: a second node whose agent reaches the brokers through
a proxy alone, and a standby scheduler.

Holds: the brokers have a listener for that node, advertised at the proxy's port, so that its agent knows no other way to them.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.chaos.clock import Clocks
from tests.chaos.jobs import PLAIN
from tests.chaos.kept import Kept
from tests.chaos.passage import Passage
from tests.chaos.proxy import Proxy
from tests.chaos.stack import ChaosStack
from tests.support.stack.live_stack import LiveStack, running_stack
from tests.support.waiting import until
from trainhouse.deploy.local.client_config import exports
from trainhouse.deploy.local.free_ports import LOOPBACK, free_port
from trainhouse.deploy.local.layout import StackFolder, StackPorts
from trainhouse.deploy.local.servers.kafka_sasl import CLIENTS, CONTROLLER, PROTOCOL, listener

BESIDE = "beside"
STANDBY = "standby"
# Such an agent is given up after fifteen seconds of silence: soon enough that a cut moves its gangs elsewhere, and not so soon that one
# that has to wait for a processor is given up.
BEAT_S = 1.0
SNAPSHOT_EVERY = 20


@contextmanager
def started(data_dir: Path, slots: int = 2, listeners: dict[str, str] | None = None, *, passed: bool = False) -> Iterator[ChaosStack]:
    """A running stack of two nodes with so many slots each; all of it ends with the block, or with its caller.

    `listeners`: more of them of the brokers, name -> address. `passed`: all clients reach the brokers through a passage, and snapshots are
    taken often, so that processes can be held right before an append, a publication or a pointer.
    """
    clocks = Clocks(data_dir.parent / "clocks")
    ports, behind = StackPorts.free(), free_port()
    with ExitStack() as until_the_end:
        wire = until_the_end.enter_context(Proxy(behind))
        more = {name: (address, address) for name, address in (listeners or {}).items()}
        more["BESIDE"] = (f"{LOOPBACK}:{behind}", f"{LOOPBACK}:{wire.port}")
        passage = until_the_end.enter_context(Passage(ports.kafka)) if passed else None
        write_listeners(StackFolder(data_dir), ports, more, passage.port if passage is not None else ports.kafka)
        often = {"TRAINHOUSE_SCHEDULER_SNAPSHOT_EVERY_RECORDS": str(SNAPSHOT_EVERY)} if passed else {}
        programs(data_dir.parent).mkdir(exist_ok=True)
        with environment(clocks.environment() | often | {"TRAINHOUSE_AGENT_JOB_PATHS": _shown(data_dir)}):
            live = until_the_end.enter_context(running_stack(data_dir, slots, ports))
        standby = Kept(
            "scheduler",
            outside(live, "scheduler") | own(clocks, STANDBY) | often | {"TRAINHOUSE_SCHEDULER_INSTANCE": STANDBY},
            data_dir / "standby.log",
        )
        until_the_end.callback(standby.close)
        settings = agent_settings(data_dir, BESIDE, f"{LOOPBACK}:{wire.port}", slots)
        agent = Kept("agent", outside(live, "agent") | own(clocks, BESIDE) | settings, data_dir / "beside.log")
        until_the_end.callback(agent.close)
        until_the_end.callback(wire.heal)
        alive = "SELECT node_id FROM nodes WHERE state = 'ALIVE'"
        until(lambda: len(live.rows(alive)) == 2, agent.log.read_text)
        until(lambda: "recovered" in standby.log.read_text(), standby.log.read_text)
        yield ChaosStack.of(live, wire, clocks, {BESIDE: agent, STANDBY: standby}, data_dir / BESIDE, passage=passage)


def programs(folder: Path) -> Path:
    """Where a test puts what its jobs run and wait for: confined jobs see it, read-only."""
    return folder / "programs"


def _shown(data_dir: Path) -> str:
    """What the jobs of all nodes see."""
    return f"{programs(data_dir.parent)},{PLAIN.parent}"


def write_listeners(folder: StackFolder, ports: StackPorts, more: dict[str, tuple[str, str]], found_at: int) -> None:
    """Gives the brokers of a stack to be more listeners: name -> where it listens, where clients are told to find it.

    `found_at`: the port at which clients are told to find the listener of all others.
    """
    file = folder.part("kafka") / "own.properties"
    file.parent.mkdir(parents=True)
    clients, controller = f"{CLIENTS}://{LOOPBACK}:{ports.kafka}", f"{CONTROLLER}://{LOOPBACK}:{ports.kafka_controller}"
    listens = [clients, controller, *(f"{name}://{at}" for name, (at, _) in more.items())]
    told = [f"{CLIENTS}://{LOOPBACK}:{found_at}", *(f"{name}://{at}" for name, (_, at) in more.items())]
    settings = {
        "listeners": ",".join(listens),
        "advertised.listeners": ",".join(told),
        "listener.security.protocol.map": ",".join(f"{name}:{PROTOCOL}" for name in (CLIENTS, CONTROLLER, *more)),
    }
    for name in more:
        settings |= listener(name)
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def outside(live: LiveStack, part: str) -> dict[str, str]:
    """The environment of a process that finds the stack's servers by settings alone, with the account of a part."""
    base = {k: v for k, v in live.environment.items() if not k.startswith("TRAINHOUSE_")}
    told = exports(StackFolder(live.data_dir), part)
    return base | {k: v for k, v in told.items() if k not in ("TRAINHOUSE_CONFIG", "TRAINHOUSE_DATA_DIR")}


def agent_settings(data_dir: Path, node_id: str, bootstrap: str, slots: int) -> dict[str, str]:
    """The settings of an agent of one's own that reaches the brokers there."""
    settings = {"NODE_ID": node_id, "DIR": str(data_dir / node_id), "SLOTS": str(slots), "ACCELERATORS": "none"}
    settings |= {"HEARTBEAT_INTERVAL_S": str(BEAT_S), "JOB_PATHS": _shown(data_dir)}
    return {f"TRAINHOUSE_AGENT_{k}": v for k, v in settings.items()} | {"TRAINHOUSE_KAFKA_BOOTSTRAP": bootstrap}


def own(clocks: Clocks, name: str) -> dict[str, str]:
    """A clock of its own for a process."""
    return joined(clocks.environment(name))


def joined(more: dict[str, str]) -> dict[str, str]:
    """With what PYTHONPATH holds already."""
    path = os.pathsep.join(filter(None, (more["PYTHONPATH"], os.environ.get("PYTHONPATH", ""))))
    return more | {"PYTHONPATH": path}


@contextmanager
def environment(more: dict[str, str]) -> Iterator[None]:
    """This process's own environment with more in it, for what is started meanwhile."""
    before = dict(os.environ)
    os.environ.update(joined(more))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
