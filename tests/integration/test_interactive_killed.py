"""Interactive sessions whose gateway or agent is killed: what the user reads, what goes on, and that the idle limit still ends it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import psutil
import pytest

from tests.integration.own_stack import SLOTS, OwnStack
from tests.support.stack.live_stack import LiveStack
from tests.support.stack.terminals import PATIENCE_S, PROMPT, begun, processes_of, spawned
from tests.support.waiting import until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
# A node that is away for longer is lost, and its jobs begin again: here its agent has as long as it needs to come back.
POLICY = "failures:\n  detection:\n    lost_beats: {beats}\n"
USUAL_BEATS, PATIENT_BEATS = 15, 600


@pytest.fixture
def stack(own_stack: OwnStack) -> LiveStack:
    if not own_stack.runs():
        own_stack.up()
    found = LiveStack(own_stack.data_dir, SLOTS)
    until(lambda: found.run("sql", "SELECT 1").code == 0, lambda: found.ok("ps"))
    return found


@contextmanager
def session(stack: LiveStack, *options: str) -> Iterator[tuple[pexpect.spawn, str]]:
    """A shell that has a process in the background and a variable; its job is cancelled afterwards."""
    terminal = spawned(stack.environment, "shell", *options)
    job = begun(terminal)
    try:
        terminal.expect(PROMPT)
        terminal.sendline("KEPT=of-before; sleep 100000 & echo set-$?")
        terminal.expect("\r\n.*set-0")
        yield terminal, job
    finally:
        terminal.close(force=True)
        stack.run("cancel", job)


def kill(stack: LiveStack, part: str) -> None:
    """Kills a part, and waits until another process of it runs."""
    before = stack.part(part).pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    until(lambda: stack.part(part).pid not in (before, None) and stack.part(part).state == "RUNNING", lambda: stack.log(part))


def apply(stack: LiveStack, folder: Path, beats: int) -> None:
    """Gives the pool this patience with its nodes."""
    (folder / "policy.yaml").write_text(POLICY.format(beats=beats))
    stack.ok("policy", "apply", "default", str(folder / "policy.yaml"))


def attached(stack: LiveStack, job: str) -> pexpect.spawn:
    """Attaches as soon as that is answered: until then each try says why not."""
    said: list[str] = []

    def tried() -> pexpect.spawn | None:
        terminal = spawned(stack.environment, "shell", "--job", job)
        if terminal.expect(["~. at the beginning of a line detaches", pexpect.EOF]) == 0:
            return terminal
        said.append(terminal.before)
        terminal.close(force=True)
        return None

    return until(tried, lambda: said[-1], timeout_s=3 * PATIENCE_S)


def state(stack: LiveStack, job: str) -> tuple[str, str, int]:
    [row] = stack.rows(f"SELECT state, reason, attempt FROM jobs WHERE job_id = '{job}'")
    return row["state"], row["reason"], row["attempt"]


def test_the_gateway_is_killed_under_a_shell_which_goes_on_and_is_attached_to_again(stack: LiveStack) -> None:
    with session(stack) as (terminal, job):
        sleeper = psutil.Process(processes_of(job)["sleep"])
        kill(stack, "gateway")
        terminal.expect("the connection to the gateway was lost; the job goes on, attach again: trainhouse shell --job")
        terminal.expect(pexpect.EOF)
        terminal.close()
        assert terminal.exitstatus == 69 and sleeper.is_running()
        again = attached(stack, job)
        again.sendline("echo $KEPT-again; exit 7")
        again.expect("of-before-again")
        again.expect(pexpect.EOF)
        again.close()
        assert again.exitstatus == 7
        until(lambda: state(stack, job)[0] in ENDED, lambda: state(stack, job))
        assert state(stack, job) == ("SUCCEEDED", "interactive session ended: its shell exited with code 7", 0)


def test_the_agent_is_killed_under_a_shell_which_goes_on_while_its_node_is_not_lost(stack: LiveStack, tmp_path: Path) -> None:
    apply(stack, tmp_path, PATIENT_BEATS)
    try:
        with session(stack, "--idle-limit", "150s") as (terminal, job):
            sleeper = psutil.Process(processes_of(job)["sleep"])
            kill(stack, "agent")
            terminal.expect("the connection to the job's node was lost; what runs there goes on unless the node stays lost, attach again")
            terminal.expect(pexpect.EOF)
            terminal.close()
            assert terminal.exitstatus == 69 and sleeper.is_running()
            again = attached(stack, job)
            again.sendline("echo $KEPT-again")
            again.expect("of-before-again")
            # The limit of use that it began with still ends it, and the agent of now reports why.
            again.expect("the session ends: no use and no work for its idle limit of 150 s", timeout=4 * PATIENCE_S)
            again.close(force=True)
            until(lambda: state(stack, job)[0] in ENDED, lambda: state(stack, job))
            ended, reason, attempt = state(stack, job)
            assert ended == "SUCCEEDED" and "no use and no work for its idle limit of 150 s" in reason and attempt == 0
            until(lambda: not processes_of(job), lambda: processes_of(job))
    finally:
        apply(stack, tmp_path, USUAL_BEATS)


def test_a_session_of_a_node_that_was_lost_begins_again_and_says_that_what_ran_is_gone(stack: LiveStack) -> None:
    with session(stack) as (terminal, job):
        agent = stack.part("agent").pid
        assert agent is not None
        os.kill(agent, signal.SIGSTOP)
        try:
            until(lambda: state(stack, job)[2] == 1, lambda: state(stack, job), timeout_s=3 * PATIENCE_S)
        finally:
            os.kill(agent, signal.SIGCONT)
        terminal.close(force=True)
        until(lambda: state(stack, job)[0] == "RUNNING", lambda: state(stack, job))
        again = attached(stack, job)
        again.expect(r"this session began again \(attempt 1\): its node was lost, or it made way; what ran in it before is gone")
        again.sendline("echo [$KEPT]-fresh; exit 0")
        again.expect(r"\[\]-fresh")
        again.close(force=True)
