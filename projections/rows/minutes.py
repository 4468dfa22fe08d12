"""Heartbeats to `node_minutes` and `attempt_minutes`: what questions about the past need, one row a minute.

Holds: each value goes under the second of its heartbeat, or is a total that only grows, so a repeated heartbeat changes nothing. One
heartbeat in SLOT_MS is taken, whatever their rhythm: a minute does not become truer by sixty of them, but each insert costs.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from trainhouse.events.model.node import AttemptHeartbeat, NodeHeartbeat, RankState
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms

MINUTE_MS = 60_000
SLOT_MS = 10_000


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """Rows of one heartbeat in each slot; nothing for other events."""
    event = envelope.event
    if not isinstance(event, NodeHeartbeat):
        return
    at = clamp_ms(event.at_ms)
    if not first_of_slot(event):
        return
    utilization = {d.device_id: d.utilization_pct for d in event.devices if d.utilization_pct is not None}
    common = {"minute": at - at % MINUTE_MS, "node_id": str(event.node_id), "pool": str(event.pool), "last_at": at}
    held = {rank.device_id for attempt in event.attempts for rank in attempt.ranks if rank.state is not RankState.EXITED}
    node = {
        "devices": len(event.devices),
        "devices_held": len(held),
        "utilization": _mean(at, list(utilization.values())),
        "spool_lag_bytes": max(0, event.spool_lag_bytes),
    }
    yield Row("node_minutes_rows", common | node)
    for attempt in event.attempts:
        yield Row("attempt_minutes_rows", common | _part(attempt, at, utilization))


def first_of_slot(event: NodeHeartbeat) -> bool:
    """Returns whether this heartbeat is the one that is taken of those in its slot."""
    return clamp_ms(event.at_ms) % SLOT_MS < event.interval_s * 1000


def _part(attempt: AttemptHeartbeat, at: int, utilization: dict[Any, float]) -> dict[str, Any]:
    ranks = [rank for rank in attempt.ranks if rank.state is not RankState.EXITED]
    return {
        "job_id": str(attempt.job_id),
        "epoch": int(attempt.epoch),
        "attempt": int(attempt.attempt),
        "ranks": len(ranks),
        "step": max((rank.step for rank in attempt.ranks if rank.step is not None), default=None),
        "utilization": _mean(at, [utilization[rank.device_id] for rank in ranks if rank.device_id in utilization]),
        "data_wait_s": {rank.rank: float(rank.data_wait_s) for rank in attempt.ranks},
        "save_stall_s": {rank.rank: float(rank.save_stall_s) for rank in attempt.ranks},
    }


def _mean(at: int, values: Sequence[float]) -> dict[int, float]:
    """The mean of the devices under the second of the minute; nothing where no device tells."""
    return {at % MINUTE_MS // 1000: sum(values) / len(values)} if values else {}
