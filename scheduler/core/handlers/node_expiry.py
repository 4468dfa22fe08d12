"""Nodes that are gone for good: lost for as long as the pool's policy says, and not in use.

Holds: a node that an attempt, a claim or a held start names stays, and so does one that a person closed: it must not come back open. What
the platform itself held against a node goes with it. At most MOST_AT_ONCE at a tick, in order of their ids; the others follow at the next.
Never: frees a key's binding (`state.kept_keys`).
"""

from typing import Final

from trainhouse.events import Restriction
from trainhouse.events.model.decisions import NodeForgotten
from trainhouse.scheduler.core.attempts.node_trust import forget, restrict
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.state import ScheduleState

MOST_AT_ONCE: Final = 50
_WHY: Final = "it is forgotten: it was lost for longer than failures.recovery.forget_after_h"


def on_due(draft: Draft) -> None:
    """Forgets the nodes whose time has come."""
    due = sorted(n for n, at_ms in draft.state.forgetting.items() if at_ms <= draft.now_ms)
    if not due:
        return
    named = _named(draft.state)
    for node_id in [n for n in due if n not in named and not draft.state.node(n).orders_due][:MOST_AT_ONCE]:
        node = draft.state.node(node_id)
        if node.restriction is not Restriction.NONE:
            restrict(draft, node, Restriction.NONE, _WHY)
        forget(draft, draft.state.node(node_id), _WHY)
        draft.emit(
            NodeForgotten(
                node_id=node.node_id,
                pool=node.pool,
                boot_id=node.boot_id,
                public_key=node.public_key,
                lost_at_ms=node.lost_at_ms or 0,
                at_ms=draft.now_ms,
            )
        )


def _named(state: ScheduleState) -> set[str]:
    """Nodes that something speaks of: parts of attempts that are not over, claims, held starts."""
    found = {str(part.node_id) for claim in state.claims.values() for part in claim.parts}
    found.update(str(node_id) for held in state.reservations.values() for node_id in held.node_ids)
    for job_id in state.active:
        allotment = state.jobs[job_id].allotment
        if allotment is not None:
            found.update(str(part.node_id) for part in allotment.placements)
    return found
