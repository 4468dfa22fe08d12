"""Placements, heartbeats and exits to `rank_facts`: the base of the view `ranks`.

Holds: of several heartbeats of a rank the newest by its agent's clock stays.
"""

from collections.abc import Iterator
from typing import Any

from trainhouse.events.model.attempt import RankExited
from trainhouse.events.model.gang import GangAllocated
from trainhouse.events.model.node import NodeHeartbeat
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms, event_ms, optional_ms

_BLANK: dict[str, Any] = {
    "device_id": "",
    "state": "",
    "pid": None,
    "step": None,
    "step_at": None,
    "step_time_ms": None,
    "data_wait_s": 0.0,
    "save_stall_s": 0.0,
    "exit_code": None,
    "signal": None,
    "reason": "",
}


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """Facts of one event; nothing for other events."""
    event = envelope.event
    if isinstance(event, GangAllocated):
        at = event_ms(envelope, record)
        for part in event.placements:
            for rank, device in zip(part.ranks, part.devices, strict=True):
                yield _fact(event, rank, "placed", at, node_id=str(part.node_id), device_id=str(device))
    elif isinstance(event, RankExited):
        at = clamp_ms(event.exited_at_ms)
        yield _fact(
            event,
            event.rank,
            "exited",
            at,
            node_id=str(event.node_id),
            state="EXITED",
            exit_code=event.exit_code,
            signal=event.signal,
            reason=event.reason,
        )
    elif isinstance(event, NodeHeartbeat):
        yield from _beats(event)


def _beats(event: NodeHeartbeat) -> Iterator[Row]:
    at = clamp_ms(event.at_ms)
    for attempt in event.attempts:
        for rank in attempt.ranks:
            yield _fact(
                attempt,
                rank.rank,
                "beat",
                at,
                node_id=str(event.node_id),
                device_id=str(rank.device_id),
                state=rank.state.value,
                pid=rank.pid,
                step=rank.step,
                step_at=optional_ms(rank.step_at_ms),
                step_time_ms=rank.step_time_ms,
                data_wait_s=rank.data_wait_s,
                save_stall_s=rank.save_stall_s,
            )


def _fact(of: Any, rank: int, fact: str, at: int, **values: Any) -> Row:
    common = {
        "job_id": str(of.job_id),
        "epoch": int(of.epoch),
        "attempt": int(of.attempt),
        "rank": rank,
        "fact": fact,
        "at": at,
        "version": at,
    }
    return Row("rank_facts", common | _BLANK | values)
