"""Allocations and agents' reports to `attempt_facts`: the base of the views `attempts` and `allocations`.

Holds: a fact has one key, so a report that is sent again changes nothing.
"""

from collections.abc import Iterator
from typing import Any

from trainhouse.events.model.attempt import AttemptReport, AttemptStarted, AttemptStopped, LaunchFailed, RankExited
from trainhouse.events.model.gang import GangAllocated, GangReleased
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms, event_ms

_BLANK: dict[str, Any] = {
    "node_id": "",
    "rank": -1,
    "first_rank": 0,
    "device_ids": [],
    "world_size": 0,
    "exit_code": None,
    "signal": None,
    "warm": 0,
    "reason": "",
}


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """Facts of one event; nothing for other events."""
    event = envelope.event
    at = event_ms(envelope, record)
    if isinstance(event, GangAllocated):
        for part in event.placements:
            yield _fact(
                event,
                "allocated",
                at,
                node_id=str(part.node_id),
                first_rank=part.first_rank,
                device_ids=[str(d) for d in part.devices],
                world_size=event.world_size,
            )
    elif isinstance(event, GangReleased):
        for node_id in event.node_ids or ("",):
            yield _fact(event, "released", at, node_id=str(node_id), reason=event.reason)
    elif isinstance(event, AttemptReport):
        yield from _report(event, at)


def _report(event: AttemptReport, at: int) -> Iterator[Row]:
    node_id = str(event.node_id)
    if isinstance(event, AttemptStarted):
        yield _fact(event, "started", clamp_ms(event.started_at_ms), node_id=node_id, warm=int(event.warm))
    elif isinstance(event, LaunchFailed):
        yield _fact(event, "launch_failed", at, node_id=node_id, reason=event.reason)
    elif isinstance(event, AttemptStopped):
        yield _fact(event, "stopped", clamp_ms(event.stopped_at_ms), node_id=node_id)
    elif isinstance(event, RankExited):
        yield _fact(
            event,
            "exited",
            clamp_ms(event.exited_at_ms),
            node_id=node_id,
            rank=event.rank,
            exit_code=event.exit_code,
            signal=event.signal,
            reason=event.reason,
        )


def _fact(event: GangAllocated | GangReleased | AttemptReport, fact: str, at: int, **values: Any) -> Row:
    common = {
        "job_id": str(event.job_id),
        "epoch": int(event.epoch),
        "attempt": int(event.attempt),
        "pool": str(event.pool),
        "fact": fact,
        "at": at,
    }
    return Row("attempt_facts", common | _BLANK | values)
