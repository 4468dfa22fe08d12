"""The detector as a process on real brokers: what it says, once, to people and to the scheduler, also across its own death."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.decoded import decoded
from tests.support.detector_world import Gang
from tests.support.waiting import until
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.events import PolicyApplied, PoolCreated, SchedulingPolicy, envelope_of
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.bus.kafka import TO_END, EventProducer, consumer, read_to_end
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire import topics

pytestmark = pytest.mark.stack
POOL, POOL_PARTITION, NODE = "detected", 2, "detected-node"
LIMITS = {"hang_floor_s": 1, "straggler_after_s": 2}


class Agent:
    """Sends the heartbeats of one gang, in a thread, until it is told to be silent."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self.gang = Gang(ranks=2)
        self.gang.more = {"node_id": NODE, "pool": POOL}
        self.producer = EventProducer(kafka)
        self.silent = threading.Event()
        self._at_s = time.monotonic()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self.silent.wait(0.3):
            now_s = time.monotonic()
            beat = self.gang.beat(now_s - self._at_s)
            self._at_s = now_s
            self.producer.send(topics.HEARTBEATS, envelope_of(beat, id=f"{NODE}:{beat.sequence}", source="test", now_ms=beat.at_ms))


@contextmanager
def detector(kafka: KafkaSettings, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    told = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHOUSE_")} | {"TRAINHOUSE_KAFKA_BOOTSTRAP": kafka.bootstrap}
    with log.open("ab") as out:
        started = subprocess.Popen(
            [sys.executable, "-m", "trainhouse.cli.main", "run", "detector"],
            env=told,
            stdout=out,
            stderr=out,
            preexec_fn=die_with_parent(),
            cwd=log.parent,  # not near a stack of `make demo`
        )
        try:
            yield started
        finally:
            if started.poll() is None:
                started.terminate()
            started.wait(120)


def said(kafka: KafkaSettings, topic: str, partitions: list[int]) -> list[tuple[str, Any]]:
    """All that was said of this test's pool."""
    reader = consumer(kafka, **TO_END)
    try:
        found = list(decoded(read_to_end(reader, topic, partitions)))
    finally:
        reader.close()
    return [(str(e.id), e.event) for e in found if getattr(e.event, "pool", None) == POOL and not isinstance(e.event, PoolCreated)]


def test_verdicts_come_once_and_are_lifted_once_also_when_the_detector_dies_in_between(kafka: str, tmp_path: Path) -> None:
    settings = KafkaSettings(bootstrap=kafka)
    create_topics(settings)
    agent, log = Agent(settings), tmp_path / "detector.log"
    policy = SchedulingPolicy.model_validate({"name": "keen", "failures": {"detection": LIMITS}})
    for topic, event in (
        (topics.POOLS, PoolCreated.model_validate({"pool": POOL, "partition": POOL_PARTITION})),
        (topics.POLICIES, PolicyApplied.model_validate({"pool": POOL, "policy": policy, "version": 1, "applied_at_ms": 1})),
    ):
        agent.producer.send(topic, envelope_of(event, id=f"{POOL}:{topic}", source="test", now_ms=1))
    reader = consumer(settings, **TO_END)
    everywhere = list(reader.list_topics(topics.VERDICTS, 30).topics[topics.VERDICTS].partitions)
    reader.close()

    def comes(*names: str) -> None:
        """Just these; a suspicion that passes may come on a busy machine."""

        def kinds() -> list[str]:
            found = said(settings, topics.VERDICTS, everywhere)
            return sorted(type(e).__name__ for name, e in found if "node.suspected" not in name)

        until(lambda: kinds() == sorted(names), lambda: f"{names}, not {kinds()}\n{log.read_text()[-3000:]}")

    with detector(settings, log) as first:
        agent.gang.fields[1].update(work_time_ms=200.0, fastest_work_time_ms=100.0)
        comes("StragglerDetected")
        first.send_signal(signal.SIGKILL)
    agent.gang.fields[1].update(work_time_ms=100.0)
    with detector(settings, log):
        comes("StragglerDetected", "VerdictLifted")
        agent.gang.waiting, agent.gang.frozen = {0}, {1}
        comes("StragglerDetected", "VerdictLifted", "GangHung")
        agent.silent.set()
        comes("StragglerDetected", "VerdictLifted", "GangHung", "NodeLost")
        until(lambda: len(said(settings, topics.CONTROL, [POOL_PARTITION])) == 2, "the two that the scheduler acts on")
        (hung_id, hung), (_, lost) = said(settings, topics.CONTROL, [POOL_PARTITION])
        assert hung.ranks == (1,) and hung.limit_s == 1 and f":{NODE}:" in hung_id
        assert lost.node_id == NODE and lost.sequence == agent.gang.sequence
    agent.producer.flush()
