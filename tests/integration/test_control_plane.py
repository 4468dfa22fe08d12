"""The control plane under failures, on one real stack: a standby that takes over, a scheduler that was paused and wakes, an agent that is
cut off from the brokers (by a proxy always, by a network namespace where one can be made) or stopped, with an attempt that then is stale.

What must hold is asked of the judge of the chaos suite: it reads the journal's bytes, the topics and the commit chains only.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.chaos import judge, judge_journal, judge_store
from tests.chaos.drive import Training
from tests.chaos.evidence import Evidence, gather, stored
from tests.chaos.kept import Kept
from tests.chaos.proxy import Proxy
from tests.chaos.stack import ChaosStack
from tests.chaos.start import BESIDE, agent_settings, outside, programs
from tests.support.stack.namespace import Namespace
from tests.support.stack.paced_jobs import paced_gpt
from tests.support.stack.takeover import Watch
from tests.support.waiting import until
from trainhouse.deploy.local.bootstrap import PARTITION
from trainhouse.events import JobSpec, JobState, JobStatus, NodeLost
from trainhouse.events.wire import topics
from trainhouse.workers.launcher.ports import RankPaths

pytestmark = [pytest.mark.stack, pytest.mark.chaos]
AFAR = "afar"
SLOTS = 2
# In one transaction's time and in one group session's, both of which the brokers give up on.
PAUSE_S = 18.0
# Longer than the test takes, where it does not say that enough was seen: a stale attempt that ended by itself would not be refused.
# A save every three seconds, so that the end, which comes without pauses, has few of them.
PROGRAM = paced_gpt(2.0, 400)
SAVES = {"every_s": 3.0}
STALE = "a newer attempt has taken over"


@dataclass
class Scene:
    """The stack, with a third node in a namespace where that is possible."""

    stack: ChaosStack
    folder: Path
    namespace: Namespace | None
    jobs: list[str] = field(default_factory=list)

    def submit(self, gang: int, *command: str, **more: Any) -> str:
        """A job that may be restarted as often as it takes; `ENOUGH` is a file of its own."""
        job_id = f"plane-{secrets.token_hex(3)}"
        fields = {"gang": gang, "runtime": {"command": command}, "limits": {"restarts": 100}, "env": {"ENOUGH": str(self.enough(job_id))}}
        self.stack.submit(job_id, JobSpec.model_validate({"name": "plane"} | fields | more))
        self.jobs.append(job_id)
        return job_id

    def enough(self, job_id: str) -> Path:
        return programs(self.folder) / f"{job_id}.enough"

    def status(self, job_id: str) -> JobStatus | None:
        return self.stack.statuses().get(job_id)

    def until(self, job_id: str, what: Callable[[JobStatus], bool]) -> JobStatus:
        """The first status for which that holds."""

        def look() -> JobStatus | None:
            status = self.status(job_id)
            return status if status is not None and what(status) else None

        return until(look, lambda: self.status(job_id), every_s=0.3)

    def judged(self) -> Evidence:
        """All is well by the rules that hold at every instant; the evidence, for more."""
        evidence = gather(self.stack.patient, self.stack.kafka.partitions)
        evidence.stored = stored(self.stack.objects())
        rules = (judge.effects_once, judge.commits_agree, judge_journal.one_chain, judge_journal.one_gang_per_device)
        more = (judge_journal.stale_progress_is_ignored, judge_store.one_committer, judge_store.checkpoints_whole)
        complaints = [complaint for rule in (*rules, *more) for complaint in rule(evidence)]
        assert not complaints, "\n".join(complaints)
        return evidence


@pytest.fixture(scope="module")
def scene(two_nodes: ChaosStack, namespace: Namespace | None, bootstrap_afar: str) -> Iterator[Scene]:
    folder = two_nodes.live.data_dir.parent
    if namespace is None:
        yield Scene(two_nodes, folder, None)
        return
    data, stack = two_nodes.live.data_dir, two_nodes
    with ExitStack() as until_the_end:
        store = until_the_end.enter_context(Proxy(int(stack.store.endpoint.rpartition(":")[2]), host=namespace.address))
        there = {"TRAINHOUSE_S3_ENDPOINT": f"http://{namespace.address}:{store.port}"}
        environment = outside(stack.live, "agent") | agent_settings(data, AFAR, bootstrap_afar, SLOTS) | there
        agent = Kept("agent", environment, folder / "afar.log", namespace.command)
        until_the_end.callback(agent.close)
        until_the_end.callback(namespace.heal)
        until(lambda: AFAR in nodes(stack), agent.log.read_text)
        more = ChaosStack.of(stack.live, stack.wire, stack.clocks, stack.kept | {AFAR: agent}, *(data / n for n in (BESIDE, AFAR)))
        yield Scene(more, folder, namespace)


def nodes(stack: ChaosStack) -> dict[str, str]:
    """Every node and its state, as SQL has it."""
    return {str(row["node_id"]): str(row["state"]) for row in stack.live.rows("SELECT node_id, state FROM nodes")}


def test_a_standby_takes_over_from_a_scheduler_that_was_killed(scene: Scene) -> None:
    watch = Watch(scene.stack.kafka, PARTITION)
    running = set(psutil.pids())
    found = watch.measure(lambda pid: os.kill(pid, signal.SIGKILL), lambda: scene.submit(1, "python", "-c", "pass"))
    watch.close()
    print(f"took over {found.record_s:.2f} s after the kill, allocated {found.allocated_s:.2f} s after it")
    # How long it may take is for `python -m tests.bench takeover` to say; here, that nobody had to be started for it.
    assert found.pid in running, found
    scene.until(scene.jobs[-1], lambda s: s.state is JobState.SUCCEEDED)
    scene.judged()


def test_a_scheduler_that_was_paused_beyond_its_time_wakes_and_doubles_nothing(scene: Scene) -> None:
    watch = Watch(scene.stack.kafka, PARTITION)
    paused = watch.decider()
    process = psutil.Process(paused.pid)
    process.suspend()
    try:
        began = time.monotonic()
        meanwhile = [scene.submit(1, "python", "-c", "pass") for _ in range(3)]
        for job_id in meanwhile:
            scene.until(job_id, lambda s: s.state is JobState.SUCCEEDED)
        time.sleep(max(0.0, PAUSE_S - (time.monotonic() - began)))
        assert watch.decider().owner != paused.owner
    finally:
        process.resume()
    after = [scene.submit(1, "python", "-c", "pass") for _ in range(3)]
    for job_id in after:
        scene.until(job_id, lambda s: s.state is JobState.SUCCEEDED)
    watch.close()
    evidence = scene.judged()
    told = [r.envelope.event for r in evidence.of(topics.STATUS, JobStatus)]
    for job_id in (*meanwhile, *after):
        ends = [s for s in told if isinstance(s, JobStatus) and s.job_id == job_id and s.state.final]
        assert len(ends) == 1 and int(ends[0].epoch) == 1, ends


@pytest.mark.parametrize("how", ["proxy", "namespace", "stopped"])
def test_an_attempt_that_is_cut_off_trains_on_and_once_replaced_can_do_no_harm(scene: Scene, how: str) -> None:
    if how == "namespace" and scene.namespace is None:
        pytest.skip("no network namespace can be made here; the proxy has cut the same wire")
    node = AFAR if how == "namespace" else BESIDE
    first = trains_on(scene, node)
    job_id = first.job_id
    training = Training(tuple(a for a in scene.stack.attempts if a.parent.name == node), job_id)
    cut_at = training.step()
    isolate, rejoin = ways(scene, how, node, training)
    isolate()
    try:
        if how != "stopped":
            until(lambda: training.step() > cut_at + 1, f"the ranks train on; they were at step {cut_at}")
        newer = scene.until(
            job_id, lambda s: s.epoch > first.epoch and s.state is JobState.RUNNING and s.last_checkpoint != first.last_checkpoint
        )
        assert node not in {str(p.node_id) for p in newer.allocation}
        if how == "proxy":
            refused(training)
    finally:
        rejoin()
    until(lambda: nodes(scene.stack)[node] == "ALIVE", lambda: nodes(scene.stack))
    scene.enough(job_id).touch()
    scene.until(job_id, lambda s: s.state is JobState.SUCCEEDED)
    evidence = scene.judged()
    was_lost(evidence, node)
    if how != "stopped":
        assert reported_too_late(evidence, job_id, int(first.epoch)), "nothing of the stale attempt came in late: the test did not test"


def trains_on(scene: Scene, node: str) -> JobStatus:
    """A job that trains on that node and has a checkpoint. One that was moved off before, since a node that had no processor for seconds
    was given up, is not it: another is submitted."""
    while True:
        job_id = on_node(scene, node)
        found = scene.until(job_id, lambda s: moved(s, node) or (s.state is JobState.RUNNING and s.last_checkpoint is not None))
        if not moved(found, node):
            return found
        print(f"{job_id} was moved off {node} before it had a checkpoint: {found.reason}")
        scene.enough(job_id).touch()
        scene.until(job_id, lambda s: s.state is JobState.SUCCEEDED)


def moved(status: JobStatus, node: str) -> bool:
    """Whether a job is, or waits to be, elsewhere than where it began."""
    return int(status.epoch) > 1 or status.state.final or any(str(p.node_id) != node for p in status.allocation)


def on_node(scene: Scene, node: str) -> str:
    """The paced program as a gang of two on that node: all others are closed until it is there."""
    program = programs(scene.folder) / "paced.py"
    program.write_text(PROGRAM)
    others = [other for other in nodes(scene.stack) if other != node]
    until(lambda: nodes(scene.stack)[node] == "ALIVE", lambda: nodes(scene.stack))
    for other in others:
        restricted(scene, "cordon", other)
    job_id = scene.submit(2, "python", str(program), checkpoint=SAVES)
    placed = scene.until(job_id, lambda s: bool(s.allocation))
    for other in others:
        restricted(scene, "uncordon", other)
    assert {str(p.node_id) for p in placed.allocation} == {node}
    return job_id


def restricted(scene: Scene, how: str, node: str) -> None:
    """Closes or opens a node. Asked again where it fails: a registration is in SQL before the scheduler has read it."""
    until(lambda: scene.stack.live.run("node", how, node).code == 0, f"node {node}: {how} fails")


def ways(scene: Scene, how: str, node: str, training: Training) -> tuple[Callable[[], None], Callable[[], None]]:
    """How the node is taken away, and how it comes back.

    The proxy cuts the brokers alone: the stale attempt reaches the object store, and must be refused there. A namespace loses that too.
    """
    if how == "proxy":
        return scene.stack.wire.cut, scene.stack.wire.heal
    if how == "namespace":
        assert scene.namespace is not None
        return scene.namespace.cut, scene.namespace.heal
    ranks = [psutil.Process(pid) for pid in training.rank_pids()]
    agent = psutil.Process(scene.stack.pid(node))

    def stop() -> None:
        for process in (agent, *ranks):
            process.suspend()

    def wake() -> None:
        # The ranks first: the agent, once awake, reads that they are to go and ends them. Only it signs what they ask of the store.
        for rank in ranks:
            rank.resume()
        until(training.saving, lambda: f"the stale attempt saves nothing; it said: {said(training)}")
        agent.resume()

    return stop, wake


def refused(training: Training) -> None:
    """The stale attempt tried to commit, and was told that it may not."""
    until(lambda: STALE in said(training), lambda: f"the stale attempt was not refused; it said: {said(training)}")


def said(training: Training) -> str:
    """What the ranks on this node wrote to their standard error and spools."""
    ranks = [RankPaths(rank) for folder in training.attempts for rank in folder.glob(f"{training.job_id}/*/rank-*")]
    return "\n".join(p.read_text(errors="replace")[-4000:] for rank in ranks for p in (rank.stderr, rank.spool) if p.exists())


def was_lost(evidence: Evidence, node: str) -> None:
    """The detector gave the node up (so that what happened is what was meant to happen)."""
    lost = [r.envelope.event for r in evidence.of(topics.CONTROL, NodeLost)]
    assert any(isinstance(event, NodeLost) and event.node_id == node for event in lost), lost


def reported_too_late(evidence: Evidence, job_id: str, epoch: int) -> bool:
    """Whether a report of that epoch's progress was taken in after a newer one had been allocated."""
    newer = False
    for step in judge_journal.counted(evidence)[PARTITION]:
        if newer and any(k == judge_journal.REPORTED and (d["job_id"], d["epoch"]) == (job_id, epoch) for k, d in step.inputs):
            return True
        newer = newer or any(k == judge_journal.ALLOCATED and d["job_id"] == job_id and d["epoch"] > epoch for k, d in step.decisions)
    return False
