"""The placement stage: gives waiting jobs their gangs, as the policy says, and turns the policy's own failure into a freeze.

Holds: runs after every input, so where one batch ends and the next begins changes nothing. A policy that raises stops placement on this
partition, and nothing else: it is tried again under other code, after a person's change, or after RETRY_FROZEN_MS.
"""

from typing import Final

from trainhouse.events import Epoch
from trainhouse.events.decisions import (
    DevicesFreed,
    JobForgotten,
    JobQueued,
    JobRequeued,
    JobRetuned,
    NodeJoined,
    PlacementResumed,
)
from trainhouse.events.gang import GangAllocated
from trainhouse.events.journal import MAX_REASON_CHARS, PlacementFrozen
from trainhouse.events.phases import Pending
from trainhouse.scheduler.core.draft import Draft
from trainhouse.scheduler.core.policy import Placed, Policy, WhyNot
from trainhouse.scheduler.core.records import Job
from trainhouse.scheduler.core.requests import refuse_if_impossible

RETRY_FROZEN_MS: Final = 60_000
EXPLAIN_EVERY_MS: Final = 5_000
CAUSES: Final = (JobQueued, JobRequeued, JobRetuned, JobForgotten, DevicesFreed, NodeJoined)


def place_waiting(draft: Draft, policy: Policy, decide_version: int, by_person: bool) -> None:
    """Places what can be placed now. `by_person`: the input was a person's change, worth another try after a freeze."""
    frozen = draft.state.frozen
    again = frozen is None or frozen.decide_version != decide_version or draft.now_ms - frozen.at_ms >= RETRY_FROZEN_MS
    if not (again or by_person):
        return
    try:
        for pool in sorted({p for p, _ in draft.state.queues}):
            _place_pool(draft, policy, pool)
    except Exception as error:
        reason = f"placement by {policy.name} raised {type(error).__name__}: {error}"
        draft.emit(PlacementFrozen(reason=reason[:MAX_REASON_CHARS], decide_version=decide_version))
        return
    if frozen is not None:
        draft.emit(PlacementResumed(decide_version=decide_version))


def _place_pool(draft: Draft, policy: Policy, pool: str) -> None:
    """Serves a pool's queues in order until each is empty or blocked."""
    blocked: frozenset[str] = frozenset()
    queues = {t: list(q) for (p, t), q in sorted(draft.state.queues.items()) if p == pool}
    nexts = dict.fromkeys(queues, 0)
    while True:
        heads = [(queues[t][at], t) for t, at in nexts.items() if t not in blocked and at < len(queues[t])]
        if not heads:
            return
        (_, _, job_id), device_type = min(heads)
        nexts[device_type] += 1
        job = draft.state.jobs[job_id]
        if not isinstance(job.phase, Pending) or job.phase.not_before_ms > draft.now_ms:
            continue
        answer = policy.place(draft.state, job, blocked)
        if isinstance(answer, Placed):
            _allocate(draft, job, answer)
        elif not refuse_if_impossible(draft, job):
            _explain(draft, job, answer)
            if answer.blocks is None:
                return
            blocked |= answer.blocks


def _explain(draft: Draft, job: Job, answer: WhyNot) -> None:
    """Tells the user of the first job that waits what it waits for: at once, then when it changed, at most once in EXPLAIN_EVERY_MS."""
    new = job.attempt == 0 and job.status_seq <= 1
    if job.reason != answer.reason and (new or draft.now_ms - job.status_at_ms >= EXPLAIN_EVERY_MS):
        draft.move(job.job_id, job.phase, answer.reason)


def _allocate(draft: Draft, job: Job, placed: Placed) -> None:
    draft.emit(
        GangAllocated(
            job_id=job.job_id,
            attempt=job.attempt,
            epoch=Epoch(job.epoch + 1),
            pool=job.pool,
            spec=job.spec,
            spec_sha256=job.spec_sha256,
            placements=placed.placements,
            master_address=placed.master_address,
            master_port=placed.master_port,
        )
    )
    draft.publish(job.job_id)
