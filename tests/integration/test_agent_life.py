"""One attempt's life on a real agent and a real broker: registered, launched, told, ended."""

import signal
import time
from contextlib import suppress

import psutil
import pytest

from tests.integration.agent_stage import PARTITION, Stage, now_ms, script
from tests.integration.agent_stage import stage as stage
from tests.support.waiting import until
from trainhouse.events import (
    AttemptStarted,
    AttemptStopped,
    CheckpointFailed,
    DumpStacks,
    ExecuteCommand,
    JobSpec,
    LaunchFailed,
    LogLines,
    OperationReplied,
    ProgressReported,
    RankExited,
    StepMetrics,
)
from trainhouse.events.wire.topics import OPERATIONS
from trainhouse.workers.agent.agent import HOUSEKEEPING_MS

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


def test_torch_is_imported_once_the_scheduler_answered(stage: Stage) -> None:
    agent = psutil.Process(stage.start_agent(warm_start=True).pid)

    def warm() -> list[psutil.Process]:
        return [each for each in agent.children() if any(part.endswith("launcher.warm") for part in each.cmdline())]

    node = stage.registered()
    time.sleep(3 * HOUSEKEEPING_MS / 1000)
    assert warm() == [], "until then the control plane may need the CPU to start"
    stage.desire(node)
    until(warm, "the warm process")


def test_a_gang_is_launched_told_and_ended(stage: Stage) -> None:
    stage.start_agent()
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


def test_a_rank_that_fails_says_why(stage: Stage) -> None:
    stage.start_agent()
    node = stage.registered()
    body = "import sys; print('all is lost', file=sys.stderr); sys.exit(3)"
    stage.allocate("fails", 0, script(body), [(node, 1)])
    (gone,) = stage.wait_for(RankExited, "fails")
    assert gone.exit_code == 3 and "exited with code 3" in gone.reason and gone.reason.endswith("all is lost")
    absent = JobSpec.model_validate({"runtime": {"command": ["python", "no_such_script.py"]}})
    stage.allocate("absent", 0, absent, [(node, 1)])
    (gone,) = stage.wait_for(RankExited, "absent")
    assert gone.exit_code == 2 and "no_such_script.py" in gone.reason
    lost = JobSpec.model_validate({"runtime": {"command": ["no-such-program"]}})
    stage.allocate("program", 0, lost, [(node, 1)])
    (failed,) = stage.wait_for(LaunchFailed, "program")
    assert not failed.retryable and "no-such-program" in failed.reason
    stage.wait_for(AttemptStopped, "program")


def test_secrets_reach_the_rank_and_nothing_else(stage: Stage) -> None:
    secrets = stage.folder / "secrets"
    secrets.mkdir()
    (secrets / "TOKEN").write_text("hunter2-is-long")
    (secrets / "TOKEN").chmod(0o600)
    (secrets / "OPEN").write_text("x")
    (secrets / "OPEN").chmod(0o644)
    stage.start_agent(secrets_dir=secrets)
    node = stage.registered()
    body = "import os; assert os.environ['TOKEN'] == 'hunter2' + '-is-long'; print('token is', os.environ['TOKEN'], flush=True)"
    gang = stage.allocate("secret", 0, script(body, secrets=["TOKEN"]), [(node, 1)])
    stage.wait_for(AttemptStopped, "secret")
    assert [e.exit_code for e in stage.events(RankExited, "secret")] == [0]
    assert [line for e in stage.events(LogLines, "secret") for line in e.lines] == ["token is ***"]
    for path in [p for p in stage.folder.rglob("*") if p.is_file() and p.parent != secrets]:
        with suppress(FileNotFoundError):  # the agent goes on to replace its files
            assert b"hunter2-is-long" not in path.read_bytes(), path
    assert stage.paths(gang).folder.is_dir()
    for number, name in enumerate(["MISSING", "OPEN"]):
        stage.allocate(f"secret-{name}", 0, script("pass", secrets=[name]), [(node, 1)])
        (failed,) = stage.wait_for(LaunchFailed, f"secret-{name}")
        assert name in failed.reason and not failed.retryable, number


def test_what_a_session_tells_shows_no_secret(stage: Stage) -> None:
    source = stage.folder / "secrets" / "TOKEN"
    source.parent.mkdir()
    source.write_text("hunter2-is-long")
    source.chmod(0o600)
    stage.start_agent(secrets_dir=source.parent)
    node = stage.registered()
    body = r"""
import os
from pathlib import Path
from trainhouse.workers.spool import SpoolWriter
spool = SpoolWriter(Path(os.environ["TRAINHOUSE_RANK_DIR"]) / "spool.jsonl")
token = os.environ["TOKEN"]
spool.metrics(1, 1, {"loss": 0.5, f"rate of {token}": 1.0, token.encode().hex(): 2.0})
spool.event("CheckpointFailed", {"step": 1, "reason": f"no such bucket: {token}", "at_ms": 1})
"""
    stage.allocate("tells", 0, script(body, secrets=["TOKEN"]), [(node, 1)])
    (metrics,) = stage.wait_for(StepMetrics, "tells")
    (failed,) = stage.wait_for(CheckpointFailed, "tells")
    assert set(metrics.metrics) == {"loss", "rate of ***", "***"} and failed.reason == "no such bucket: ***"
    assert "hunter2" not in stage.logs()


def test_a_second_agent_on_the_same_folder_is_refused(stage: Stage) -> None:
    stage.start_agent()
    stage.registered()
    second = stage.start_agent()
    assert second.wait(60) != 0
    assert "another agent (pid" in (stage.folder / "n1.log").read_text()


def test_sigterm_stops_the_ranks_and_tells(stage: Stage) -> None:
    agent = stage.start_agent(shutdown_grace_s=5)
    node = stage.registered()
    body = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('ready', flush=True); time.sleep(100)"
    stage.allocate("down", 0, script(body), [(node, 1)])
    stage.wait_for(LogLines, "down")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(60) == 0
    (gone,) = stage.wait_for(RankExited, "down")
    assert gone.exit_code == 7
    stage.wait_for(AttemptStopped, "down")


def test_stacks_and_commands_of_running_ranks(stage: Stage) -> None:
    (stage.folder / "secrets").mkdir()
    (stage.folder / "secrets" / "TOKEN").write_text("hunter2-is-long")
    (stage.folder / "secrets" / "TOKEN").chmod(0o600)
    stage.start_agent(secrets_dir=stage.folder / "secrets")
    node = stage.registered()
    body = "def hang_here():\n    while True: pass\nprint('ready', flush=True)\nhang_here()"
    gang = stage.allocate("ops", 0, script(body, secrets=["TOKEN"], env={"MARK": "m1"}), [(node, 2)])
    stage.wait_for(LogLines, "ops", 2)
    stage.say(OPERATIONS, DumpStacks(request_id="stack", node_id="n1", job_id="ops", expires_at_ms=now_ms() + 60_000), "n1")
    replies = stage.wait(lambda: [r for r in stage.events(OperationReplied) if r.request_id == "stack"], 2)
    assert {r.rank for r in replies} == {0, 1} and all(r.done and "hang_here" in r.text for r in replies), replies

    def execute(request: str, *command: str, timeout_s: float = 30) -> list[OperationReplied]:
        asked = ExecuteCommand(
            request_id=request, node_id="n1", job_id="ops", expires_at_ms=now_ms() + 60_000, rank=1, command=command, timeout_s=timeout_s
        )
        stage.say(OPERATIONS, asked, "n1")
        stage.wait(lambda: [r for r in stage.events(OperationReplied) if r.request_id == request and r.done])
        return [r for r in stage.events(OperationReplied) if r.request_id == request]

    said = execute("env", "sh", "-c", "echo $RANK $MARK $TOKEN; pwd; exit 5")
    assert "".join(r.text for r in said).splitlines() == ["1 m1 ***", str(stage.paths(gang).code)] and said[-1].exit_code == 5
    assert "ended after 0.5 s" in execute("slow", "sh", "-c", "sleep 100 & sleep 100", timeout_s=0.5)[-1].text
    # What was written arrives when it was read, at the latest with the answer that the command has ended.
    assert "no-such-command" in "".join(r.text for r in execute("none", "no-such-command"))
