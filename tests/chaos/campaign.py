"""A whole campaign: an undisturbed run, disturbed ones with the same spec, and the verdict over all of them.

Holds: the disturbed runs must end with the undisturbed one's weights, bit for bit, and every rule of the judge must hold.
"""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.chaos import judge
from tests.chaos.drive import Done, Training, carry_out
from tests.chaos.evidence import Evidence, gather
from tests.chaos.faults import Fault
from tests.chaos.stack import SUCCEEDED, ChaosStack
from trainhouse.events import JobSpec, LogLines, topics

WEIGHTS = re.compile(r"weights sha256 ([0-9a-f]{64})")
SETTLE_S = 60.0


@dataclass
class Verdict:
    """What was done and what the judge says."""

    done: list[Done] = field(default_factory=list)
    weights: dict[str, str] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    wall_s: float = 0.0


def spec_of(steps: int) -> JobSpec:
    """The example job, small, with checkpoints often enough to be caught in one, and restarts without end."""
    arguments = ("--steps", str(steps), "--width", "64", "--checkpoint-every", "20")
    return JobSpec.model_validate(
        {
            "name": "chaos",
            "gang": 2,
            "seed": 1,
            "runtime": {"command": ("python", "-m", "trainhouse.workers.examples.gpt", *arguments)},
            "limits": {"restarts": 1000},
        }
    )


def run(stack: ChaosStack, plan: list[list[Fault]], steps: int, name: str = "chaos") -> Verdict:
    """Carries the plan out, job by job. Blocks for minutes."""
    begin = time.monotonic()
    verdict = Verdict()
    spec = spec_of(steps)
    jobs = [f"{name}-calm", *(f"{name}-{i}" for i in range(len(plan)))]
    for job_id, faults in zip(jobs, [[], *plan], strict=True):
        stack.submit(job_id, spec)
        training = Training(stack.attempts, job_id)
        verdict.done += carry_out(faults, training, stack.pid, stack.ended(job_id))
        status = stack.wait(job_id, 300)
        if status.state is not SUCCEEDED:
            verdict.complaints.append(f"{job_id} ended {status.state}: {status.reason}")
    evidence = _settled(stack)
    verdict.weights = {job: found for job in jobs if (found := _weights(evidence, job))}
    verdict.complaints += list(_complaints(stack, evidence, verdict.weights, jobs))
    verdict.wall_s = time.monotonic() - begin
    return verdict


def _settled(stack: ChaosStack) -> Evidence:
    """The evidence once logs and metrics have stopped coming: the judge's file rules hold, or the time to settle is over."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        evidence = gather(stack.kafka, stack.kafka.partitions)
        whole = not any(judge.spools_whole(evidence, stack.attempts)) and not any(judge.logs_whole(evidence, stack.attempts))
        if whole or time.monotonic() > deadline:
            return evidence
        time.sleep(1.0)


def _complaints(stack: ChaosStack, evidence: Evidence, weights: dict[str, str], jobs: list[str]) -> Iterable[str]:
    calm = weights.get(jobs[0])
    for job in jobs:
        if weights.get(job) is None or weights[job] != calm:
            yield f"{job} ended with weights {weights.get(job)}, undisturbed they are {calm}"
    yield from judge.final_states(evidence)
    yield from judge.effects_once(evidence)
    yield from judge.one_gang_per_device(evidence)
    yield from judge.spools_whole(evidence, stack.attempts)
    yield from judge.logs_whole(evidence, stack.attempts)
    yield from judge.checkpoints_stand(evidence, stack.object_exists)
    yield from _sql_agrees(stack, evidence)
    replay = stack.live.run("replay", "--verify")
    if replay.code != 0:
        yield f"replay --verify: {replay.code}: {replay.out[-1000:]}{replay.err[-1000:]}"


def _sql_agrees(stack: ChaosStack, evidence: Evidence) -> Iterable[str]:
    """Rows of step_metrics, rank by rank, are as many as the different points of the topic; jobs say what the status topic says."""
    expected = judge.points_per_rank(evidence)
    deadline = time.monotonic() + SETTLE_S
    while True:
        rows = stack.rows("SELECT job_id, epoch, rank, metric, count() AS points FROM step_metrics GROUP BY job_id, epoch, rank, metric")
        found = {(r["job_id"], int(r["epoch"]), int(r["rank"]), r["metric"]): int(r["points"]) for r in rows}
        states = {r["job_id"]: r["state"] for r in stack.rows("SELECT job_id, state FROM jobs")}
        said = {job_id: str(status.state) for job_id, status in stack.statuses().items()}
        if (found == expected and states == said) or time.monotonic() > deadline:
            break
        time.sleep(1.0)
    for key in sorted(set(expected) | set(found)):
        if expected.get(key) != found.get(key):
            yield f"SQL has {found.get(key)} points of {key}, the topic {expected.get(key)}"
    for job_id in sorted(set(states) | set(said)):
        if states.get(job_id) != said.get(job_id):
            yield f"SQL says that {job_id} is {states.get(job_id)}, its status {said.get(job_id)}"


def _weights(evidence: Evidence, job_id: str) -> str | None:
    """What the job printed last about its weights."""
    found = None
    for record in evidence.of(topics.LOGS, LogLines):
        event = record.envelope.event
        if isinstance(event, LogLines) and event.job_id == job_id:
            for text in event.lines:
                match = WEIGHTS.search(text)
                found = match.group(1) if match else found
    return found
