"""Pools, their policies, closed nodes and held start times to their tables.

Holds: the newest word about a node or a job is the one with the largest version: its time in the journal, then its place in the record.
"""

from collections.abc import Iterator

from trainhouse.events.model.job import PoolCreated
from trainhouse.events.model.pool import ChangeRefused, NodeRestricted, PolicyApplied, StartReserved, StartUnreserved
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import MAX_TIME_MS, Record, Row, clamp_ms, event_ms, optional_ms

# Decisions of one journal record share its time: their place in it comes after that.
_PLACES = 100_000


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """Rows of one event; nothing for other events."""
    event = envelope.event
    match event:
        case PoolCreated():
            created = {"pool": str(event.pool), "partition": event.partition, "created_at": event_ms(envelope, record)}
            yield Row("pools_rows", created)
        case PolicyApplied():
            yield _policy(event)
        case ChangeRefused():
            yield Row(
                "refused_changes_rows",
                {
                    "event_id": str(event.event_id),
                    "pool": str(event.pool),
                    "user": event.user,
                    "reason": event.reason,
                    "refused_at": clamp_ms(event.refused_at_ms),
                },
            )
        case NodeRestricted():
            yield _restriction(event, _version(clamp_ms(event.at_ms), envelope))
        case StartReserved() | StartUnreserved():
            yield _reservation(event, _version(event_ms(envelope, record), envelope))


def creations(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of a pool that its first scheduler took in: the earliest one stays."""
    event = envelope.event
    if isinstance(event, PoolCreated):
        at = event_ms(envelope, record)
        yield Row("pool_creations_rows", {"pool": str(event.pool), "version": MAX_TIME_MS - at, "created_at": at})


def _version(at_ms: int, envelope: Envelope) -> int:
    place = envelope.order.ordinal if envelope.order is not None else 0
    return at_ms * _PLACES + min(place, _PLACES - 1)


def _policy(event: PolicyApplied) -> Row:
    return Row(
        "policies_rows",
        {
            "pool": str(event.pool),
            "version": event.version,
            "name": event.policy.name,
            "user": event.user,
            "reason": event.reason,
            "applied_at": clamp_ms(event.applied_at_ms),
            "text": event.text,
            "json": event.policy.model_dump_json(),
        },
    )


def _restriction(event: NodeRestricted, version: int) -> Row:
    return Row(
        "node_restrictions_rows",
        {
            "node_id": str(event.node_id),
            "version": version,
            "pool": str(event.pool),
            "restriction": event.restriction.value,
            "reason": event.reason,
            "restricted_by": event.by,
            "restricted_at": clamp_ms(event.at_ms),
            "deadline_at": optional_ms(event.deadline_ms),
        },
    )


def _reservation(event: StartReserved | StartUnreserved, version: int) -> Row:
    held = isinstance(event, StartReserved)
    return Row(
        "reservations_rows",
        {
            "job_id": str(event.job_id),
            "version": version,
            "held": int(held),
            "start_at": clamp_ms(event.start_ms) if isinstance(event, StartReserved) else None,
            "made_at": clamp_ms(event.made_at_ms) if isinstance(event, StartReserved) else None,
            "node_ids": [str(n) for n in event.node_ids] if isinstance(event, StartReserved) else [],
        },
    )
