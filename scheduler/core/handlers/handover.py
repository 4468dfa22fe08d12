"""Moves of pools between partitions: the hand-over here, the taking there, and what is passed on meanwhile.

Holds: a hand-over is one record, which holds the pool's whole state; from then on each input about the pool goes on behind that state, in
the order in which it came, so what one sender wrote is handled in its order, and once. A pool that comes back to a partition which it had
left is handled there in that order too: until a fence has come back with nothing redirected behind it, inputs go the long way round.
Never: waits for another partition; moves a pool that does not fit into one record.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from trainhouse.events import CancelJob, ChangeJob, ChangeRefused, Envelope, Event, ForgetNodeKey, JobAdmitted, NodePlacement, ReviewJob
from trainhouse.events.model.decisions import TokenSeen
from trainhouse.events.model.handover import (
    MAX_PART_BYTES,
    MAX_PARTS,
    DetourEnded,
    FenceSent,
    HandoverClosed,
    InputRedirected,
    MovePool,
    PoolFence,
    PoolHandedOver,
    PoolPart,
    PoolPartReceived,
    PoolTaken,
)
from trainhouse.events.model.ids import PoolName
from trainhouse.scheduler.core.errors import BrokenInvariant, StateLost, UnexpectedInput
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.pool_state import packed_parts, pool_state, unpacked
from trainhouse.scheduler.core.state.records import Job
from trainhouse.scheduler.core.state.state import Arriving, ScheduleState

MOVES_SINCE: Final = 9
"""The level from which pools may be moved."""
CLOSED_AFTER_MS: Final = 7 * 86_400_000
"""As long as trainhouse.control keeps its records: no input of before a hand-over is left then."""
_OF_JOBS: Final = (CancelJob, ChangeJob, ReviewJob)


# ---- the partition that a pool leaves


def on_move(draft: Draft, envelope: Envelope) -> None:
    """Hands a pool over to another partition, or refuses to."""
    event = envelope.event
    assert isinstance(event, MovePool)
    refused = _why_not(draft, event)
    if refused:
        _refuse(draft, envelope, event, refused)
        return
    state = draft.state
    data = pool_state(state, event.pool, draft.level)
    parts = packed_parts(data)
    if len(parts) > MAX_PARTS:
        size_mib, most_mib = len(parts) * MAX_PART_BYTES / 1024**2, MAX_PARTS * MAX_PART_BYTES / 1024**2
        why = f"its state has {size_mib:.1f} MiB, packed, and at most {most_mib:.1f} MiB are handed over at once: move it with fewer jobs"
        _refuse(draft, envelope, event, why)
        return
    sha256 = hashlib.sha256(data).hexdigest()
    about = {"pool": event.pool, "move": envelope.id, "to_partition": event.to_partition, "sha256": sha256, "at_ms": draft.now_ms}
    about |= {"reason": event.reason, "user": event.user}
    jobs = sum(1 for job in state.jobs.values() if job.pool == event.pool)
    nodes = len(state.nodes_of_pool.get(event.pool, ()))
    draft.emit(PoolHandedOver.model_validate(about | {"parts": len(parts), "jobs": jobs, "nodes": nodes}))
    for number, part in enumerate(parts):
        place = {"from_partition": state.partition, "number": number, "of": len(parts)}
        draft.emit(PoolPart.model_validate(about | place | {"data": part}))


def _why_not(draft: Draft, event: MovePool) -> str:
    """Returns the reason for which a pool cannot be handed over; empty if it can."""
    state, pool = draft.state, event.pool
    if draft.level < MOVES_SINCE:
        levels = f"its partition is at level {draft.level}, and pools move from level {MOVES_SINCE} on"
        return f"{levels}: run `trainhouse upgrade finish --reason TEXT`, then ask again"
    if pool not in state.pools:
        return f"partition {state.partition} has no such pool"
    if event.to_partition == state.partition:
        return f"it is on partition {state.partition} already"
    moved = state.moved.get(pool)
    if moved is not None and moved.returned:
        return f"it came back from partition {moved.to_partition} just now, and inputs still come by way of it: try again in a few seconds"
    return _shared(state, pool)


def _shared(state: ScheduleState, pool: str) -> str:
    """Names the job with devices of a node that is in another pool than the job, where one of the two is to move; empty if none has."""
    found = [(j, p.node_id) for j in state.active for p in _left(state.jobs[j])]
    found += [(j, p.node_id) for j, claim in state.claims.items() for p in claim.parts]
    found += [(j, node_id) for j, held in state.reservations.items() for node_id in held.node_ids]
    for job_id, node_id in sorted(found):
        of_job, of_node = state.jobs[job_id].pool, state.nodes[node_id].pool
        if of_job != of_node and pool in (of_job, of_node):
            return (
                f"job {job_id} of pool {of_job} has devices of node {node_id}, which is in pool {of_node} by now: wait until the job has "
                f"left it, or cancel it"
            )
    return ""


def _left(job: Job) -> Iterator[NodePlacement]:
    """Yields the placements on which a job still has devices."""
    if job.allotment is not None:
        ended = {e.node_id for e in job.allotment.ended}
        yield from (p for p in job.allotment.placements if p.node_id not in ended)


def _refuse(draft: Draft, envelope: Envelope, event: MovePool, why: str) -> None:
    reason = f"pool {event.pool} cannot be moved to partition {event.to_partition}: {why}"
    draft.emit(ChangeRefused(pool=event.pool, event_id=envelope.id, reason=reason, user=event.user, refused_at_ms=draft.now_ms))


def pool_of(state: ScheduleState, envelope: Envelope) -> str | None:
    """The pool that an input is about; None where it names none that is known."""
    event = envelope.event
    if isinstance(event, JobAdmitted):
        return str(event.spec.pool)
    named = getattr(event, "pool", None)
    if named is not None:
        return str(named)
    job_id = str(getattr(event, "job_id", None) or "")
    job = state.jobs.get(job_id)
    if job is not None:
        return str(job.pool)
    if envelope.pool is not None and isinstance(event, _OF_JOBS):
        return envelope.pool
    return next((pool for pool, moved in state.moved.items() if job_id and job_id in moved.jobs), None)


def has_left(state: ScheduleState, job_id: str) -> bool:
    """Whether a job went to another partition with its pool."""
    return job_id not in state.jobs and any(job_id in moved.jobs for moved in state.moved.values())


def on_its_way(states: Iterable[ScheduleState], job_id: str) -> tuple[str, int, int] | None:
    """Returns the pool of a job, with the partition that handed it over and the one that has yet to take it; None of any other job."""
    known = list(states)
    here = {str(name) for state in known for name, pool in state.pools.items() if pool.created}
    moves = [(m.at_ms, p, s.partition, m.to_partition) for s in known for p, m in s.moved.items() if job_id in m.jobs and not m.returned]
    _, pool, from_partition, to_partition = max(moves, default=(0, "", -1, -1))
    return (pool, from_partition, to_partition) if pool and pool not in here else None


def leads_elsewhere(draft: Draft, item: Input) -> str | None:
    """The pool of an input that goes on to another partition; None for one that is handled here."""
    if not draft.state.moved or item.offset is None:
        return None
    pool = pool_of(draft.state, item.envelope)
    return pool if pool in draft.state.moved else None


def redirect(draft: Draft, item: Input, pool: str) -> None:
    """Passes an input on."""
    event = item.event
    forgets = event.node_id if isinstance(event, ForgetNodeKey) else None
    to_partition = draft.state.moved[pool].to_partition
    draft.emit(InputRedirected(offset=item.offset or 0, pool=PoolName(pool), to_partition=to_partition, forget_key=forgets))


def close_due(draft: Draft) -> None:
    """At a tick: forgets what went along with pools that left long ago."""
    for pool in sorted(draft.state.moved):
        moved = draft.state.moved[pool]
        if not moved.closed and not moved.returned and draft.now_ms - moved.at_ms >= CLOSED_AFTER_MS:
            draft.emit(HandoverClosed.model_validate({"pool": pool, "move": moved.move}))


# ---- the partition that a pool comes to


def is_repeat(draft: Draft, envelope: Envelope) -> bool:
    """Whether this effect of another partition's scheduler was seen before; notes its token if not."""
    order = envelope.order
    if order is None:
        return False
    if order.partition == draft.state.partition:
        raise UnexpectedInput(f"{envelope.type} ({envelope.id}) is this partition's own, and for another one")
    if (order.seq, order.ordinal) <= draft.state.scheduler_tokens.get(order.partition, (-1, -1)):
        return True
    draft.emit(TokenSeen(partition=order.partition, seq=order.seq, ordinal=order.ordinal, by_scheduler=True))
    return False


def on_part(draft: Draft, part: PoolPart) -> None:
    """Keeps a part; with the last one the pool is here.

    Raises UnexpectedInput and BrokenInvariant for what is no part that is due, and StateLost where this program cannot take a pool in that
    was handed over whole: refused, it would be lost; so the partition halts, and goes on with a program that can.
    """
    arriving = draft.state.arriving.get(part.pool, Arriving(part.move, part.from_partition, ()))
    if part.number == 0:
        arriving = Arriving(part.move, part.from_partition, ())
    # Of a pool that is not here, there may be nodes: an agent that was given another partition than its pool's registers all the same.
    here = draft.state.pool(part.pool).created
    if part.to_partition != draft.state.partition:
        raise UnexpectedInput(f"part {part.number} of pool {part.pool} is for partition {part.to_partition}, not {draft.state.partition}")
    if arriving.move != part.move or len(arriving.parts) != part.number or here:
        raise UnexpectedInput(
            f"part {part.number} of {part.of} of pool {part.pool}, which partition {part.from_partition} handed over ({part.move}), "
            f"was not due: the pool is {'here' if here else f'at part {len(arriving.parts)}'}"
        )
    if part.number + 1 < part.of:
        draft.emit(PoolPartReceived(part=part))
        return
    data = unpacked((*arriving.parts, part.data))
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise BrokenInvariant(
            f"the parts of pool {part.pool} are not those that partition {part.from_partition} handed over: their hash differs"
        )
    try:
        records = draft.state.pool_reader.read(data)
        draft.emit(PoolPartReceived(part=part))
        about = part.model_dump(include={"pool", "move", "from_partition", "reason", "user"})
        about |= {"partition": draft.state.partition, "jobs": len(records.jobs), "nodes": len(records.nodes)}
        about |= {"at_ms": draft.now_ms}
        draft.emit(PoolTaken.model_validate(about))
    except Exception as error:
        raise StateLost(
            f"pool {part.pool} of partition {part.from_partition} cannot be taken in: {type(error).__name__}: {error}; update this program"
        ) from error
    _send_fence(draft, part.pool)


def read_ahead(state: ScheduleState, events: Iterable[Event]) -> Callable[[], Callable[[], None]] | None:
    """Returns a function that reads the pool which is whole with these inputs, and gives one that keeps it for `on_part`."""
    reader, parts = state.pool_reader, {pool: arriving.parts for pool, arriving in state.arriving.items()}
    for part in events:
        if not isinstance(part, PoolPart):
            continue
        came = (*(parts.get(part.pool, ()) if part.number else ()), part.data)
        if part.number + 1 == part.of == len(came):
            return lambda: reader.ahead(unpacked(came))
        parts[part.pool] = came
    return None


def on_fence(draft: Draft, fence: PoolFence) -> None:
    """The fence is back: the detour ends, unless something went round behind it; then another fence follows that."""
    moved = draft.state.moved.get(fence.pool)
    if moved is None or not moved.returned or moved.move != fence.move:
        return
    if moved.redirected:
        _send_fence(draft, fence.pool)
    else:
        draft.emit(DetourEnded(pool=fence.pool, move=fence.move))


def _send_fence(draft: Draft, pool: PoolName) -> None:
    moved = draft.state.moved.get(pool)
    if moved is not None:
        draft.emit(FenceSent.model_validate({"pool": pool, "move": moved.move, "to_partition": moved.to_partition}))
