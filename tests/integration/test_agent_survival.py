"""What an agent survives: its own death, newer epochs, ranks that won't die, floods of output, brokers that are away."""

import signal
from pathlib import Path

import psutil
import pytest

from tests.integration.agent_stage import PARTITION, Stage, now_ms, script
from tests.integration.agent_stage import stage as stage
from tests.support.waiting import until
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.events import (
    AttemptStarted,
    AttemptStopped,
    GangAllocated,
    LogLines,
    NodeDesiredState,
    NodeHeartbeat,
    NodeLost,
    Order,
    RankExited,
    StepMetrics,
)
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.model.telemetry import FileRange
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import VERDICTS
from trainhouse.workers.agent.launch.attempt_dirs import FINISHED

pytestmark = pytest.mark.stack

LOGGER = r"""
import json, os, time
spool = os.open(os.path.join(os.environ["TRAINHOUSE_RANK_DIR"], "spool.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for step in range(%d):
    os.write(spool, json.dumps(["m", step, int(time.time() * 1000), {"loss": 1.5}]).encode() + b"\n")
    print("line", step, flush=True)
    time.sleep(%f)
"""
# Goes past step 390 once there is a file `go`, however long a busy machine takes until then.
GATED = (
    LOGGER
    + """    while step == 390 and not os.path.exists(os.path.join(os.environ["TRAINHOUSE_ATTEMPT_DIR"], "go")):
        time.sleep(0.05)
"""
)
# Two processes that ignore SIGTERM, the child in a session of its own.
STUBBORN = r"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
print("child", child.pid, flush=True)
time.sleep(600)
"""


def trimmed(records: list[FileRange]) -> tuple[list[int], int]:
    """What a reader with a high-water mark of bytes keeps, and how much it trimmed."""
    mark, kept, dropped = 0, [], 0
    for record in records:
        for offset in record.offsets:  # type: ignore[attr-defined]
            if offset >= mark:
                kept.append(offset)
            else:
                dropped += 1
        mark = max(mark, record.end)
    return kept, dropped


def assert_whole(stage: Stage, job: str, count: int) -> None:
    """Every point and line of every rank, once after trimming. What was sent before an end may be heard after it: other partitions."""
    stage.wait(lambda: [rank for rank in (0, 1) if all(len(part) >= count for part in told(stage, job, rank))], 2)
    for rank in (0, 1):
        steps, lines = told(stage, job, rank)
        assert steps == list(range(count)), f"rank {rank}"
        assert lines == [f"line {n}" for n in range(count)], f"rank {rank}"


def told(stage: Stage, job: str, rank: int) -> tuple[list[int], list[str]]:
    """The steps and the lines of a rank that were heard so far, overlaps trimmed."""
    metrics = [m for m in stage.events(StepMetrics, job) if m.rank == rank]
    steps = dict(zip([o for m in metrics for o in m.offsets], [s for m in metrics for s in m.steps], strict=True))
    lines = [e for e in stage.events(LogLines, job) if e.rank == rank and e.stream == "stdout"]
    texts = dict(zip([o for e in lines for o in e.offsets], [t for e in lines for t in e.lines], strict=True))
    points, _ = trimmed(metrics)  # type: ignore[arg-type]
    written, _ = trimmed(lines)  # type: ignore[arg-type]
    return [steps[o] for o in points], [texts[o] for o in written]


def test_ranks_outlive_a_killed_agent_and_nothing_is_lost(stage: Stage) -> None:
    agent = stage.start_agent()
    node = stage.registered()
    gang = stage.allocate("adopted", 0, script(GATED % (400, 0.02)), [(node, 2)])
    stage.wait_for(StepMetrics, "adopted", 3)
    for _ in range(2):
        agent.kill()
        agent.wait()
        # A cut-off save of positions: the next agent cuts again from an older place, and differently.
        (stage.paths(gang).folder / "shipped.json").unlink(missing_ok=True)
        seen = len([h for h in stage.heard if h.topic == "trainhouse.control"])
        agent = stage.start_agent()
        node = stage.registered(nth=len(stage.events(type(node))) + 1)
        assert [(r.job_id, r.epoch) for r in node.running] == [("adopted", 0)]
        stage.desire(node, gang)
        stage.wait(lambda seen=seen: [h.event for h in stage.heard if h.topic == "trainhouse.control"][seen:], 2)
    (stage.paths(gang).folder / "go").touch()
    stage.wait_for(AttemptStopped, "adopted")
    assert_whole(stage, "adopted", 400)
    assert trimmed([m for m in stage.events(StepMetrics, "adopted") if m.rank == 0])[1] > 0, "nothing was ever cut again"
    assert {e.exit_code for e in stage.events(RankExited, "adopted")} == {0}
    assert len(set(stage.ids(RankExited, "adopted"))) == 2 and len(set(stage.ids(AttemptStarted, "adopted"))) == 1


def test_ranks_that_end_while_the_agent_is_dead_are_told_by_the_next(stage: Stage) -> None:
    agent = stage.start_agent()
    node = stage.registered()
    gang = stage.allocate("alone", 0, script(LOGGER % (40, 0.02) + "raise SystemExit(4)"), [(node, 2)])
    stage.wait_for(AttemptStarted, "alone")
    agent.kill()
    agent.wait()
    until(lambda: all(stage.paths(gang).rank(r).exit.exists() for r in (0, 1)), "both ranks have ended")
    stage.start_agent()
    stage.wait_for(AttemptStopped, "alone")
    assert {e.exit_code for e in stage.events(RankExited, "alone")} == {4}
    assert_whole(stage, "alone", 40)
    until((stage.paths(gang).folder / FINISHED).exists, stage.logs)


def test_a_newer_epoch_starts_only_when_nothing_of_the_older_is_left(stage: Stage) -> None:
    stage.start_agent()
    node = stage.registered()
    old = stage.allocate("epochs", 0, script(STUBBORN), [(node, 1)])
    pids = stubborn_pids(stage, old)
    body = f"""
import os
def alive(pid): return os.path.exists(f'/proc/{{pid}}') and open(f'/proc/{{pid}}/stat').read().split()[2] != 'Z'
print('alive', [p for p in {pids} if alive(p)], flush=True)
"""
    stage.allocate("epochs", 1, script(body), [(node, 1)])
    stage.wait(lambda: [e for e in stage.events(AttemptStopped, "epochs") if e.epoch == 1])
    lines = [line for e in stage.events(LogLines, "epochs") if e.epoch == 1 for line in e.lines]
    assert lines == ["alive []"]


def test_a_release_ends_a_whole_tree_that_ignores_sigterm(stage: Stage) -> None:
    stage.start_agent()
    node = stage.registered()
    gang = stage.allocate("stubborn", 0, script(STUBBORN), [(node, 1)])
    pids = stubborn_pids(stage, gang)
    stage.release(gang, grace_s=0.5)
    stage.wait_for(AttemptStopped, "stubborn")
    assert not [p for p in pids if psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE]
    (gone,) = stage.events(RankExited, "stubborn")
    assert gone.signal == signal.SIGKILL


def stubborn_pids(stage: Stage, gang: GangAllocated) -> list[int]:
    """The rank's pid and its child's."""
    stage.wait(lambda: [e for e in stage.events(LogLines, gang.job_id) if e.epoch == gang.epoch])
    rank = next(r.pid for b in stage.wait(lambda: running(stage, gang.job_id)) for r in b.ranks)
    assert rank is not None
    # What the program calls its child holds in its own process namespace only.
    below = [child.pid for child in psutil.Process(rank).children(recursive=True) if "time.sleep(600)" in child.cmdline()[-1]]
    assert below, psutil.Process(rank).children(recursive=True)
    return [rank, *below]


def running(stage: Stage, job: str) -> list:  # type: ignore[type-arg]
    return [a for h in stage.events(NodeHeartbeat) for a in h.attempts if a.job_id == job and all(r.pid for r in a.ranks)]


def test_a_flood_of_output_fills_nothing_and_stops_nothing(stage: Stage) -> None:
    limit = 2 * 1024 * 1024
    stage.start_agent(log_limit_bytes=limit)
    node = stage.registered()
    body = "import sys\nfor n in range(1_000_000): sys.stdout.write('x' * 95 + '%05d' % (n % 100000) + '\\n')\nprint('the end')"
    gang = stage.allocate("flood", 0, script(body), [(node, 1)])
    stage.wait_for(AttemptStopped, "flood", timeout_s=180)
    events = stage.events(LogLines, "flood")
    lines = [line for e in events for line in e.lines]
    assert lines[-1] == "the end" and len([x for x in lines if "trainhouse: stdout is over 2 MiB" in x]) == 1
    assert sum(len(x) + 1 for x in lines) < limit + 512 * 1024
    kept, dropped = trimmed(events)  # type: ignore[arg-type]
    assert not dropped and kept == sorted(kept)
    log = stage.paths(gang).rank(0).stdout
    assert log.stat().st_size > 90_000_000 and log.stat().st_blocks * 512 < 40_000_000
    assert [e.exit_code for e in stage.events(RankExited, "flood")] == [0]


def test_ranks_go_on_while_the_brokers_are_away(tmp_path: Path) -> None:
    with KafkaServer(tmp_path / "kafka") as server:
        settings = KafkaSettings(bootstrap=server.bootstrap)
        create_topics(settings)
        stage = Stage(settings, "p", tmp_path)
        try:
            stage.create_pool()
            agent = stage.start_agent()
            node = stage.registered()
            gang = stage.allocate("away", 0, script(LOGGER % (300, 0.02)), [(node, 2)])
            stage.wait_for(StepMetrics, "away", 2)
            server.kill()
            until(lambda: all(stage.paths(gang).rank(r).exit.exists() for r in (0, 1)), stage.logs)
            server.start()
            stage.wait_for(AttemptStopped, "away")
            assert_whole(stage, "away", 300)
            assert agent.poll() is None and not stage.events(NodeDesiredState)
        finally:
            stage.close()


def test_one_gang_across_two_nodes(stage: Stage) -> None:
    body = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0]); dist.all_reduce(total)
print(total.item(), os.environ["GROUP_RANK"], os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"], flush=True)
dist.destroy_process_group()
"""
    for name in ("n1", "n2"):
        stage.start_agent(name)
    first, second = stage.registered("n1"), stage.registered("n2")
    stage.allocate("wide", 0, script(body), [(first, 1), (second, 2)])
    stage.wait_for(AttemptStopped, "wide", 2, timeout_s=150)
    assert sorted(line for e in stage.events(LogLines, "wide") if e.stream == "stdout" for line in e.lines) == [
        "6.0 0 0 1",
        "6.0 1 0 2",
        "6.0 1 1 2",
    ]
    assert {e.node_id for e in stage.events(AttemptStopped, "wide")} == {"n1", "n2"}


def test_a_command_older_than_what_was_obeyed_is_dropped_also_after_a_restart(stage: Stage) -> None:
    agent = stage.start_agent()
    node = stage.registered()
    stage.allocate("first", 0, script("pass"), [(node, 1)], Order(PARTITION, 100, 1))
    stage.wait_for(AttemptStopped, "first")
    agent.kill()
    agent.wait()
    stage.start_agent()
    node = stage.registered(nth=2)
    stage.allocate("stale", 0, script("pass"), [(node, 1)], Order(PARTITION, 100, 0))
    stage.allocate("newer", 0, script("pass"), [(node, 1)], Order(PARTITION, 100, 2))
    stage.wait_for(AttemptStopped, "newer")
    assert not stage.events(AttemptStarted, "stale") and not stage.events(AttemptStopped, "stale")


def test_a_node_that_was_given_up_registers_again(stage: Stage) -> None:
    stage.start_agent()
    node = stage.registered()
    gang = stage.allocate("lost", 0, script("import time; print('up', flush=True); time.sleep(600)"), [(node, 1)])
    stage.wait_for(LogLines, "lost")
    verdict = NodeLost(
        node_id=node.node_id, boot_id=node.boot_id, incarnation=node.incarnation, pool=stage.pool, silent_s=9.0, evidence="", at_ms=now_ms()
    )
    stage.say(VERDICTS, verdict, "n1")
    second = stage.registered(nth=2)
    assert second.incarnation != node.incarnation and [r.job_id for r in second.running] == ["lost"]
    stage.desire(node, gang)  # an answer to the registration that was taken away: nobody's
    stage.desire(second)
    stage.wait_for(AttemptStopped, "lost")
