"""The whole control plane under an emulated fleet of 1,250 nodes x 8: submit to GangAllocated, and what scheduler and fleet cost.

The rate is that of 5,000 jobs in 10 minutes. TRAINHOUSE_BENCH_FLEET_JOBS=5000 runs them all; by default a minute and a half of them.
Holds: waits are measured in this process, by a reader of its own; the fleet is `trainhouse fleet`, another process.
"""

import json
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from confluent_kafka import Consumer, TopicPartition

from tests.bench import report
from tests.bench.allocation import broker_alone
from tests.bench.fleet_process import SUMMARY, running_fleet
from tests.bench.stack import BenchStack, bench_stack
from trainhouse.events import GangAllocated, PoolCreated, decode
from trainhouse.events.bus.kafka import TO_END, EventProducer, consumer, read_to_end, watermarks
from trainhouse.events.wire.topics import ALLOCATIONS, POOLS
from trainhouse.workers.fleet.job_load import MIXED, Load, LoadPlan, Sizes

NODES, GPUS = 1250, 8
JOBS = int(os.environ.get("TRAINHOUSE_BENCH_FLEET_JOBS", "750"))
PER_S = 5000 / 600
DURATIONS = "exp:60"
POOL = "fleet"
FIRST_MINUTE = round(60 * PER_S)
SETTLE_S = 20.0
TIMEOUT_S = 120.0
AIM_P99_MS = 150.0


def run() -> None:
    """Prints the waits, and the processor time of each part during the load, as shares of one core."""
    with bench_stack(slots=1) as stack, TemporaryDirectory() as folder:
        # The agent's warm process imports torch when the stack has just started; that is not what is measured.
        time.sleep(SETTLE_S)
        arguments = ["--nodes", str(NODES), "--gpus-per-node", str(GPUS), "--pool", POOL, "--durations", DURATIONS]
        with running_fleet(stack, Path(folder), arguments, TIMEOUT_S, TIMEOUT_S) as (fleet, registered_s):
            broker_ms = broker_alone(stack.kafka)
            parts = _parts(stack) | {"fleet": psutil.Process(fleet.pid), "load": psutil.Process()}
            before, busy_s, begin = {name: _cpu_s(p) for name, p in parts.items()}, _busy_s(), time.monotonic()
            waits_ms = _waits_ms(stack)
            passed_s = time.monotonic() - begin
            shares = {name: (_cpu_s(p) - before[name]) / passed_s for name, p in parts.items()}
            others = (_busy_s() - busy_s) / passed_s - sum(shares.values())
        summary = json.loads((Path(folder) / SUMMARY).read_text())
    report.line(
        "fleet_submit_to_gang_allocated",
        unit="ms",
        nodes=NODES,
        devices=NODES * GPUS,
        jobs=len(waits_ms),
        jobs_per_s=PER_S,
        p50=report.percentile(waits_ms, 50),
        p99=report.percentile(waits_ms, 99),
        worst=max(waits_ms),
        after_first_minute=_summary(waits_ms[FIRST_MINUTE:]),
        aim_p99=AIM_P99_MS,
        peer={"broker_produce_to_consume_p50": report.percentile(broker_ms, 50), "p99": report.percentile(broker_ms, 99)},
        registered_s=registered_s,
        gangs_started=summary["gangs_started"],
        records_from_nodes=summary["records_sent"],
        cores=shares,
        cores_of_others=others,
        load_average=os.getloadavg()[1],
    )


def _summary(waits_ms: list[float]) -> dict[str, float]:
    """Of what is left when caches, connections and code are warm; empty when the run was too short for that."""
    if not waits_ms:
        return {}
    over = sum(w > AIM_P99_MS for w in waits_ms) / len(waits_ms)
    return {"p50": report.percentile(waits_ms, 50), "p99": report.percentile(waits_ms, 99), "share_over_aim": over}


def _waits_ms(stack: BenchStack) -> list[float]:
    """Submits the load and reads the orders; milliseconds from each submission to its order, in the order of reading."""
    plan = LoadPlan("bench", POOL, PER_S, JOBS, Sizes.parse(MIXED), "H100")
    load = Load(plan, EventProducer(stack.kafka, log_level=0, **{"linger.ms": 0}))
    reader = consumer(stack.kafka, group="bench", **{"fetch.wait.max.ms": 500})
    partition = _partition(stack)
    reader.assign([TopicPartition(ALLOCATIONS, partition, watermarks(reader, ALLOCATIONS, partition)[1])])
    deadline = time.monotonic() + JOBS / PER_S + TIMEOUT_S
    try:
        while not load.over:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(load.waits_ms)} of {JOBS} jobs were given devices")
            load.pump(time.time_ns() / 1e6)
            _listen(reader, load)
    finally:
        reader.close()
    return load.waits_ms


def _listen(reader: Consumer, load: Load) -> None:
    """Reads what has come; sleeps in the reader until the next job is due."""
    due_ms = load.next_ms()
    first = reader.poll(0.05 if due_ms is None else max(0.0, min(0.05, due_ms / 1000 - time.time())))
    if first is None:
        return
    heard_ms = time.time_ns() / 1e6
    for message in (first, *reader.consume(500, timeout=0.0)):
        event = decode(message.value(), message.headers()).event
        if isinstance(event, GangAllocated):
            load.on_allocated(event, heard_ms)


def _partition(stack: BenchStack) -> int:
    reader = consumer(stack.kafka, group="bench", **TO_END)
    try:
        events = [decode(m.value(), m.headers()).event for m in read_to_end(reader, POOLS, [0])]
    finally:
        reader.close()
    return next(e.partition for e in events if isinstance(e, PoolCreated) and e.pool == POOL)


def _parts(stack: BenchStack) -> dict[str, psutil.Process]:
    """The stack's processes by name."""
    rows = (json.loads(line) for line in stack.trainhouse("ps", "--json").splitlines())
    return {row["name"]: psutil.Process(row["pid"]) for row in rows if row["pid"]}


def _cpu_s(process: psutil.Process) -> float:
    """Processor seconds of a process and its children so far."""
    if process.pid == os.getpid():  # its children are parts of their own
        return time.process_time()
    times = [p.cpu_times() for p in (process, *process.children(recursive=True))]
    return sum(t.user + t.system for t in times)


def _busy_s() -> float:
    """Processor seconds of the whole machine so far, whoever used them."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
