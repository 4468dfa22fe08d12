"""From the machine's records to entries of the book: a waiting job, a running one, a placement in positions of nodes.

Holds: a function of the records alone; one rule for folding and for loading.
Never: changes anything.
"""

from collections.abc import Mapping, Sequence

from trainhouse.events import NodePlacement
from trainhouse.events.model.phases import Allotment, Checkpointing, Pending, Stopping
from trainhouse.events.model.policy import RunTimes
from trainhouse.events.model.pool import ClaimedPart, DevicesClaimed, StartReserved
from trainhouse.scheduler.core.cluster.shape import Part, Placement, Shape
from trainhouse.scheduler.core.cycle.release_forecast import expected_end_ms
from trainhouse.scheduler.core.queue.entries import Claim, Reservation, Running, Waiting
from trainhouse.scheduler.core.state.demand import device_share, kin_of
from trainhouse.scheduler.core.state.records import Job, Node
from trainhouse.scheduler.core.state.supply import positions


def waiting_of(job: Job, shape: Shape, run_times: RunTimes, prefer: int = 0, shun: int = 0) -> Waiting:
    """The job as one that waits. `prefer`, `shun`: masks of nodes."""
    phase = job.phase
    return Waiting(
        job_id=str(job.job_id),
        number=job.number,
        team=job.spec.team,
        priority=job.priority,
        shape=shape,
        submitted_ms=job.queued_at_ms,
        since_ms=job.waits_since_ms,
        not_before_ms=phase.not_before_ms if isinstance(phase, Pending) else 0,
        run_ms=_run_ms(job, run_times),
        ran_ms=job.tally.ran_ms,
        preemptible=job.spec.preemptible,
        kin=kin_of(job.spec),
        prefer=prefer,
        shun=shun,
        project=job.spec.project,
    )


def _run_ms(job: Job, run_times: RunTimes) -> int | None:
    """Returns the expected remaining run time: the rest of its limit or the learned estimate, whichever is less; None if unknown."""
    limit_s = job.limits.run_time_s
    left_ms = None if limit_s is None else max(1, round(limit_s * 1000) - job.tally.ran_ms)
    if run_times is not RunTimes.HISTORY or job.expected_ms is None:
        return left_ms
    return job.expected_ms if left_ms is None else min(left_ms, job.expected_ms)


def running_of(job: Job, allotment: Allotment, shape: Shape, placement: Placement, run_times: RunTimes) -> Running:
    """The job as one that has devices; without any left (its exits have yet to be reported) it counts as leaving."""
    entry, began_ms = waiting_of(job, shape, run_times), allotment.allocated_at_ms
    saved_ms = job.saved_at_ms
    return Running(
        job=entry,
        placement=placement,
        started_ms=began_ms,
        ends_ms=expected_end_ms(entry, sum(len(p.devices) for p in allotment.placements), began_ms),
        saved_ms=began_ms if saved_ms is None else max(began_ms, saved_ms),
        leaving_ms=_leaving_ms(job) if placement else began_ms,
        finishing=bool(allotment.clean_ranks or allotment.ended),
        done=job.awaits_answers,
    )


def _leaving_ms(job: Job) -> int | None:
    """Returns the latest time at which the job's devices come free, or None if it was not asked to leave them."""
    match job.phase:
        case Checkpointing(deadline_ms=deadline_ms):
            return deadline_ms + round(job.limits.grace_s * 1000)
        case Stopping(remind_at_ms=remind_at_ms):
            return remind_at_ms
        case _:
            return None


def placement_of(job: Job, parts: Sequence[NodePlacement], nodes: Mapping[str, Node]) -> Placement:
    """A gang's devices as positions; a device that its node does not report any more has none."""
    share = device_share(job.spec)
    return tuple(_part(p, nodes[p.node_id], share) for p in parts)


def _part(part: NodePlacement | ClaimedPart, node: Node, share: int) -> Part:
    at = positions(node)
    return Part(node.index, sum(1 << at[d] for d in part.devices if d in at), share)


def claim_of(claim: DevicesClaimed, nodes: Mapping[str, Node]) -> Claim:
    """A claim in positions."""
    parts = tuple(_part(p, nodes[p.node_id], p.device_share) for p in claim.parts)
    return Claim(str(claim.job_id), parts, tuple(str(v) for v in claim.victims), claim.made_at_ms)


def reservation_of(held: StartReserved, nodes: Mapping[str, Node]) -> Reservation:
    """A held start in a bit mask of nodes."""
    mask = 0
    for node_id in held.node_ids:
        mask |= 1 << nodes[node_id].index
    return Reservation(str(held.job_id), held.start_ms, mask, held.made_at_ms)
