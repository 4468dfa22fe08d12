"""Registrations, heartbeats and verdicts to `node_facts`: the base of the view `nodes`.

Holds: of each kind of fact the newest by time stays.
"""

from collections.abc import Iterator
from typing import Any

from trainhouse.events.model.decisions import NodeForgotten
from trainhouse.events.model.node import NodeHeartbeat, NodeLost, NodeRegistered, NodeSuspected, RankState
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms, event_ms

_BLANK: dict[str, Any] = {
    "incarnation": "",
    "address": "",
    "device_type": "",
    "devices": 0,
    "cpus": 0.0,
    "memory_bytes": 0,
    "labels": {},
    "ranks_running": 0,
    "spool_lag_bytes": 0,
    "silent_s": 0.0,
    "reason": "",
    "isolation": "",
}

NodeEvent = NodeRegistered | NodeHeartbeat | NodeSuspected | NodeLost | NodeForgotten


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """Facts of one event about a node; nothing for other events."""
    event = envelope.event
    if isinstance(event, NodeRegistered):
        yield _fact(
            event,
            "registered",
            event_ms(envelope, record),
            incarnation=event.incarnation,
            address=event.address,
            device_type=",".join(sorted({d.type for d in event.devices})),
            devices=len(event.devices),
            cpus=float(event.cpus),
            memory_bytes=event.memory_bytes,
            labels=event.labels,
            isolation=event.isolation.model_dump_json() if event.isolation is not None else "",
        )
    elif isinstance(event, NodeHeartbeat):
        running = sum(rank.state is not RankState.EXITED for attempt in event.attempts for rank in attempt.ranks)
        yield _fact(
            event,
            "beat",
            clamp_ms(event.at_ms),
            incarnation=event.incarnation,
            ranks_running=running,
            spool_lag_bytes=event.spool_lag_bytes,
        )
    elif isinstance(event, NodeSuspected):
        yield _fact(event, "suspected", clamp_ms(event.at_ms), silent_s=event.silent_s)
    elif isinstance(event, NodeLost):
        yield _fact(event, "lost", clamp_ms(event.at_ms), incarnation=event.incarnation, silent_s=event.silent_s, reason=event.evidence)
    elif isinstance(event, NodeForgotten):
        yield _fact(event, "forgotten", clamp_ms(event.at_ms))


def _fact(event: NodeEvent, fact: str, at: int, **values: Any) -> Row:
    common = {"node_id": str(event.node_id), "pool": str(event.pool), "boot_id": event.boot_id, "fact": fact, "at": at, "version": at}
    return Row("node_facts", common | _BLANK | values)
