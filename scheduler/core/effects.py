"""What a record of the scheduler makes public: orders to agents, statuses to users, pools to agents, alerts to people.

Holds: an effect's id follows from its content, so that a repeat has the same one; orders go to the journal's own partition number.
"""

from collections.abc import Iterable, Iterator

from trainhouse.events import CheckpointRequested, Event, GangAllocated, GangReleased, JobStatus, NodeDesiredState, PoolCreated, topics
from trainhouse.events.journal import PlacementFrozen
from trainhouse.scheduler.core.machine import OWN_PARTITION, Effect


def effects_of(seq: int, decisions: Iterable[Event]) -> Iterator[Effect]:
    """The effects of a record's decisions, in their order."""
    for decision in decisions:
        match decision:
            case JobStatus():
                subject = decision.subject()
                yield Effect(topics.STATUS, subject, decision, f"{subject}:status:{decision.status_seq}")
            case GangAllocated():
                yield _order(decision, decision.pool, f"{decision.job_id}:allocated:{decision.epoch}")
            case GangReleased():
                yield _order(decision, decision.pool, f"{decision.job_id}:released:{decision.epoch}:{seq}")
            case CheckpointRequested():
                yield _order(decision, decision.pool, f"{decision.job_id}:save:{decision.epoch}:{seq}")
            case NodeDesiredState():
                yield _order(decision, decision.pool, f"{decision.node_id}:desired:{decision.incarnation}:{seq}")
            case PoolCreated():
                yield Effect(topics.POOLS, decision.pool, decision, f"pool:{decision.pool}:{decision.partition}")
            case PlacementFrozen():
                yield Effect(topics.ALERTS, "placement-frozen", decision, f"placement-frozen:{seq}")


def _order(event: Event, pool: str, event_id: str) -> Effect:
    return Effect(topics.ALLOCATIONS, pool, event, event_id, OWN_PARTITION)
