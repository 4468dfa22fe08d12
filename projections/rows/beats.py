"""Heartbeats to `attempt_beats`: what the ranks of an attempt on a node had waited for, heartbeat by heartbeat.

Holds: sums over the ranks of one heartbeat, exited ones too (their totals stand), so they only grow while an attempt lives. What a rank
waits for now, since after its newest step, is not in the totals at that step.
"""

from collections.abc import Iterator

from trainhouse.events.model.node import NodeHeartbeat, RankActivity, RankHeartbeat
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.record import Record, Row, clamp_ms, optional_ms


def rows(envelope: Envelope, record: Record) -> Iterator[Row]:
    """A row for each attempt of a heartbeat; nothing for other events."""
    event = envelope.event
    if not isinstance(event, NodeHeartbeat):
        return
    for attempt in event.attempts:
        steps = [rank for rank in attempt.ranks if rank.step is not None]
        newest = max(steps, key=lambda rank: (rank.step or 0, -(rank.step_at_ms or 0)), default=None)
        yield Row(
            "attempt_beats_rows",
            {
                "job_id": str(attempt.job_id),
                "epoch": int(attempt.epoch),
                "node_id": str(event.node_id),
                "at": clamp_ms(event.at_ms),
                "ranks": len(attempt.ranks),
                "step": None if newest is None else newest.step,
                "step_at": None if newest is None else optional_ms(newest.step_at_ms),
                "data_wait_s": float(sum(rank.data_wait_s for rank in attempt.ranks)),
                "save_stall_s": float(sum(rank.save_stall_s for rank in attempt.ranks)),
                "data_wait_at_step_s": float(sum(r.data_wait_s - _since_step(r, RankActivity.WAITING_FOR_DATA) for r in attempt.ranks)),
                "save_stall_at_step_s": float(sum(r.save_stall_s - _since_step(r, RankActivity.SAVING) for r in attempt.ranks)),
            },
        )


def _since_step(rank: RankHeartbeat, activity: RankActivity) -> float:
    """Returns the time, in s, of the rank's activity since its newest step: the totals of a beat are those of its pulse."""
    if rank.activity is not activity or rank.pulse_at_ms is None or rank.activity_since_ms is None:
        return 0.0
    return max(0, rank.pulse_at_ms - max(rank.activity_since_ms, rank.step_at_ms or 0)) / 1000
