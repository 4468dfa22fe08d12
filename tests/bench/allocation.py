"""Submit to GangAllocated through the real broker, at 50 submissions/s.

A pool of its own with 100 emulated nodes of 8 slots that never start a rank: only the control plane is measured.
"""

import time
from pathlib import Path

from confluent_kafka import TopicPartition

from tests.bench import report
from tests.bench.stack import BenchStack, bench_stack
from trainhouse.events import Device, GangAllocated, JobSpec, JobSubmitted, NodeRegistered, PoolCreated, Runtime, decode, envelope_of
from trainhouse.events.bus.kafka import EventProducer, consumer
from trainhouse.events.security.key_files import kept_key
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics

PER_S = 50
SUBMISSIONS = 600
WARM_UP = 50
NODES, SLOTS = 100, 8
SETTLE_S = 20.0
PARTITION = 1
POOL = "bench"


def run() -> None:
    """Prints the figures of submission -> allocation, and of the broker alone in the same run."""
    with bench_stack(slots=1) as stack:
        # The agent's warm process imports torch when the stack has just started; that is not what is measured.
        time.sleep(SETTLE_S)
        produced_ms = broker_alone(stack.kafka)
        allocated_ms = allocated(stack)
    report.line(
        "submit_to_gang_allocated",
        unit="ms",
        submissions_per_s=PER_S,
        count=len(allocated_ms),
        p50=report.percentile(allocated_ms, 50),
        p99=report.percentile(allocated_ms, 99),
        aim_p99=100.0,
        peer={"broker_produce_to_consume_p50": report.percentile(produced_ms, 50), "p99": report.percentile(produced_ms, 99)},
    )


def broker_alone(settings: KafkaSettings, count: int = 300) -> list[float]:
    """Produce-to-consume of the bare broker, one record at a time, milliseconds."""
    reader = consumer(settings, group="bench")
    producer = EventProducer(settings, **{"linger.ms": 0})
    high = reader.get_watermark_offsets(TopicPartition(topics.ALERTS, 0), timeout=10)[1]
    reader.assign([TopicPartition(topics.ALERTS, 0, high)])
    event = PoolCreated(pool=POOL, partition=0)
    took_ms = []
    for i in range(count):
        begin = time.perf_counter()
        producer.send(topics.ALERTS, envelope_of(event, id=f"probe-{i}", source="bench", now_ms=0), partition=0)
        while reader.poll(1.0) is None:
            pass
        took_ms.append((time.perf_counter() - begin) * 1000)
    producer.flush()
    reader.close()
    return took_ms[10:]


def allocated(stack: BenchStack) -> list[float]:
    """Milliseconds from producing each JobSubmitted to reading its committed GangAllocated."""
    producer = EventProducer(stack.kafka, **{"linger.ms": 0})
    reader = consumer(stack.kafka, group="bench")
    _pool_of_idle_nodes(stack, producer, reader)
    sent: dict[str, float] = {}
    took_ms: dict[str, float] = {}
    spec = JobSpec(pool=POOL, runtime=Runtime(command=("true",)))
    begin = time.perf_counter()
    while len(took_ms) < SUBMISSIONS and time.perf_counter() - begin < SUBMISSIONS / PER_S + 60:
        due = min(SUBMISSIONS, int((time.perf_counter() - begin) * PER_S) + 1)
        while len(sent) < due:
            job_id = f"bench-{len(sent)}"
            sent[job_id] = time.perf_counter()
            producer.send(topics.JOBS, envelope_of(JobSubmitted(job_id=job_id, spec=spec), id=job_id, source="bench", now_ms=_now_ms()))
        for message in reader.consume(100, timeout=0.002):
            event = decode(message.value(), message.headers()).event
            if isinstance(event, GangAllocated) and event.job_id in sent:
                took_ms[event.job_id] = (time.perf_counter() - sent[event.job_id]) * 1000
    reader.close()
    if len(took_ms) < SUBMISSIONS:
        raise RuntimeError(f"{len(took_ms)} of {SUBMISSIONS} jobs were allocated")
    return [took_ms[f"bench-{i}"] for i in range(WARM_UP, SUBMISSIONS)]


def _pool_of_idle_nodes(stack: BenchStack, producer: EventProducer, reader: object) -> None:
    """Creates the pool and registers its nodes; returns when the scheduler has answered them all.

    A new stack refuses what no node signed: these sign with the key of emulated nodes.
    """
    nodes, key = EventProducer(stack.kafka), kept_key(Path(stack.environment["TRAINHOUSE_FLEET_KEY"]))
    nodes.signing = key
    producer.send(topics.JOBS, envelope_of(PoolCreated(pool=POOL, partition=PARTITION), id="bench-pool", source="bench", now_ms=_now_ms()))
    producer.flush()
    reader.assign([TopicPartition(topics.ALLOCATIONS, PARTITION, 0)])  # type: ignore[attr-defined]
    for number in range(NODES):
        envelope = envelope_of(_node(number, key.public_key), id=f"bench-node-{number}", source="bench", now_ms=_now_ms())
        nodes.send(topics.CONTROL, envelope, partition=PARTITION)
    nodes.flush()
    answered = 0
    deadline = time.monotonic() + 60
    while answered < NODES and time.monotonic() < deadline:
        answered += len(reader.consume(NODES, timeout=0.5))  # type: ignore[attr-defined]
    if answered < NODES:
        raise RuntimeError(f"the scheduler answered {answered} of {NODES} registrations in 60 s")


def _node(number: int, public_key: str) -> NodeRegistered:
    """One of the pool's nodes: eight slots that no rank will ever use."""
    return NodeRegistered.model_validate(
        {
            "node_id": f"bench-{number}",
            "boot_id": "bench",
            "incarnation": "bench",
            "pool": POOL,
            "address": "127.0.0.1",
            "public_key": public_key,
            "devices": tuple(Device.model_validate({"device_id": f"slot-{i}", "index": i, "type": "cpu"}) for i in range(SLOTS)),
            "rendezvous_ports": tuple(range(30000, 30000 + SLOTS)),
        }
    )


def _now_ms() -> int:
    return int(time.time() * 1000)
