"""A node lost with its ranks and its agent: from the detector's verdict until the gang's next step on the other node.

Holds: two agents, a gang of two FSDP2 ranks on one of them, whose chunks the other holds in memory; beside it the same program with
`peer_memory: false`, which restores from the store. Split by the ranks' own moments. `TRAINHOUSE_BENCH_STATE_MB`: of another state.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from tests.bench import report
from tests.bench.recovery_stage import PEERS, Moments, later, until
from tests.bench.stack import BenchStack, bench_stack
from trainhouse.deploy.local.client_config import exports
from trainhouse.deploy.local.layout import StackFolder
from trainhouse.events import CancelJob, GangAllocated, JobSpec, JobSubmitted, NodeLost, PoolCreated, decode, envelope_of
from trainhouse.events.bus.kafka import TO_END, EventProducer, consumer, read_to_end
from trainhouse.events.model.base import Event
from trainhouse.events.wire.topics import ALLOCATIONS, CONTROL, JOBS
from trainhouse.workers.agent.launch.attempt_dirs import found_attempts
from trainhouse.workers.launcher.processes import attempt_alive, attempt_processes

STATE_MB = int(os.environ.get("TRAINHOUSE_BENCH_STATE_MB", "2000"))
ROUNDS = int(os.environ.get("TRAINHOUSE_BENCH_ROUNDS", "3"))
PATIENCE_S = 450.0
"""Two ranks of this size and two stacks' agents may start and save on a machine that is shared."""

SETTLE_S = 10.0
"""The other agent's warm process imports torch meanwhile, and what an agent does at its start is done."""


def run() -> None:
    """Prints the medians of both ways, by turns on one stack."""
    found: dict[str, list[dict[str, float]]] = {"peer_memory": [], "store": []}
    with bench_stack(slots=1) as stack:
        for number in range(ROUNDS):
            for way, rounds in found.items():
                rounds.append(_round(stack, f"{way.replace('_', '-')}-{number}", way == "peer_memory"))
                report.note(f"{way}: {rounds[-1]}")
    medians = {way: {name: statistics.median(r[name] for r in rounds) for name in rounds[0]} for way, rounds in found.items()}
    report.line(
        "node_lost_to_next_step",
        unit="s",
        state_mb=STATE_MB,
        rounds=ROUNDS,
        p50=medians["peer_memory"]["next_step_s"],
        worst=max(r["next_step_s"] for r in found["peer_memory"]),
        split=medians["peer_memory"],
        store_path=medians["store"],
        load_average=os.getloadavg()[0],
        aim=3.0,
    )


def _round(stack: BenchStack, name: str, peer_memory: bool) -> dict[str, float]:
    """Seconds from the verdict until each thing, and what a rank took of a processor until its first step."""
    with TemporaryDirectory() as folder:
        moments = Moments(Path(folder) / "moments")
        moments.folder.mkdir()
        moments.folder.chmod(0o777)  # a confined rank may be another user
        pool = f"lost-{name}"
        _send(stack, PoolCreated.model_validate({"pool": pool, "partition": 1}), f"pool:{pool}")
        command = ("python", str(PEERS / "lost_node.py"), str(moments.folder), str(STATE_MB))
        policy = {"every_s": 3600, "peer_memory": peer_memory}
        spec = JobSpec.model_validate({"pool": pool, "gang": 2, "runtime": {"command": command}, "checkpoint": policy})
        job_id = f"{pool}-{os.getpid()}"
        with _agents(stack, pool, Path(folder), moments.folder) as agents:
            _send(stack, JobSubmitted(job_id=job_id, spec=spec), job_id)
            try:
                until(lambda: _committed(stack, job_id), "no checkpoint was committed", PATIENCE_S)
                time.sleep(SETTLE_S)
                start = moments.starts()[-1]
                steps = moments.steps(start)
                _lose(agents)
                new = later(moments, start, time.time())
            finally:
                _send(stack, CancelJob(job_id=job_id), f"{job_id}:cancel")
            verdict_s, allocated_s = _marks(stack, pool, job_id)
        marks = {"allocated_s": allocated_s} | {f"{mark}_s": moments.of(new, mark)[-1] for mark in ("began", "joined", "built", "restored")}
        marks["next_step_s"] = moments.steps(new)[1]  # both ranks have made it
        own = {
            "step_s": statistics.median(b - a for a, b in zip(steps[1::2], steps[3::2], strict=False)),
            "rank_cpu_s": _cpu_s(moments, new),
        }
        return {mark: at - verdict_s for mark, at in marks.items()} | own


def _cpu_s(moments: Moments, start: int) -> float:
    """Seconds of processor time that the slower rank took until its first step."""
    lines = (
        next(line for line in path.read_text().splitlines() if line.startswith("step-")) for path in moments.folder.glob(f"{start:04d}-*")
    )
    return max(float(line.split()[2]) for line in lines)


@contextmanager
def _agents(stack: BenchStack, pool: str, folder: Path, shown: Path) -> Iterator[dict[Path, psutil.Process]]:
    """Two agents with two slots each, from when their nodes are there; ended by their pids."""
    told = exports(StackFolder(stack.data_dir), "agent")
    base = {k: v for k, v in stack.environment.items() if not k.startswith("TRAINHOUSE_")}
    base |= {k: v for k, v in told.items() if k not in ("TRAINHOUSE_CONFIG", "TRAINHOUSE_DATA_DIR")}
    memory_gib = f"{3 * STATE_MB * 1e6 / 2**30:.3f}"
    made = {}
    for name in ("a", "b"):
        own = {"POOL": pool, "NODE_ID": f"{pool}-{name}", "DIR": str(folder / name), "SLOTS": "2", "ACCELERATORS": "none"}
        own |= {"JOB_PATHS": f"{PEERS},{shown}:rw", "PEER_MEMORY_GIB": memory_gib}
        with (folder / f"{name}.log").open("wb") as log:
            environment = base | {f"TRAINHOUSE_AGENT_{k}": v for k, v in own.items()} | {"OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-m", "trainhouse.cli.main", "run", "agent"]
            made[folder / name] = psutil.Popen(command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    alive = f"SELECT node_id FROM nodes WHERE pool = '{pool}' AND state = 'ALIVE'"
    try:
        until(lambda: len(stack.rows(alive)) == 2, "the agents did not register")
        yield made
    except TimeoutError:
        report.note("\n".join(path.read_text()[-3000:] for path in folder.glob("*.log")))
        raise
    finally:
        for agent in made.values():
            with suppress(psutil.NoSuchProcess):
                agent.send_signal(signal.SIGTERM)
        psutil.wait_procs(made.values(), 60)


def _lose(agents: dict[Path, psutil.Process]) -> None:
    """Ends the agent that has ranks, with all processes of its node, at once, as a power failure does."""
    agent_dir = next(found for found in agents if any(attempt_alive(attempt.paths) for attempt in found_attempts(found)))
    agent = agents[agent_dir]
    of_attempts = [process for attempt in found_attempts(agent_dir) for process in attempt_processes(attempt.paths)]
    tree = [agent, *agent.children(recursive=True), *of_attempts]
    for each in tree:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(tree, 30)


def _committed(stack: BenchStack, job_id: str) -> bool:
    return bool(stack.rows(f"SELECT 1 AS done FROM checkpoints WHERE job_id = '{job_id}' LIMIT 1"))


def _marks(stack: BenchStack, pool: str, job_id: str) -> tuple[float, float]:
    """When the broker took the verdict, and the order for the new gang."""
    reader = consumer(stack.kafka, group="bench", **TO_END)
    lost: list[float] = []
    allocated: list[float] = []
    try:
        for topic in (CONTROL, ALLOCATIONS):
            for message in read_to_end(reader, topic, range(stack.kafka.partitions)):
                event, at_s = decode(message.value(), message.headers()).event, message.timestamp()[1] / 1000
                if isinstance(event, NodeLost) and event.pool == pool:
                    lost.append(at_s)
                elif isinstance(event, GangAllocated) and event.job_id == job_id:
                    allocated.append(at_s)
    finally:
        reader.close()
    return min(lost), min(at_s for at_s in allocated if at_s >= min(lost))


def _send(stack: BenchStack, event: Event, event_id: str) -> None:
    producer = EventProducer(stack.kafka, **{"linger.ms": 0})
    producer.send(JOBS, envelope_of(event, id=event_id, source="bench", now_ms=int(time.time() * 1000)))
    producer.flush(10.0)
