"""Fold of decisions about nodes.

Holds: as `fold` does, which calls these.
Never: decides.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from trainhouse.events import Event, NodeDesiredState, NodeKeyed, NodeNoticed, NodeOrders
from trainhouse.events.model.decisions import DevicesFreed, NodeForgotten, NodeGivenUp, NodeJoined, TrustChanged
from trainhouse.events.model.pool import NodeRestricted
from trainhouse.scheduler.core.state.records import Node, NodeHealth
from trainhouse.scheduler.core.state.state import ScheduleState


def _freed(state: ScheduleState, now_ms: int, d: DevicesFreed) -> None:
    node = state.node(d.node_id)
    holds = tuple(h for h in node.holds if not (h.job_id == d.job_id and h.epoch == d.epoch))
    state.put_node(node.model_copy(update={"holds": holds}), now_ms)


def _joined(state: ScheduleState, now_ms: int, d: NodeJoined) -> None:
    old = state.nodes.get(d.node_id)
    had = {x.device_id for x in old.devices} if old is not None and old.pool == d.pool else set()
    pool = state.pool(d.pool)
    grown = now_ms if any(x.device_id not in had for x in d.devices) else pool.grown_at_ms
    state.pools[d.pool] = replace(pool, grown_at_ms=grown, judged=False)
    fields = {name: getattr(d, name) for name in NodeJoined.model_fields}
    if old is None:
        joined = Node(**fields, index=state.next_index())
    else:
        same_start = (old.boot_id, old.incarnation) == (d.boot_id, d.incarnation)
        more = {"health": NodeHealth.UP, "lost_at_ms": None, "notice": old.notice if same_start else None}
        joined = old.model_copy(update=fields | more)
    if d.public_key:
        state.kept_keys.drop(d.node_id)
    state.put_node(joined, now_ms)


def _desired(state: ScheduleState, now_ms: int, d: NodeDesiredState) -> None:
    state.put_node(state.node(d.node_id).model_copy(update={"orders_due": d.keeps}), now_ms)


def _ordered(state: ScheduleState, now_ms: int, d: NodeOrders) -> None:
    node, out = state.node(d.node_id), {(a.job_id, a.epoch) for a in d.allocations}
    # An attempt that is over meanwhile stands before those that went out: orders are given in their order.
    last = max((n for n, r in enumerate(node.orders_due) if (r.job_id, r.epoch) in out), default=len(node.orders_due) - 1)
    state.put_node(node.model_copy(update={"orders_due": node.orders_due[last + 1 :]}), now_ms)


def _given_up(state: ScheduleState, now_ms: int, d: NodeGivenUp) -> None:
    state.put_node(state.node(d.node_id).model_copy(update={"health": NodeHealth.LOST, "lost_at_ms": now_ms}), now_ms)


def _noticed(state: ScheduleState, now_ms: int, d: NodeNoticed) -> None:
    state.put_node(state.node(d.node_id).model_copy(update={"notice": d}), now_ms)


def _forgotten(state: ScheduleState, now_ms: int, d: NodeForgotten) -> None:
    if d.public_key:
        state.kept_keys.put(d.node_id, d.pool, d.public_key)
    state.drop_node(d.node_id, now_ms)


def _keyed(state: ScheduleState, now_ms: int, d: NodeKeyed) -> None:
    if d.node_id not in state.nodes:
        state.kept_keys.drop(d.node_id)
        return
    state.put_node(state.node(d.node_id).model_copy(update={"public_key": d.public_key}), now_ms)


def _trust(state: ScheduleState, now_ms: int, d: TrustChanged) -> None:
    state.put_node(state.node(d.node_id).model_copy(update={"trust": d.trust}), now_ms)


def _restricted(state: ScheduleState, now_ms: int, d: NodeRestricted) -> None:
    fields = {"restriction": d.restriction, "restricted_by": d.by, "restricted_for": d.reason}
    state.put_node(state.node(d.node_id).model_copy(update=fields), now_ms)


NODE_STEPS: Final[dict[type[Event], Callable[[ScheduleState, int, Any], None]]] = {
    DevicesFreed: _freed,
    NodeJoined: _joined,
    NodeDesiredState: _desired,
    NodeOrders: _ordered,
    NodeGivenUp: _given_up,
    NodeForgotten: _forgotten,
    NodeKeyed: _keyed,
    NodeNoticed: _noticed,
    TrustChanged: _trust,
    NodeRestricted: _restricted,
}
