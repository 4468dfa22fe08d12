"""Verdicts to `verdicts`: one row an event, its fields under common names.

Holds: the same columns for every type, so that a rule of alerts sees the same row from the topic as from the table.
"""

from collections.abc import Iterator
from typing import Any

from trainhouse.events.model.decisions import NodeForgotten
from trainhouse.events.model.handover import PoolPartRefused
from trainhouse.events.model.node import NodeLost, NodeNoticed, NodeProbed, NodeSuspected, SignatureRefused
from trainhouse.events.model.pool import NodeRestricted
from trainhouse.events.model.repair import PartitionHalted
from trainhouse.events.model.verdict import (
    DataStalled,
    DeviceDegraded,
    FailureBlamed,
    GangHung,
    StoreSlow,
    StragglerDetected,
    Verdict,
    VerdictLifted,
)
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms, optional_ms
from trainhouse.projections.rows.lines.summary import summarize

TABLE = "verdicts_rows"
_OF_NODES = (NodeSuspected, NodeLost, NodeForgotten, NodeRestricted, NodeNoticed, NodeProbed, SignatureRefused)
VerdictEvent = (
    NodeSuspected
    | NodeLost
    | NodeForgotten
    | NodeRestricted
    | NodeNoticed
    | NodeProbed
    | SignatureRefused
    | PartitionHalted
    | PoolPartRefused
    | Verdict
)
TYPES = (*_OF_NODES, PartitionHalted, PoolPartRefused, Verdict)

_TEXTS = ("pool", "job_id", "node_id", "boot_id", "device_id", "category", "rule", "fingerprint", "shard", "fault", "restriction", "source")
_NUMBERS = ("attempt", "epoch", "rank", "step", "lost_steps")
COLUMNS = frozenset((*_TEXTS, *_NUMBERS, "type", "mine", "restricted_by", "passed", "lifted", "value", "limit", "summary", "evidence"))
"""Those that tell cases apart or say what was found; the others are times and lists."""


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """The row of one verdict; nothing for other events."""
    event = envelope.event
    if isinstance(event, TYPES):
        yield Row(TABLE, values(envelope, event))


def values(envelope: Envelope, event: VerdictEvent) -> dict[str, Any]:
    """The columns of one verdict; times in milliseconds since 1970."""
    value, limit = measured(event)
    texts = {name: str(getattr(event, name, None) or "") for name in _TEXTS}
    numbers = {name: _number(getattr(event, name, None)) for name in _NUMBERS}
    return {
        "at": clamp_ms(event.at_ms),
        "event_id": str(envelope.id),
        "type": envelope.type,
        **texts,
        **numbers,
        "ranks": [int(r) for r in getattr(event, "ranks", ())],
        "mine": int(getattr(event, "mine", False)),
        "restricted_by": event.by if isinstance(event, NodeRestricted) else "",
        "passed": int(event.passed) if isinstance(event, NodeProbed) else None,
        "lifted": event.of if isinstance(event, VerdictLifted) else "",
        "value": value,
        "limit": limit,
        "since": optional_ms(getattr(event, "since_ms", None)),
        "failed_at": optional_ms(getattr(event, "failed_at_ms", None)),
        "deadline_at": optional_ms(getattr(event, "deadline_ms", None)),
        "summary": event.summary if isinstance(event, FailureBlamed) else summarize(event),
        "evidence": _evidence(event),
    }


def measured(event: VerdictEvent) -> tuple[float | None, float | None]:
    """The number behind a verdict, and what it was held against; None where there is none."""
    match event:
        case NodeSuspected() | NodeLost():
            return event.silent_s, None
        case NodeProbed():
            return float(sum(not check.passed for check in event.checks)), 0.0
        case GangHung():
            return event.silent_s, event.limit_s
        case StragglerDetected():
            return event.slowdown, None
        case DataStalled():
            return event.wait_share, None
        case StoreSlow():
            return event.stall_share, None
        case DeviceDegraded():
            return event.value, None
    return None, None


def _evidence(event: VerdictEvent) -> str:
    if isinstance(event, NodeProbed):
        return "\n".join(f"{check.name}: {'passed' if check.passed else 'failed'}: {check.found}" for check in event.checks)
    if isinstance(event, NodeRestricted | NodeNoticed | PoolPartRefused):
        return event.reason
    return getattr(event, "evidence", "")


def _number(value: Any) -> int | None:
    return None if value is None else max(0, int(value))
