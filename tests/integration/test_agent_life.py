"""One attempt's life on a real agent and a real broker: registered, launched, told, ended."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agent_stage import PARTITION, Stage, script
from trainhouse.events import AttemptStarted, AttemptStopped, LogLines, ProgressReported, RankExited, StepMetrics
from trainhouse.events.admin import create_topics
from trainhouse.events.settings import KafkaSettings

pytestmark = pytest.mark.stack

TRAIN = r"""
import json, os, sys, time
rank = os.environ["RANK"]
spool = os.open(os.path.join(os.environ["TRAINHOUSE_RANK_DIR"], "spool.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def tell(line): os.write(spool, json.dumps(line).encode() + b"\n")
for step in range(1, 21):
    tell(["m", step, int(time.time() * 1000), {"loss": 1.0 / step}])
    tell(["p", {"step": step, "total_steps": 20, "loss": 1.0 / step, "at_ms": int(time.time() * 1000)}])
    print("step", step, flush=True)
    time.sleep(0.01)
tell(["e", "CheckpointCompleted", {"commit": 1, "step": 20, "uri": "s3://x/y", "bytes_total": 1, "bytes_new": 1}, "job:commit:1"])
print("no newline at the end", end="", file=sys.stderr)
"""


@pytest.fixture
def stage(kafka: str, tmp_path: Path) -> Iterator[Stage]:
    settings = KafkaSettings(bootstrap=kafka)
    create_topics(settings)
    stage = Stage(settings, f"pool-{uuid.uuid4().hex[:8]}", tmp_path)
    yield stage
    stage.close()


def test_a_gang_is_launched_told_and_ended(stage: Stage) -> None:
    stage.start_agent()
    stage.create_pool()
    node = stage.registered()
    assert len(node.devices) == 4 and len(node.rendezvous_ports) == 4 and node.running == ()
    stage.desire(node)
    gang = stage.allocate("life", 0, script(TRAIN, env={"HELLO": "you"}), [(node, 2)])
    stage.wait_for(AttemptStopped, "life")
    started = stage.events(AttemptStarted, "life")
    assert len(started) == 1
    exits = stage.events(RankExited, "life")
    assert [(e.rank, e.exit_code, e.signal) for e in sorted(exits, key=lambda e: e.rank)] == [(0, 0, None), (1, 0, None)]
    progress = stage.events(ProgressReported, "life")
    assert progress[0].step >= 1 and progress[-1].step == 20 and {p.rank for p in progress} == {0}
    for rank in (0, 1):
        points = [s for m in stage.events(StepMetrics, "life") if m.rank == rank for s in m.steps]
        assert points == list(range(1, 21))
        lines = [line for e in stage.events(LogLines, "life") if e.rank == rank and e.stream == "stdout" for line in e.lines]
        assert lines == [f"step {n}" for n in range(1, 21)]
        assert [line for e in stage.events(LogLines, "life") if e.rank == rank and e.stream == "stderr" for line in e.lines] == [
            "no newline at the end"
        ]
    assert {h.partition for h in stage.heard if h.topic == "trainhouse.control"} == {PARTITION}
    assert stage.paths(gang).folder.is_dir()
