"""The command line on a whole real stack: submit, follow, look, ask, cancel, run again, and what a wrong input is told."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

# The first test waits for the stack's start, too.
pytestmark = pytest.mark.stack

HELLO = """\
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("rank", os.environ["RANK"], "of", int(total.item()), "lr", sys.argv[1:], os.environ.get("COLOR"), flush=True)
print("TOKEN is", os.environ.get("MY_TOKEN"), flush=True)
"""
SLEEP = "import time\nfor n in range(36000):\n    print('tick', n, flush=True)\n    time.sleep(0.1)\n"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A working folder with scripts."""
    (tmp_path / "hello.py").write_text(HELLO)
    (tmp_path / "sleep.py").write_text(SLEEP)
    (tmp_path / "three.py").write_text("import sys\nprint('about to fail', file=sys.stderr)\nsys.exit(3)\n")
    return tmp_path


def wait_for_state(stack: LiveStack, job: str, states: set[str]) -> str:
    def look() -> str | None:
        state = str(json.loads(stack.ok("status", job, "--json"))["state"])
        return state if state in states else None

    return until(look, lambda: f"{job} is not {states}\n{stack.log('scheduler')}\n{stack.log('agent')}")


def wait_for_lines(stack: LiveStack, job: str, count: int, *more: str) -> list[str]:
    return until(lambda: len(lines := stack.run("logs", job, *more).lines) >= count and lines, lambda: stack.run("logs", job, *more).out)


def test_a_script_of_torchruns_kind_runs_unchanged(stack: LiveStack, code: Path) -> None:
    user = f"u{secrets.token_hex(4)}"
    done = stack.run("submit", "--gang", "2", "--wait", "--user", user, "--env", "COLOR=blue", "--", "python", "hello.py", "0.5", cwd=code)
    assert done.code == 0, done.err + done.out
    job = done.lines[0]
    assert done.lines[-1].startswith(f"{job} SUCCEEDED")
    lines = wait_for_lines(stack, job, 4)
    assert "[0] rank 0 of 2 lr ['0.5'] blue" in lines
    assert "[1] rank 1 of 2 lr ['0.5'] blue" in lines
    assert all(not line.startswith("[1]") for line in wait_for_lines(stack, job, 2, "--rank", "0"))
    assert len(wait_for_lines(stack, job, 2, "--tail", "1")) == 2

    def listed() -> list[str]:
        return [row["job_id"] for row in stack.run("status", "--user", user, "--since", "1h", "--state", "SUCCEEDED", "--json").objects()]

    until(lambda: listed() == [job], listed)
    assert stack.run("status", "--user", user, "--state", "FAILED", "--json").objects() == []
    assert job in stack.ok("status", "--user", user)


def test_a_job_tells_its_whole_story(stack: LiveStack, code: Path) -> None:
    job = stack.run("submit", "--wait", "--", "python", "hello.py", cwd=code).lines[0]
    wanted = ["job.submitted", "job.admitted", "gang.allocated", "attempt.started", "rank.exited", "attempt.stopped"]
    for flags in ((), ("--log",)):

        def told(flags: tuple[str, ...] = flags) -> list[str]:
            return [line.split()[1].rpartition(".v")[0] for line in stack.ok("events", job, *flags).splitlines()]

        until(lambda told=told: set(wanted) <= set(told()), told)  # type: ignore[misc]
        assert [t for t in told() if t in wanted] == wanted
    event = json.loads(stack.ok("events", job, "--log", "--json", "--type", "job.admitted"))
    assert event["specversion"] == "1.0"
    assert event["subject"] == job


def test_a_spec_file_with_a_sweep_makes_one_job_for_each_value(stack: LiveStack, code: Path) -> None:
    (code / "spec.yaml").write_text(
        'name: swept\nuser: sweeper\nruntime:\n  command: [python, hello.py, "{lr}"]\nhyperparameters: {lr: 1}\nlimits: {restarts: 0}\n'
    )
    done = stack.run("submit", "spec.yaml", "--sweep", "lr=0.1,0.01", "--wait", "--json", cwd=code)
    assert done.code == 0, done.err
    jobs = {row["hyperparameters"]["lr"]: row["job_id"] for row in done.objects() if "hyperparameters" in row}
    assert set(jobs) == {0.1, 0.01}
    for value, job in jobs.items():
        assert f"lr ['{value}']" in wait_for_lines(stack, job, 2)[0]


def test_rerun_runs_the_same_again(stack: LiveStack, code: Path) -> None:
    first = stack.run("submit", "--wait", "--seed", "7", "-p", "a=1", "--", "python", "hello.py", "{a}", cwd=code).lines[0]
    (code / "hello.py").write_text("raise SystemExit('the folder changed since')\n")
    done = stack.run("rerun", first, "--wait", cwd=code)
    assert done.code == 0, done.out + done.err
    second = done.lines[0]
    assert second != first
    assert "lr ['1']" in wait_for_lines(stack, second, 2)[0]


def test_a_submission_names_the_places_to_look_at_and_waits_with_output(stack: LiveStack, code: Path) -> None:
    done = stack.run("submit", "--gang", "2", "--", "python", "hello.py", "0.5", cwd=code)
    (job,) = done.lines
    names = [line.partition(":")[0] for line in done.err.splitlines()[-3:]]
    assert names == ["logs", "page", "why"] and done.err.count(job) == 3, done.err
    shown = stack.run("submit", "--gang", "2", "--wait", "--rank", "1", "--", "python", "hello.py", "0.5", cwd=code)
    assert "rank 1 of 2 lr ['0.5'] None" in shown.lines and "rank 0 of 2 lr ['0.5'] None" not in shown.lines, shown.out
    assert shown.lines[-1].startswith(f"{shown.lines[0]} SUCCEEDED")
    quiet = stack.run("submit", "--wait", "--quiet", "--", "python", "hello.py", cwd=code)
    assert quiet.code == 0 and not [line for line in quiet.lines if not line.startswith(quiet.lines[0])], quiet.out


def test_output_of_attempts_has_a_line_between(stack: LiveStack, code: Path) -> None:
    done = stack.run("submit", "--restarts", "1", "--wait", "--", "python", "three.py", cwd=code)
    said = [line for line in done.lines if not line.startswith(done.lines[0])]
    assert said == ["about to fail", "--- attempt 1 ---", "about to fail"], done.out
    logs = stack.run("logs", done.lines[0])
    assert (logs.lines, logs.err) == (["[0] about to fail"] * 2, "--- attempt 1 ---\n")


def test_jobs_of_a_sweep_have_names_of_their_own(stack: LiveStack, code: Path) -> None:
    user = f"u{secrets.token_hex(4)}"
    swept = ("submit", "--name", "lr-sweep", "--user", user, "--sweep", "lr=0.1,0.01", "--", "python", "hello.py", "{lr}")
    jobs = stack.ok(*swept, cwd=code).split()

    def names() -> dict[str, str]:
        return {row["job_id"]: row["name"] for row in stack.run("status", "--user", user, "--json").objects()}

    until(lambda: names() == dict(zip(jobs, ("lr-sweep lr=0.1", "lr-sweep lr=0.01"), strict=True)), names)


def test_cancel_ends_a_job_and_its_processes(stack: LiveStack, code: Path) -> None:
    job = stack.ok("submit", "--", "python", "sleep.py", cwd=code).strip()
    wait_for_lines(stack, job, 1)
    assert stack.ok("cancel", job, "--reason", "enough", "--wait").strip() == f"{job} CANCELLED"
    assert "enough" in stack.status(job)["reason"]
    assert stack.run("status", job, "--watch").code == 4
    again = stack.run("cancel", job)
    assert again.code == 2
    assert "CANCELLED already" in again.err


def test_a_look_into_running_ranks(stack: LiveStack, code: Path) -> None:
    job = stack.ok("submit", "--gang", "2", "--", "python", "sleep.py", cwd=code).strip()
    wait_for_lines(stack, job, 2)
    stacks = {row["rank"]: row["stack"] for row in stack.run("stack", job, "--json").objects()}
    assert set(stacks) == {0, 1}
    assert all("sleep.py" in text for text in stacks.values())
    done = stack.run("exec", job, "--rank", "1", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE; ls; exit 7")
    assert done.code == 7, done.err
    assert "rank 1 of 2" in done.out
    assert "sleep.py" in done.out
    missing = stack.run("exec", job, "--rank", "5", "--", "true")
    assert missing.code == 66
    assert "ranks 0 to 1" in missing.err
    stack.ok("cancel", job, "--wait")


def test_a_secret_reaches_ranks_and_nobody_else(stack: LiveStack, code: Path) -> None:
    value = f"hush-{secrets.token_hex(8)}"
    stack.ok("secrets", "set", "MY_TOKEN", stdin=value + "\n")
    assert "MY_TOKEN" in stack.ok("secrets", "list").split()
    (code / "check.py").write_text(
        "import os\nv = os.environ['MY_TOKEN']\nprint('length', len(v), flush=True)\nprint('it is', v, flush=True)\n"
    )
    job = stack.run("submit", "--wait", "--secret", "MY_TOKEN", "--", "python", "check.py", cwd=code).lines[0]
    assert wait_for_lines(stack, job, 2) == [f"[0] length {len(value)}", "[0] it is ***"]
    assert value not in stack.ok("events", job, "--log", "--json")
    stack.ok("secrets", "rm", "MY_TOKEN")
    assert "MY_TOKEN" not in stack.ok("secrets", "list").split()
    gone = stack.run("secrets", "rm", "MY_TOKEN")
    assert gone.code == 66


def test_nodes_and_questions_in_sql(stack: LiveStack) -> None:
    nodes = stack.run("nodes", "--json", "--state", "ALIVE").objects()
    assert stack.slots in {node["devices"] for node in nodes if node["pool"] == "default"}
    (own,) = [node for node in nodes if node["pool"] == "default"]
    warned = "isolated" in stack.run("ps").err
    assert own["isolation"] in ("whole", "in part", "none") and warned == (own["isolation"] != "whole"), own
    lost = stack.run("nodes", "--json", "--state", "LOST").objects()  # those of other tests' pools may be
    assert "default" not in {node["pool"] for node in lost}
    assert stack.run("sql", "--json", "SELECT 1 AS one").objects() == [{"one": 1}]
    assert stack.ok("sql", "--format", "CSV", "-", stdin="SELECT 1, 'a'").strip() == '1,"a"'
    wrong = stack.run("sql", "SELECT nothing FROM jobs")
    assert wrong.code == 65
    assert "nothing" in wrong.err
    assert "Traceback" not in wrong.err
    refused = stack.run("sql", "DROP TABLE jobs_rows")
    assert refused.code == 65


def test_a_sweep_of_the_store_takes_nothing_that_is_young(stack: LiveStack) -> None:
    [swept] = stack.run("store", "sweep", "--json").objects()
    counts = dict.fromkeys(("chunks", "bytes_freed", "left_by_ranks", "staged_outputs", "of_no_version"), 0)
    assert {name: swept[name] for name in (*counts, "damaged", "unknown")} == counts | {"damaged": [], "unknown": []}
    assert {"expire", "sweep"} <= {row["name"] for row in stack.run("ps", "--json").objects()}, "once a day by themselves"


def test_tags_and_jobs_that_began_from_a_checkpoint_keep_it(stack: LiveStack) -> None:
    gpt = ("submit", "--no-code", "--wait", "--every-steps", "10", "-p", "steps=30")
    command = ("--", "python", "-m", "trainhouse.workers.examples.gpt")
    job = stack.run(*gpt, *command).lines[0]
    commits = [row["commit"] for row in map(json.loads, stack.ok("checkpoints", job, "--json").splitlines())]
    one, two = (f"{job}@{commit}" for commit in commits[:2])
    stack.ok("checkpoint", "tag", one, "paper")
    assert stack.run("checkpoint", "tag", f"{job}@999", "paper").code == 66
    child = stack.run(*gpt, "--from", two, *command)
    assert child.code == 0, child.err
    kept = [(commits[0], "paper"), (commits[1], f"used-by:{child.lines[0]}")]
    assert [(row["commit"], row["name"]) for row in stack.run("checkpoint", "tags", job, "--json").objects()] == kept
    listed = [row["tags"] for row in map(json.loads, stack.ok("checkpoints", job, "--json").splitlines())]
    assert listed[:2] == [["paper"], [kept[1][1]]], listed
    for checkpoint, name in ((one, "paper"), (two, f"used-by:{child.lines[0]}")):
        refused = stack.run("checkpoint", "delete", checkpoint)
        assert refused.code == 3 and f"trainhouse checkpoint untag {job} {name}" in refused.err, refused.err
    assert [row["damaged"] for row in stack.run("checkpoint", "verify", job, "--json").objects()] == [[] for _ in commits]
    stack.ok("checkpoint", "untag", job, "paper")
    for _ in range(2):
        assert "is deleted" in stack.ok("checkpoint", "delete", one), "again, as after one that was cut off"
    assert stack.run("checkpoint", "verify", one).code == 66

    def states() -> list[str]:
        return [row["state"] for row in map(json.loads, stack.ok("checkpoints", job, "--json").splitlines())]

    until(lambda: states() == ["DELETED"] + ["COMPLETED"] * (len(commits) - 1))
    assert "DELETED" in stack.ok("checkpoints", job) and "deleted by" in stack.ok("events", job)
    assert stack.ok("checkpoint", "verify", two).count("sound") == 1


BEST = """\
import torch
from trainhouse.workers import Session

session = Session.start()
model = torch.nn.Linear(1, 1)
session.track(model=model)
for step in session.steps(6):
    session.save_if_best("validation/loss", [3.0, 1.0, 2.0][step % 3])
"""


def test_the_best_checkpoint_of_a_job_has_a_tag(stack: LiveStack, tmp_path: Path) -> None:
    (tmp_path / "best.py").write_text(BEST)
    done = stack.run("submit", "--wait", "--", "python", "best.py", cwd=tmp_path)
    assert done.code == 0, done.out
    job = done.lines[0]
    ((commit, name),) = [(row["commit"], row["name"]) for row in stack.run("checkpoint", "tags", job, "--json").objects()]
    steps = {row["commit"]: row["step"] for row in map(json.loads, stack.ok("checkpoints", job, "--json").splitlines())}
    assert (steps[commit], name) == (2, "best")
    refused = stack.run("checkpoint", "delete", f"{job}@{commit}")
    assert refused.code == 3 and f"trainhouse checkpoint untag {job} best" in refused.err, refused.err


def test_replay_verifies_what_the_scheduler_decided(stack: LiveStack) -> None:
    done = stack.run("replay", "--verify", "--json")
    assert done.code == 0, done.out + done.err
    assert sum(row["records"] for row in done.objects()) > 0


@pytest.mark.parametrize(
    ("arguments", "code_", "reason"),
    [
        (("--pool", "nopool"), 3, "no pool nopool"),
        (("--gang", "99"), 3, "needs 99 devices"),
    ],
)
def test_what_no_pool_could_hold_is_rejected_with_the_way_out(
    stack: LiveStack, arguments: tuple[str, ...], code_: int, reason: str
) -> None:
    command = (*arguments, "--", "python", "-c", "1")
    done = stack.run("submit", "--no-code", "--wait", *command)
    assert done.code == code_, done.out
    assert reason in done.out
    short = stack.run("submit", "--no-code", *command)
    assert (short.code, len(short.lines)) == (code_, 1), "the id is printed: it is a job, and its story can be read"
    assert f"{short.lines[0]} was REJECTED: " in short.err and reason in short.err
    scripted = stack.run("submit", "--no-code", "--no-wait", *command)
    assert (scripted.code, reason in scripted.err) == (0, False)


def test_a_script_that_fails_says_with_which_code_and_last_words(stack: LiveStack, code: Path) -> None:
    done = stack.run("submit", "--wait", "--restarts", "1", "--", "python", "three.py", cwd=code)
    assert done.code == 1
    assert "code 3" in done.out
    assert "about to fail" in done.out
    assert "restart 1" in done.out


def test_submit_says_what_goes_along_and_ranks_see_nothing_that_is_ignored(stack: LiveStack, tmp_path: Path) -> None:
    for name in ("data/large.bin", "kept/.env", ".trainhouseignore"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("data/\n")
    (tmp_path / "list.py").write_text("import os\nfor base, _, files in os.walk('.'):\n    print(sorted(f'{base}/{f}' for f in files))\n")
    done = stack.run("submit", "--", "python", "list.py", cwd=tmp_path)
    assert done.code == 0
    assert done.err.splitlines()[0] == "code: 3 files, 0.1 MB"
    assert "warning: kept/.env looks like a secret" in done.err
    job = done.out.strip()
    assert wait_for_state(stack, job, {"SUCCEEDED", "FAILED"}) == "SUCCEEDED"
    seen = "".join(wait_for_lines(stack, job, 2))
    assert "./kept/.env" in seen
    assert "large.bin" not in seen


def test_a_script_that_does_not_exist_is_refused_at_once_and_fails_on_the_node(stack: LiveStack, code: Path) -> None:
    early = stack.run("submit", "--", "python", "nothing.py", cwd=code)
    assert early.code == 66
    assert "nothing.py is not in" in early.err
    late = stack.run("submit", "--no-code", "--restarts", "0", "--wait", "--", "python", "nothing.py", cwd=code)
    assert late.code == 1
    assert "nothing.py" in late.out


def test_a_repeated_id_is_one_job_and_another_spec_is_rejected(stack: LiveStack, code: Path) -> None:
    job = f"mine-{secrets.token_hex(4)}"
    same = ("submit", "--id", job, "--wait", "--no-code", "--", "python", "-c", "print(1)")
    assert stack.run(*same).code == 0
    assert stack.run(*same).code == 0
    other = stack.run("submit", "--id", job, "--wait", "--no-code", "--", "python", "-c", "print(2)")
    assert other.code == 3, other.out
    assert "another spec" in other.out or "other spec" in other.out or "different spec" in other.out
    assert stack.status(job)["state"] == "SUCCEEDED"
    attempts = f"SELECT count() AS attempts FROM attempts WHERE job_id = '{job}'"
    until(lambda: stack.rows(attempts) == [{"attempts": 1}], lambda: stack.rows(attempts))


def test_a_spec_with_a_typo_names_the_line(stack: LiveStack, code: Path) -> None:
    (code / "spec.yaml").write_text("name: x\nruntime:\n  comand: [python]\n")
    done = stack.run("submit", "spec.yaml", cwd=code)
    assert done.code == 2
    assert "spec.yaml:3: runtime.comand: no such field; did you mean 'command'?" in done.err


def test_an_unknown_job_is_told_with_its_nearest(stack: LiveStack) -> None:
    job = f"known-{secrets.token_hex(4)}"
    assert stack.run("submit", "--id", job, "--wait", "--no-code", "--", "python", "-c", "1").code == 0
    for command in (("status",), ("logs",), ("events",), ("stack",), ("cancel",), ("rerun",)):
        done = stack.run(*command, job + "x")
        assert done.code == 66, (command, done.out, done.err)
        assert f"did you mean {job}" in done.err
        assert "Traceback" not in done.err


def test_doctor_finds_the_stack_sound_and_a_spec_too_large(stack: LiveStack, code: Path) -> None:
    stack.ok("init", "hello.py", "--gang", "99", cwd=code)
    done = stack.run("doctor", "trainhouse.yaml", "--json", cwd=code)
    found = {(row["part"], row["subject"]): row for row in done.objects()}
    servers = ("kafka", "topics", "versions", "store", "clickhouse", "gateway")
    assert {found["deployment", name]["verdict"] for name in servers} == {"OK"}, found
    assert found["spec", "fields"]["verdict"] == "OK"
    assert found["spec", "fleet"]["verdict"] == "FAULT" and "needs 99 devices" in found["spec", "fleet"]["text"]
    assert done.code == 1
    (code / "trainhouse.yaml").write_text("name: x\nruntime:\n  comand: [python]\n")
    wrong = stack.run("doctor", "trainhouse.yaml", cwd=code)
    assert wrong.code == 1 and "FAULT    spec fields: the spec is not valid:" in wrong.out and "did you mean 'command'?" in wrong.out
