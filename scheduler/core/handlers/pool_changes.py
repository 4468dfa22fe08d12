"""Requests of operators about a pool: another policy, or a node closed, drained or opened.

Holds: a change is judged against the pool's nodes before it counts; one that is refused says what to do, and changes nothing. Asking again
for what is so already does nothing. A closed node stays closed until it is opened, however often it registers. Opening a
node clears the failures that were counted against it.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from trainhouse.events import (
    ChangeRefused,
    CordonNode,
    DrainNode,
    Envelope,
    Event,
    ForgetNodeKey,
    MovePool,
    NodeKeyed,
    NodeRestricted,
    PolicyApplied,
    PolicyChanged,
    QuarantineNode,
    Restriction,
    ReviewJob,
    SchedulingPolicy,
    UncordonNode,
)
from trainhouse.events.model.phases import StopCause, StopKind, Stopping
from trainhouse.events.model.policy import RunTimes
from trainhouse.events.runtime.yaml_lines import line_of
from trainhouse.scheduler.core.attempts.eviction import all_leave, jobs_on
from trainhouse.scheduler.core.attempts.node_trust import forget, leave_to_people
from trainhouse.scheduler.core.attempts.stopping import stop
from trainhouse.scheduler.core.handlers.handover import on_move
from trainhouse.scheduler.core.handlers.review import on_review
from trainhouse.scheduler.core.queue.policy_check import check_against
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.records import Node

E = TypeVar("E", bound=Event)
MAX_LISTED: Final = 20
MAX_LINED_CHARS: Final = 20_000
"""Of a policy's text in which lines are looked up: it is parsed for that."""


def on_policy(draft: Draft, envelope: Envelope) -> None:
    """Another policy for a pool, if it can be obeyed there."""
    event = _of(envelope, PolicyChanged)
    if draft.state.pool(event.pool).policy_version and draft.state.book.policy(event.pool) == event.policy:
        return
    wrong = _why_not(draft, event.pool, event.policy, event.text)
    if wrong:
        _refuse(draft, envelope, wrong)
        return
    draft.emit(
        PolicyApplied(
            pool=event.pool,
            policy=event.policy,
            text=event.text,
            version=draft.state.pool(event.pool).policy_version + 1,
            user=event.user,
            reason=event.reason,
            applied_at_ms=draft.now_ms,
        )
    )


def _why_not(draft: Draft, pool: str, policy: SchedulingPolicy, text: str) -> str:
    """Returns the parts of a policy that these nodes cannot obey, with lines of its text; empty for a pool without nodes."""
    if policy.run_times is RunTimes.TRUE:
        return "run_times: true ones are known in simulations only; use history or limits"
    known = {d.type for node in draft.state.in_pool(pool) for d in node.devices}
    faults = check_against(policy, known, draft.state.book.cluster.levels(pool) if known else ())
    lined = text if len(text) <= MAX_LINED_CHARS else ""
    return "; ".join(fault.text(line_of(lined, fault.field)) for fault in faults[:MAX_LISTED])


def on_cordon(draft: Draft, envelope: Envelope) -> None:
    """Closes a node to new gangs."""
    event = _of(envelope, CordonNode)
    node = _node(draft, envelope, event.pool, event.node_id)
    if node is not None:
        _restrict(draft, node, Restriction.CORDONED, event.reason, event.user)


def on_uncordon(draft: Draft, envelope: Envelope) -> None:
    """Opens a node again."""
    event = _of(envelope, UncordonNode)
    node = _node(draft, envelope, event.pool, event.node_id)
    if node is not None:
        _restrict(draft, node, Restriction.NONE, event.reason, event.user)
        forget(draft, draft.state.node(node.node_id), f"opened{_reason_suffix(event.reason, event.user)}")


def on_drain(draft: Draft, envelope: Envelope) -> None:
    """Closes a node and asks its gangs to save and leave within the deadline."""
    event = _of(envelope, DrainNode)
    node = _node(draft, envelope, event.pool, event.node_id)
    if node is None:
        return
    deadline_ms = draft.now_ms + round(event.deadline_s * 1000)
    _restrict(draft, node, Restriction.DRAINING, event.reason, event.user, deadline_ms)
    cause = StopCause(kind=StopKind.DRAINED, reason=f"node {node.node_id} is drained{_reason_suffix(event.reason, event.user)}")
    all_leave(draft, node, cause, deadline_ms)


def on_quarantine(draft: Draft, envelope: Envelope) -> None:
    """Closes a node that is not to be trusted and stops its gangs at once: a save there would not be trusted either."""
    event = _of(envelope, QuarantineNode)
    node = _node(draft, envelope, event.pool, event.node_id)
    if node is None:
        return
    _restrict(draft, node, Restriction.QUARANTINED, event.reason, event.user)
    cause = StopCause(kind=StopKind.LOST, reason=f"node {node.node_id} is in quarantine{_reason_suffix(event.reason, event.user)}")
    for job_id in jobs_on(draft, node):
        job = draft.state.job(job_id)
        if not isinstance(job.phase, Stopping):
            stop(draft, job, cause)


def on_forget_key(draft: Draft, envelope: Envelope) -> None:
    """Lets the next key with which a node registers speak for it."""
    event = _of(envelope, ForgetNodeKey)
    if event.node_id not in draft.state.nodes and draft.state.kept_keys.is_of_pool(event.node_id, event.pool):
        bound = True  # the node itself is forgotten
    else:
        node = _node(draft, envelope, event.pool, event.node_id)
        bound = node is not None and bool(node.public_key)
    if bound:
        draft.emit(NodeKeyed(node_id=event.node_id, pool=event.pool, user=event.user, reason=event.reason, at_ms=draft.now_ms))


def _restrict(draft: Draft, node: Node, to: Restriction, reason: str, by: str, deadline_ms: int | None = None) -> None:
    as_it_is = not node.trust.closed_devices if to is Restriction.NONE else (node.restricted_for, node.restricted_by) == (reason, by)
    if node.restriction is to and as_it_is:
        return
    draft.emit(
        NodeRestricted(
            node_id=node.node_id,
            pool=node.pool,
            restriction=to,
            reason=reason,
            by=by,
            at_ms=draft.now_ms,
            deadline_ms=deadline_ms,
        )
    )
    if to is not Restriction.NONE:
        leave_to_people(draft, draft.state.node(node.node_id))


def _node(draft: Draft, envelope: Envelope, pool: str, node_id: str) -> Node | None:
    """The node that a request names; refuses the request when the pool has none of that name."""
    node = draft.state.nodes.get(node_id)
    if node is not None and node.pool == pool:
        return node
    known = draft.state.nodes_of_pool.get(pool, ())
    listed = ", ".join(known[:MAX_LISTED]) + (f" and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else "")
    where = f"; it is in pool {node.pool}" if node is not None else ""
    _refuse(draft, envelope, f"pool {pool} has no node {node_id}{where}; its nodes: {listed or 'none yet'}. Name one of them")
    return None


def _refuse(draft: Draft, envelope: Envelope, reason: str) -> None:
    event: Any = envelope.event
    draft.emit(ChangeRefused(pool=event.pool, event_id=envelope.id, reason=reason, user=event.user, refused_at_ms=draft.now_ms))


def _reason_suffix(reason: str, user: str) -> str:
    return (f": {reason}" if reason else "") + ("" if user == "unknown" else f" (by {user})")


def _of(envelope: Envelope, kind: type[E]) -> E:
    assert isinstance(envelope.event, kind)
    return envelope.event


CHANGES: Final[dict[type[Event], Callable[[Draft, Envelope], None]]] = {
    PolicyChanged: on_policy,
    CordonNode: on_cordon,
    UncordonNode: on_uncordon,
    DrainNode: on_drain,
    QuarantineNode: on_quarantine,
    ForgetNodeKey: on_forget_key,
    ReviewJob: on_review,
    MovePool: on_move,
}
