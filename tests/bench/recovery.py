"""A rank killed, and a rank stopped: how long until training goes on, against `torchrun --max-restarts` and torchft on the same machine.

Holds: the same program and checkpoint file for torchrun and ours; the instant of each thing is written by the ranks themselves. Ours is
split by what the broker has: when the end was reported, when the new gang was decided, when its ranks began, joined, restored, stepped.
"""

import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

import yaml

from tests.bench import report
from tests.bench.recovery_peers import COLLECTIVE_TIMEOUT_S, NEW_STORE, torchft, torchrun
from tests.bench.recovery_stage import PEERS, STEP_S, Moments, later, strike, until
from tests.bench.stack import BenchStack, bench_stack
from trainhouse.events import (
    CancelJob,
    GangAllocated,
    GangHung,
    JobSpec,
    JobSubmitted,
    RankExited,
    decode,
    envelope_of,
)
from trainhouse.events.bus.kafka import TO_END, EventProducer, consumer, read_to_end
from trainhouse.events.wire.topics import ALLOCATIONS, CONTROL, JOBS

HEARTBEAT_S = 1.0
ROUNDS = 5
PEER_ROUNDS = 3


def run() -> None:
    """Prints a line for the kill and one for the stop."""
    others = torchft()
    kills: list[dict[str, float]] = []
    hangs: list[dict[str, float]] = []
    keen: list[dict[str, float]] = []
    with bench_stack(slots=2) as stack:
        _policy(stack)
        for number in range(ROUNDS):
            kills.append(_ours(stack, f"kill-{number}", signal.SIGKILL))
        for number in range(ROUNDS):
            hangs.append(_ours(stack, f"stop-{number}", signal.SIGSTOP))
        _policy(stack, hang_floor_s=0.0)  # the gang's own step times alone say when it hangs
        for number in range(ROUNDS):
            keen.append(_ours(stack, f"keen-{number}", signal.SIGSTOP))
    shared = torchrun(signal.SIGKILL, {})
    peer = [torchrun(signal.SIGKILL, NEW_STORE) for _ in range(PEER_ROUNDS)]
    slow = torchrun(signal.SIGSTOP, NEW_STORE)
    ours = [k["first_step_s"] for k in kills]
    report.line(
        "rank_killed_to_first_new_step",
        unit="s",
        p50=statistics.median(ours),
        worst=max(ours),
        split={name: statistics.median(k[name] for k in kills) for name in kills[0]},
        peer={"torchrun_new_store_p50": _median(peer), "torchrun_default": shared or "never came back", **others},
        aim=1.0,
    )
    report.line(
        "rank_stopped_to_first_new_step",
        unit="s",
        step_s=STEP_S,
        by_default=_hang(hangs),
        by_rhythm_alone=_hang(keen),
        aim_detected_s=3 * STEP_S + HEARTBEAT_S,
        peer={"torchrun_new_store": slow or "never came back", "torchrun_collective_timeout_s": COLLECTIVE_TIMEOUT_S},
        aim=5.0,
    )


def _hang(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Medians of all marks, the worst round, and the detection in steps."""
    medians = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
    return medians | {"worst_first_step_s": max(r["first_step_s"] for r in rounds), "detected_steps": medians["detected_s"] / STEP_S}


def _policy(stack: BenchStack, **detection: float) -> None:
    """No node is closed for what this bench does to its ranks; and what is given."""
    policy = yaml.safe_load(stack.trainhouse("policy", "show", "default"))
    failures = policy.setdefault("failures", {})
    failures.setdefault("blame", {})["quarantine_after"] = 1000
    failures.setdefault("detection", {}).update(detection)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(policy, file)
        file.flush()
        stack.trainhouse("policy", "apply", "default", file.name)


def _ours(stack: BenchStack, name: str, how: signal.Signals) -> dict[str, float]:
    """Seconds from the signal to rank 1 until each thing."""
    with tempfile.TemporaryDirectory() as folder:
        moments = Moments(Path(folder))
        producer = EventProducer(stack.kafka, **{"linger.ms": 0})
        command = ("python", str(PEERS / "steps.py"), folder, str(STEP_S), "600")
        spec = JobSpec.model_validate({"gang": 2, "runtime": {"command": command}})
        job_id = f"recovery-{name}-{os.getpid()}"
        _send(producer, JobSubmitted(job_id=job_id, spec=spec), job_id)
        try:
            start, struck = strike(moments, how)
            new = later(moments, start, struck)
        finally:
            _send(producer, CancelJob(job_id=job_id), f"{job_id}:cancel")
        marks = _marks(stack, job_id, new) | {
            "began_s": moments.of(new, "began")[-1],
            "joined_s": moments.of(new, "joined")[-1],
            "restored_s": moments.of(new, "restored")[-1],
            "first_step_s": moments.steps(new)[0],
        }
        until(lambda: _ended(stack, job_id), "the job did not end after its cancellation")
        return {key: at - struck for key, at in marks.items()}


def _marks(stack: BenchStack, job_id: str, epoch: int) -> dict[str, float]:
    """When the broker took the report of the end (or the verdict), and the order for the new gang."""
    reader = consumer(stack.kafka, group="bench", **TO_END)
    ended: list[float] = []
    decided: list[float] = []
    try:
        for topic in (CONTROL, ALLOCATIONS):
            for message in read_to_end(reader, topic, range(stack.kafka.partitions)):
                event, at_s = decode(message.value(), message.headers()).event, message.timestamp()[1] / 1000
                if isinstance(event, RankExited | GangHung) and event.job_id == job_id and event.epoch < epoch:
                    ended.append(at_s)
                elif isinstance(event, GangAllocated) and event.job_id == job_id and event.epoch == epoch:
                    decided.append(at_s)
    finally:
        reader.close()
    return {"detected_s": min(ended), "decided_s": min(decided)}


def _ended(stack: BenchStack, job_id: str) -> bool:
    return bool(stack.rows(f"SELECT 1 AS done FROM jobs WHERE job_id = '{job_id}' AND state = 'CANCELLED'"))


def _send(producer: EventProducer, event: JobSubmitted | CancelJob, event_id: str) -> None:
    producer.send(JOBS, envelope_of(event, id=event_id, source="bench", now_ms=int(time.time() * 1000)))
    producer.flush(10.0)


def _median(found: list[float | None]) -> float | None:
    known = [f for f in found if f is not None]
    return statistics.median(known) if known else None
