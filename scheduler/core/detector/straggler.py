"""A rank whose own work takes longer than that of the fastest of its gang.

Holds: only work counts, never waiting for others, so that a gang that waits for one rank has one straggler.
"""

from trainhouse.events import AttemptHeartbeat, RankHeartbeat
from trainhouse.events.model.verdict import StragglerDetected
from trainhouse.scheduler.core.detector.formatting import seconds
from trainhouse.scheduler.core.detector.hysteresis import Sustained
from trainhouse.scheduler.core.detector.observation import Look
from trainhouse.scheduler.core.detector.open_verdicts import thing


def look_for_straggler(look: Look, slow: Sustained, beat: AttemptHeartbeat, rank: RankHeartbeat) -> None:
    """Takes in one rank's work; says that it straggles, or that it does not any more."""
    if rank.work_time_ms is None or not rank.fastest_work_time_ms or rank.fastest_work_time_ms <= 0:
        return
    slowdown = rank.work_time_ms / rank.fastest_work_time_ms
    slow.see(slowdown >= look.limits.straggler_slowdown, look.at_ms, look.seen_ms)
    bad = slow.verdict(look.limits.straggler_after_s)
    if bad is None or not (bad or look.node.stands):
        return
    times = f"{rank.work_time_ms:.4g} ms a step against {rank.fastest_work_time_ms:.4g} ms"
    words = f"the own work of rank {rank.rank} on {look.node.node_id} takes {slowdown:.2f} x that of the fastest of its gang ({times})"
    if not bad:
        look.lifts(thing(StragglerDetected.event_type, beat.job_id, beat.epoch, rank.rank), f"{words} now")
        return
    event = StragglerDetected(
        **look.of_gang(beat),
        rank=rank.rank,
        node_id=look.node.node_id,
        device_id=rank.device_id,
        slowdown=slowdown,
        since_ms=slow.since_ms,
        evidence=f"{words}, for {seconds(slow.held_ms / 1000)} now",
    )
    look.issue(event, beat.job_id, beat.epoch, rank.rank, slow.since_ms)
