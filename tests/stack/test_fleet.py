"""A small emulated fleet on the shared stack, in a pool of its own: jobs of mixed sizes end, whatever breaks, and the topics prove it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.support.fleet_judge import each_attempt_ran_once, no_device_was_shared
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.events import (
    Envelope,
    JobState,
    JobStatus,
    JobSubmitted,
    NodeLost,
    NodeRegistered,
    decode,
    envelope_of,
)
from trainhouse.events.bus.kafka import TO_END, EventProducer, consumer, watermarks
from trainhouse.events.model.spec import Gang
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import ALLOCATIONS, CONTROL, JOBS, STATUS, VERDICTS
from trainhouse.workers.fleet.job_load import LoadPlan, Sizes

pytestmark = pytest.mark.stack

NODES, GPUS, COUNT = 40, 8, 60
LONG, LONG_RANKS = 5, 64  # together they hold every device, so the node that dies is busy
CRASHING = COUNT - 1
PER_S = 6.0
HEARTBEAT_S = 0.4  # lost after 15 of them
SCRIPT = """
faults:
  - {at_s: 8, node: 1, kind: die, for_s: 30}
jobs:
  - {name: "*-crash", run_s: 3, crash_s: 1}
  - {name: "*-long", run_s: 15}
"""


def test_jobs_of_all_sizes_end_once_and_no_device_is_shared(stack: LiveStack, tmp_path: Path) -> None:
    kafka = stack.client().kafka
    begin = _ends(kafka)
    pool = f"fleet-{time.time_ns():x}"
    plan = LoadPlan(pool, pool, PER_S, COUNT, Sizes.parse("1:20,2:10,4:8,8:8,16:5,32:3,64:2"), "H100", seed=7)
    with _fleet(stack, pool, tmp_path) as fleet:
        jobs = _submit(kafka, plan)
        final = _wait_for_all(kafka, begin, set(jobs), timeout_s=150)
        # The jobs may end before the dead node is back: only its second registration ends the parts that it held.
        until(lambda: len(_boots(_read(kafka, begin), f"{pool}-00001")) == 2, f"{pool}-00001 to boot again")
        fleet.send_signal(signal.SIGINT)
        out, _ = fleet.communicate(timeout=150)
    assert fleet.returncode == 0, out
    summary = json.loads(out)
    assert (summary["nodes"], summary["faults"]) == (NODES, {"die": 1})
    assert {j: (s.state, s.reason) for j, s in final.items() if s.state is not JobState.SUCCEEDED} == {}
    told = _read(kafka, begin)
    events = [e.event for e in told]
    each_attempt_ran_once(told, {j: e.spec.gang.ranks for j, e in jobs.items()})
    no_device_was_shared(told, pool)
    restarted = {j for j, s in final.items() if s.attempt > 0}
    assert plan.job(CRASHING).job_id in restarted, "the crash fault ends its first attempt"
    assert any(isinstance(e, NodeLost) and e.node_id == f"{pool}-00001" for e in events), "the node fault was noticed"
    assert restarted & {plan.job(n).job_id for n in range(LONG)}, "a job of the dead node was started again elsewhere"


def test_a_plan_that_cannot_be_is_a_usage_error(stack: LiveStack, tmp_path: Path) -> None:
    script = tmp_path / "bad.yaml"
    script.write_text("faults: [{at_s: 1, node: 7, kind: die}]")
    done = stack.run("fleet", "--nodes", "4", "--script", str(script))
    assert done.code == 2 and "node 7 is none of 0 to 3" in done.err
    done = stack.run("fleet", "--nodes", "4", "--durations", "long")
    assert done.code == 2 and "durations 'long'" in done.err


@contextmanager
def _fleet(stack: LiveStack, pool: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`trainhouse fleet` in a process of its own, once the scheduler knows all its nodes."""
    script, words = folder / "script.yaml", folder / "fleet.err"
    script.write_text(SCRIPT)
    arguments = ["--pool", pool, "--nodes", str(NODES), "--gpus-per-node", str(GPUS), "--heartbeat-s", str(HEARTBEAT_S), "--json"]
    arguments += ["--durations", "0.6..1.4", "--step-s", "0.5", "--script", str(script)]
    command = [sys.executable, "-m", "trainhouse.cli.main", "fleet", *arguments]
    with words.open("w") as err:
        process = subprocess.Popen(
            command, env=stack.environment, stdout=subprocess.PIPE, stderr=err, text=True, cwd=folder, preexec_fn=die_with_parent()
        )
    try:
        until(lambda: "has answered" in words.read_text() or process.poll() is not None, words.read_text)
        assert process.poll() is None, words.read_text()
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _submit(kafka: KafkaSettings, plan: LoadPlan) -> dict[str, JobSubmitted]:
    """All jobs at the plan's rate; the first ones fill the pool beyond the node's death, the last one crashes once."""
    producer = EventProducer(kafka)
    sent: dict[str, JobSubmitted] = {}
    begin = time.monotonic()
    for number in range(plan.count):
        time.sleep(max(0.0, begin + number / plan.per_s - time.monotonic()))
        event = plan.job(number)
        tail = "crash" if number == CRASHING else "long" if number < LONG else "short"
        changes: dict[str, object] = {"name": f"{plan.name}-{tail}"} | ({"gang": Gang(ranks=LONG_RANKS)} if number < LONG else {})
        event = event.model_copy(update={"spec": event.spec.model_copy(update=changes)})
        sent[str(event.job_id)] = event
        envelope = envelope_of(event, id=f"{event.job_id}-submitted", source="test", now_ms=time.time_ns() // 1_000_000)
        producer.send(JOBS, envelope)
    producer.flush()
    return sent


def _wait_for_all(kafka: KafkaSettings, begin: list[TopicPartition], jobs: set[str], timeout_s: float) -> dict[str, JobStatus]:
    """The final status of each job."""
    reader = consumer(kafka)
    reader.assign([tp for tp in begin if tp.topic == STATUS])
    newest: dict[str, JobStatus] = {}
    deadline = time.monotonic() + timeout_s
    while {j for j, s in newest.items() if s.state.final} != jobs:
        open_jobs = {j: newest[j].state if j in newest else None for j in jobs if j not in newest or not newest[j].state.final}
        assert time.monotonic() < deadline, f"not over: {open_jobs}"
        for message in reader.consume(500, timeout=0.2):
            event = decode(message.value(), message.headers()).event
            if isinstance(event, JobStatus) and str(event.job_id) in jobs:
                newest[str(event.job_id)] = event
    reader.close()
    return newest


def _boots(told: list[Envelope], node_id: str) -> set[str]:
    """The boots with which a node has registered."""
    return {str(e.event.boot_id) for e in told if isinstance(e.event, NodeRegistered) and e.event.node_id == node_id}


def _ends(kafka: KafkaSettings) -> list[TopicPartition]:
    """Where the topics that prove it end now."""
    reader = consumer(kafka)
    at = []
    for topic in (ALLOCATIONS, CONTROL, STATUS, VERDICTS):
        for number in reader.list_topics(topic, timeout=60).topics[topic].partitions:
            at.append(TopicPartition(topic, number, watermarks(reader, topic, number)[1]))
    reader.close()
    return at


def _read(kafka: KafkaSettings, begin: list[TopicPartition]) -> list[Envelope]:
    """Allocations, control and verdicts from there to their ends."""
    reader = consumer(kafka, **TO_END)
    waiting = [tp for tp in begin if tp.topic != STATUS]
    reader.assign(waiting)
    found: list[Envelope] = []
    ended: set[tuple[str, int]] = set()
    deadline = time.monotonic() + 60
    while len(ended) < len(waiting):
        assert time.monotonic() < deadline
        for message in reader.consume(500, timeout=0.5):
            if message.error() is not None:
                ended.add((message.topic(), message.partition()))
            else:
                found.append(decode(message.value(), message.headers()))
    reader.close()
    return found
