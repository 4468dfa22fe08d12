"""Fold of decisions about pools that move between partitions.

Holds: as `fold` does, which calls these. A pool that arrives has the numbers and indexes of this partition: its jobs come after those that
are here, in their order, and its nodes get the lowest vacant indexes.
Never: decides.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from trainhouse.events import Event, PoolName
from trainhouse.events.model.handover import (
    DetourEnded,
    FenceSent,
    HandoverClosed,
    InputRedirected,
    PoolHandedOver,
    PoolPartReceived,
    PoolTaken,
)
from trainhouse.scheduler.core.queue.estimates import Estimates
from trainhouse.scheduler.core.state.demand import shape_of
from trainhouse.scheduler.core.state.key_bindings import KeptKeys
from trainhouse.scheduler.core.state.pool_state import unpacked
from trainhouse.scheduler.core.state.records import Job
from trainhouse.scheduler.core.state.state import Arriving, MovedPool, Pool, ScheduleState


def _handed_over(state: ScheduleState, now_ms: int, d: PoolHandedOver) -> None:
    nodes = [state.nodes[n] for n in state.nodes_of_pool.get(d.pool, ())]
    keys = state.kept_keys.of_pool(d.pool)
    state.kept_keys.remove(keys)
    for node in nodes:
        if node.public_key:
            keys.put(node.node_id, d.pool, node.public_key)
    public_keys = frozenset(n.public_key for n in nodes if n.public_key)
    jobs = {j: _speak_for(job) for j, job in state.jobs.items() if job.pool == d.pool}
    state.drop_pool(d.pool, now_ms)
    state.moved[d.pool] = MovedPool(d.to_partition, d.move, now_ms, jobs, keys, public_keys)


def _speak_for(job: Job) -> tuple[str, ...]:
    """The nodes that a job runs on, or ran on."""
    gang = () if job.allotment is None else job.allotment.placements
    return tuple(sorted({*(str(p.node_id) for p in gang), *map(str, job.ran_on)}))


def _redirected(state: ScheduleState, now_ms: int, d: InputRedirected) -> None:
    moved = state.moved[d.pool]
    if d.forget_key is not None:
        keys, name = moved.keys.fork(), str(d.forget_key)
        keys.drop(name)
        moved = replace(moved, keys=keys, public_keys=frozenset(k for k in moved.public_keys if moved.keys.key_of(name, k) != k))
    state.moved[d.pool] = replace(moved, redirected=moved.returned)


def _closed(state: ScheduleState, now_ms: int, d: HandoverClosed) -> None:
    moved = state.moved[d.pool]
    state.moved[d.pool] = replace(moved, jobs={}, keys=KeptKeys(), public_keys=frozenset(), closed=True)


def _received(state: ScheduleState, now_ms: int, d: PoolPartReceived) -> None:
    part = d.part
    before = state.arriving[part.pool].parts if part.number else ()
    state.arriving[part.pool] = Arriving(part.move, part.from_partition, (*before, part.data))


def _taken(state: ScheduleState, now_ms: int, d: PoolTaken) -> None:
    pool, came = str(d.pool), state.pool_reader.read(unpacked(state.arriving.pop(d.pool).parts))
    left = state.moved.get(pool)
    if left is not None:
        state.moved[pool] = MovedPool(left.to_partition, d.move, now_ms, returned=True)
    state.pools[pool] = Pool(**{**came.pools[pool], "name": PoolName(pool)})
    if pool in came.policies:
        state.book.set_policy(pool, came.policies[pool], now_ms)
    state.kept_keys.adopt(KeptKeys(came.kept_keys))
    for node in came.nodes:
        name, here = node.node_id, state.nodes.get(node.node_id)
        if node.public_key:
            state.kept_keys.drop(name)
        if here is None or str(here.pool) == pool:
            index = state.next_index() if here is None else here.index
            state.put_node(node.model_copy(update={"index": index, "relayed": True}), now_ms)
        else:
            # It has registered in another pool since; what it held for this one it holds still.
            holds = {(h.job_id, h.epoch): h for h in (*node.holds, *here.holds)}
            state.put_node(here.model_copy(update={"holds": tuple(holds[k] for k in sorted(holds))}), now_ms)
    state.book.usage.restore(row for row in came.usage if row[0] == pool)
    state.book.estimates.adopt(Estimates.from_rows(came.estimates))
    state.index_forgetting()
    for job in came.jobs:
        state.restore_job(job.model_copy(update={"number": state.next_number}))
        state.next_number += 1
        state.book.cluster.mix.seen(shape_of(job.spec))
    for claim in came.claims:
        state.put_claim(claim)
    for held in came.reservations:
        state.put_reservation(held)
    state.book.marks.change(pool)


def _fence_sent(state: ScheduleState, now_ms: int, d: FenceSent) -> None:
    state.moved[d.pool] = replace(state.moved[d.pool], redirected=False)


def _detour_ended(state: ScheduleState, now_ms: int, d: DetourEnded) -> None:
    del state.moved[d.pool]


MOVE_STEPS: Final[dict[type[Event], Callable[[ScheduleState, int, Any], None]]] = {
    PoolHandedOver: _handed_over,
    InputRedirected: _redirected,
    HandoverClosed: _closed,
    PoolPartReceived: _received,
    PoolTaken: _taken,
    FenceSent: _fence_sent,
    DetourEnded: _detour_ended,
}
