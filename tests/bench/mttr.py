"""Time to recover over 100 mixed faults of a production trace: an emulated fleet, the real scheduler, detector and brokers.

A fault's time runs from the moment at which the fleet strikes until the job's next attempt reports a step. Scripted are the ranks alone:
START_S from the order to processes and restored state, a step each STEP_S, a save each CHECKPOINT_S. Goodput is against the same jobs
without faults, over the time in which faults happen. The peer is a plain rule on the same faults (`mttr_trace`).
"""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import TopicPartition

from tests.bench import report
from tests.bench.fleet_process import SUMMARY, running_fleet
from tests.bench.mttr_figures import Hit, Reports, hits, lost_device_s, times
from tests.bench.mttr_trace import NOTICE_S, PEER_DETECTION_S, Pressed, peer_lost_device_s, pressed
from tests.bench.stack import BenchStack, bench_stack
from trainhouse.events import JobId, JobSpec, JobSubmitted, PoolName, ProgressReported, Runtime, decode, envelope_of
from trainhouse.events.bus.kafka import EventProducer, consumer, watermarks
from trainhouse.events.model.spec import Gang, Resources
from trainhouse.events.wire.topics import CONTROL, JOBS, PROGRESS

NODES, GPUS = int(os.environ.get("TRAINHOUSE_BENCH_NODES", "256")), 8
GANGS = {32: NODES * 20 // 256, 16: NODES * 40 // 256, 8: NODES * 70 // 256}
"""Jobs by ranks: nine of ten nodes are busy, the rest are spares."""

COUNT = int(os.environ.get("TRAINHOUSE_BENCH_FAULTS", "110"))
"""Of these some strike spares; about 100 hit a gang."""

OVER_S = 240.0 * COUNT / 110
FIRST_S, SETTLE_S = 80.0, 75.0
"""When the first fault strikes, from the fleet's start: all jobs run by then. And how long after the last one is looked on."""

START_S, STEP_S, SAVE_S, CHECKPOINT_S = 1.0, 1.0, 1.0, 10.0
HEARTBEAT_S = 1.0
POOL = "fleet"
TIMEOUT_S = 180.0


def run() -> None:
    """Prints the times by kind, and goodput."""
    faults, factor = pressed(COUNT, OVER_S, NODES)
    sizes = {f"mttr-{n:03d}": ranks for n, ranks in enumerate(r for r, count in GANGS.items() for _ in range(count))}
    with bench_stack(slots=1) as stack, TemporaryDirectory() as folder:
        time.sleep(15)  # the agent's warm process imports torch when the stack has just started
        script = Path(folder) / "faults.yaml"
        script.write_text(json.dumps({"faults": [_entry(f) for f in faults]}))
        with _listening(stack) as told, running_fleet(stack, Path(folder), _arguments(script), FIRST_S, TIMEOUT_S) as (_, up_s):
            began_s = time.monotonic() - up_s
            _submit(stack, sizes)
            _wait_running(told, len(sizes), began_s + FIRST_S)
            time.sleep(max(0.0, began_s + FIRST_S + OVER_S + SETTLE_S - time.monotonic()))
        summary = json.loads((Path(folder) / SUMMARY).read_text())
        found = list(hits(summary["struck"], told))
        left = [_story(stack, hit) for hit in found if hit.left]
        _print(faults, factor, sizes, told, summary, found, {"left": left} | _tables(stack))


def _arguments(script: Path) -> list[str]:
    """Of `trainhouse fleet`."""
    size = ["--nodes", str(NODES), "--gpus-per-node", str(GPUS), "--pool", POOL, "--durations", "100000"]
    paces = ["--heartbeat-s", str(HEARTBEAT_S), "--start-s", str(START_S), "--step-s", str(STEP_S), "--save-s", str(SAVE_S)]
    return [*size, *paces, "--checkpoint-s", str(CHECKPOINT_S), "--script", str(script)]


def _tables(stack: BenchStack) -> dict[str, object]:
    """What the platform itself makes of it: states of the jobs, and whom failures were blamed on; with the error if it does not answer."""
    states = "SELECT state, count() AS jobs FROM jobs WHERE startsWith(job_id, 'mttr-') GROUP BY state"
    blamed = "SELECT category, rule, count() AS failures FROM failures GROUP BY category, rule ORDER BY failures DESC LIMIT 20"
    try:
        return {"states": stack.rows(states), "blamed": stack.rows(blamed)}
    except RuntimeError as error:
        return {"tables_failed": str(error)[-300:]}


def _story(stack: BenchStack, hit: Hit) -> dict[str, object]:
    """What is known of an attempt that was hit and never ran again: the last states of its job."""
    of = f"WHERE job_id = '{hit.job_id}' ORDER BY status_seq DESC LIMIT 1 BY state, reason, epoch LIMIT 12"
    states = stack.rows(f"SELECT at, state, epoch, step, reason FROM job_status_history {of}")
    return {"job": hit.job_id, "epoch": hit.epoch, "kind": hit.kind, "states": states}


def _print(
    faults: list[Pressed],
    factor: float,
    sizes: dict[str, int],
    told: Reports,
    summary: dict[str, object],
    found: list[Hit],
    more: dict[str, object],
) -> None:
    back = [h for h in found if h.back_ms is not None]
    lost_s, _ = lost_device_s(told, sizes, STEP_S)
    ideal_s = sum(sizes.values()) * OVER_S
    peer_s = peer_lost_device_s(faults, list(sizes.values()), NODES, GPUS, START_S, round(CHECKPOINT_S))
    report.line(
        "mttr",
        unit="s",
        faults_struck=sum(summary["faults"].values()),  # type: ignore[attr-defined]
        faults_by_kind=summary["faults"],
        attempts_hit=len(found),
        rode_out=sum(h.back_ms is None and not h.left for h in found),
        never_back=sum(h.left for h in found),
        **times([h.back_ms for h in back if h.back_ms is not None]),
        by_kind={k: times([h.back_ms for h in back if h.kind == k and h.back_ms is not None]) for k in sorted({h.kind for h in back})},
        notice_standstill=times([h.still_ms for h in back if h.kind == "notice" and h.still_ms is not None]),
        goodput=1 - lost_s / ideal_s,
        goodput_without_faults=1.0,
        peer={
            "rule": f"simulated: the same faults, seen after {PEER_DETECTION_S} s, then the whole gang at the tail of the queue",
            "goodput": 1 - peer_s / ideal_s,
        },
        time_pressed_by=factor,
        nodes=NODES,
        devices=NODES * GPUS,
        jobs=len(sizes),
        heartbeat_s=HEARTBEAT_S,
        start_s=START_S,
        checkpoint_s=CHECKPOINT_S,
        load_average=os.getloadavg()[1],
        **more,
    )


def _entry(fault: Pressed) -> dict[str, object]:
    entry: dict[str, object] = {"at_s": FIRST_S + fault.at_s, "node": fault.node, "kind": fault.kind, "for_s": fault.for_s}
    return entry | ({"deadline_s": NOTICE_S} if fault.kind == "notice" else {})


def _submit(stack: BenchStack, sizes: dict[str, int]) -> None:
    producer = EventProducer(stack.kafka, **{"linger.ms": 5})
    for job_id, ranks in sizes.items():
        spec = JobSpec(
            name=job_id,
            user="bench",
            pool=PoolName(POOL),
            gang=Gang(ranks=ranks),
            resources=Resources(device_type="H100"),
            runtime=Runtime(command=("emulated",)),
        )
        event = JobSubmitted(job_id=JobId(job_id), spec=spec)
        producer.send(JOBS, envelope_of(event, id=f"{job_id}-submitted", source="trainhouse/bench", now_ms=time.time_ns() // 1_000_000))
    producer.flush(30)


def _wait_running(told: Reports, jobs: int, until_s: float) -> None:
    while len(told.by_job) < jobs:
        if time.monotonic() > until_s:
            raise RuntimeError(f"{len(told.by_job)} of {jobs} jobs made a step before the first fault")
        time.sleep(0.2)


@contextmanager
def _listening(stack: BenchStack) -> Iterator[Reports]:
    """Reads all progress in a thread of its own."""
    told, over = Reports(), threading.Event()
    reader = consumer(stack.kafka, group="bench-mttr")
    partitions = sorted(reader.list_topics(CONTROL, timeout=30).topics[CONTROL].partitions)
    places = [(topic, p) for topic in (CONTROL, PROGRESS) for p in partitions]
    reader.assign([TopicPartition(topic, p, watermarks(reader, topic, p)[1]) for topic, p in places])

    def listen() -> None:
        while not over.is_set():
            for message in reader.consume(500, timeout=0.2):
                value = message.value()
                if message.error() is None and value is not None and b"attempt.progress" in value:
                    event = decode(value, message.headers()).event
                    if isinstance(event, ProgressReported):
                        told.add(str(event.job_id), int(event.epoch), event.at_ms, event.step)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join(30)
        reader.close()
