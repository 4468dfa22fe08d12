"""A real agent on a real broker whose pool moves to another partition of control while it runs a gang."""

import json

import pytest

from tests.integration.agent_stage import PARTITION, Stage, script
from tests.integration.agent_stage import stage as stage
from trainhouse.events import AttemptStarted, AttemptStopped, NodeRegistered, ProgressReported, RankExited
from trainhouse.events.wire.topics import CONTROL, PROGRESS

pytestmark = pytest.mark.stack
NEW = PARTITION + 1

TRAIN = r"""
import json, os, time
spool = os.open(os.path.join(os.environ["TRAINHOUSE_RANK_DIR"], "spool.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
step = 0
while not os.path.exists(os.environ["GO"]):
    step += 1
    os.write(spool, json.dumps(["p", {"step": step, "at_ms": int(time.time() * 1000)}]).encode() + b"\n")
    time.sleep(0.05)
"""


def of_control(stage: Stage) -> list[tuple[int, str]]:
    """What came to control, as it lies there: the partition and the type."""
    return [(h.partition, type(h.event).__name__) for h in stage.heard if h.topic == CONTROL]


@pytest.mark.parametrize("killed", [False, True])
def test_an_agent_follows_its_pool_and_says_the_end_of_what_it_runs_where_the_pool_is(stage: Stage, killed: bool) -> None:
    shown = stage.folder / "shown"
    shown.mkdir()
    go = shown / "go"
    process = stage.start_agent(job_paths=str(shown))
    node = stage.registered()
    stage.desire(node)
    gang = stage.allocate("moved", 0, script(TRAIN, env={"GO": str(go)}), [(node, 1)])
    stage.wait_for(AttemptStarted, "moved")
    stage.wait_for(ProgressReported, "moved", 3)
    stage.move_pool(NEW)
    last = stage.registered(nth=2)
    assert last.incarnation != node.incarnation and [str(r.job_id) for r in last.running] == ["moved"]
    if killed:
        process.kill()
        process.wait()
        stage.start_agent(job_paths=str(shown))
        last = stage.registered(nth=3)
    go.touch()
    for _ in range(20):
        stage.listen(0.1)
    assert {p for p, _ in of_control(stage)} == {PARTITION} and not stage.events(RankExited), "the new partition has not answered"
    stage.desire(last, gang)
    stage.wait_for(AttemptStopped, "moved")
    ends = [(p, t) for p, t in of_control(stage) if t in ("RankExited", "AttemptStopped")]
    assert ends == [(NEW, "RankExited"), (NEW, "AttemptStopped")]
    after = [p for p, _ in of_control(stage)]
    assert after == sorted(after), "nothing came to the partition before any more"
    assert {h.partition for h in stage.heard if h.topic == PROGRESS} <= {PARTITION, NEW}
    told = [t for p, t in of_control(stage) if p == NEW and t != "AttemptStarted"]
    assert told == ["ProgressReported", "RankExited", "AttemptStopped"], "what the rank told last goes before its end"


def test_an_agent_that_starts_after_a_move_registers_where_the_pool_is(stage: Stage) -> None:
    stage.move_pool(NEW)
    stage.start_agent()
    stage.registered()
    assert {(h.topic, h.partition) for h in stage.heard if isinstance(h.event, NodeRegistered)} == {(CONTROL, NEW)}


def test_what_an_agent_wrote_to_other_brokers_says_nothing_of_these(stage: Stage) -> None:
    folder = stage.folder / "n1"
    folder.mkdir()
    (folder / "state.json").write_text(json.dumps({"fences": [], "order": [], "control": [stage.pool, 900, "other-brokers"]}))
    stage.start_agent(folder=folder)
    node = stage.registered()
    assert {(h.topic, h.partition) for h in stage.heard if isinstance(h.event, NodeRegistered)} == {(CONTROL, PARTITION)}
    stage.desire(node)
    stage.wait(lambda: [True] if json.loads((folder / "state.json").read_text())["control"][1] == PARTITION else [])
