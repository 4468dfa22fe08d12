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

from tests.support.fleet_judge import each_attempt_ran_once, no_device_was_shared, parts_held
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import PATIENCE_S, until
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.events import (
    Envelope,
    JobState,
    JobStatus,
    JobSubmitted,
    NodeLost,
    decode,
    envelope_of,
)
from trainhouse.events.bus.kafka import TO_END, EventProducer, consumer, partitions_of, read_to_end, watermarks
from trainhouse.events.model.spec import Gang
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import ALLOCATIONS, CONTROL, JOBS, STATUS, VERDICTS
from trainhouse.workers.fleet.job_load import LoadPlan, Sizes

pytestmark = pytest.mark.stack

NODES, GPUS, COUNT = 40, 8, 60
LONG, LONG_RANKS = 5, 64  # together they hold every device: the short ones wait for some of them
CRASHING = COUNT - 1
PER_S = 6.0
# Lost after 15 of them; more often, and a process that has to wait for a processor would be given up for it.
HEARTBEAT_S = 1.0
# Only a long job trains for `busy_s`, so one of them is on the node that dies, whenever the scheduler gets to it; it cannot end before its
# node is given up, since a gang that misses ranks does not go on; and the node is not back before that, however late it comes.
SCRIPT = """
faults:
  - {busy_s: 4, kind: die, for_s: lost}
jobs:
  - {name: "*-crash", run_s: 3, crash_s: 1}
  - {name: "*-long", run_s: 15}
"""


def test_jobs_of_all_sizes_end_once_and_no_device_is_shared(stack: LiveStack, tmp_path: Path) -> None:
    kafka = stack.client_kafka()
    begin = _ends(kafka)
    pool = f"fleet-{time.time_ns():x}"
    plan = LoadPlan(pool, pool, PER_S, COUNT, Sizes.parse("1:20,2:10,4:8,8:8,16:5,32:3,64:2"), "H100", seed=7)
    with _fleet(stack, pool, tmp_path) as fleet:
        jobs = _submit(kafka, plan)
        final = _wait_for_all(kafka, begin, set(jobs))
        # The jobs end before all has been said of them: what the dead node held ends with its second registration alone.
        until(lambda: not parts_held(_read(kafka, begin), pool), lambda: parts_held(_read(kafka, begin), pool), every_s=1.0)
        fleet.send_signal(signal.SIGINT)
        out, _ = fleet.communicate(timeout=PATIENCE_S)
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
    (struck,) = summary["struck"]
    hit = {job_id for job_id, _ in struck["hit"]}
    assert hit & {plan.job(n).job_id for n in range(LONG)}, f"a long job trained on the node that died: {struck}"
    assert any(isinstance(e, NodeLost) and e.node_id == struck["node_id"] for e in events), "the node fault was noticed"
    assert hit <= restarted, "each job of the dead node was started again"


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


def _wait_for_all(kafka: KafkaSettings, begin: list[TopicPartition], jobs: set[str]) -> dict[str, JobStatus]:
    """The final status of each job."""
    reader = consumer(kafka)
    reader.assign([tp for tp in begin if tp.topic == STATUS])
    newest: dict[str, JobStatus] = {}

    def all_over() -> bool:
        for message in reader.consume(500, timeout=0.2):
            event = decode(message.value(), message.headers()).event if message.error() is None else None
            if isinstance(event, JobStatus) and str(event.job_id) in jobs:
                newest[str(event.job_id)] = event
        return {j for j, s in newest.items() if s.state.final} == jobs

    def still_open() -> object:
        return {j: newest[j].state if j in newest else None for j in jobs if j not in newest or not newest[j].state.final}

    until(all_over, still_open, every_s=0)
    reader.close()
    return newest


def _ends(kafka: KafkaSettings) -> list[TopicPartition]:
    """Where the topics that prove it end now."""
    reader = consumer(kafka)
    at = []
    for topic in (ALLOCATIONS, CONTROL, STATUS, VERDICTS):
        for number in partitions_of(reader, topic):
            at.append(TopicPartition(topic, number, watermarks(reader, topic, number)[1]))
    reader.close()
    return at


def _read(kafka: KafkaSettings, begin: list[TopicPartition]) -> list[Envelope]:
    """Allocations, control and verdicts from there to their ends."""
    reader = consumer(kafka, **TO_END)
    found: list[Envelope] = []
    for topic in (ALLOCATIONS, CONTROL, VERDICTS):
        starts = {tp.partition: tp.offset for tp in begin if tp.topic == topic}
        found += [decode(message.value(), message.headers()) for message in read_to_end(reader, topic, starts, starts=starts)]
    reader.close()
    return found
