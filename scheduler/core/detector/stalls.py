"""Ranks that spend their time waiting: for data, or for saves.

Holds: one data stall for each node that has such a rank, of the worst rank there; slow saves by the node of rank 0 alone, since
all ranks save together.
"""

from typing import Final

from trainhouse.events import AttemptHeartbeat
from trainhouse.events.model.verdict import DataStalled, StoreSlow
from trainhouse.scheduler.core.detector.formatting import seconds
from trainhouse.scheduler.core.detector.observation import Look
from trainhouse.scheduler.core.detector.open_verdicts import thing
from trainhouse.scheduler.core.detector.state import AttemptWatch

LIFT_SHARE: Final = 0.8
"""A share is over at so much of its limit, so that one that hovers there is not said again and again."""


def look_for_stalls(look: Look, watch: AttemptWatch, beat: AttemptHeartbeat) -> None:
    """Takes in the totals of waiting of all ranks; says what stalls them, or that it does not any more."""
    window_s = look.limits.stall_window_s
    data: list[tuple[float, int, int]] = []
    saves: list[tuple[float, int, int]] = []
    for rank in beat.ranks:
        waits = watch.ranks[rank.rank].waits
        waits.add(look.at_ms, rank.data_wait_s, rank.save_stall_s, window_s)
        found = waits.shares(look.at_ms, rank.data_wait_s, rank.save_stall_s, window_s)
        if found is not None:
            data.append((found[0], rank.rank, found[2]))
            saves.append((found[1], rank.rank, found[2]))
    if not data:
        return
    if look.node.stands or max(data)[0] >= look.limits.data_wait_share:
        _data(look, beat, *max(data))
    if any(rank.rank == 0 for rank in beat.ranks) and (look.node.stands or max(saves)[0] >= look.limits.store_stall_share):
        _saves(look, beat, *max(saves))


def _beyond(look: Look, about: str, share: float, limit: float, words: str) -> bool:
    """Whether a share makes a verdict; one well below its limit lifts it."""
    if share < LIFT_SHARE * limit:
        look.lifts(about, f"at most: {words}")
    return share >= limit


def _data(look: Look, beat: AttemptHeartbeat, share: float, rank: int, since_ms: int) -> None:
    limit, window_s = look.limits.data_wait_share, (look.at_ms - since_ms) / 1000
    words = f"rank {rank} on {look.node.node_id} spent {share:.0%} of {seconds(window_s)} waiting for its data (limit {limit:.0%})"
    if _beyond(look, thing(DataStalled.event_type, beat.job_id, beat.epoch), share, limit, words):
        event = DataStalled(
            **look.of_gang(beat),
            rank=rank,
            wait_share=share,
            window_s=window_s,
            since_ms=since_ms,
            evidence=f"{words}: its loader, or what that reads from, is too slow",
        )
        look.issue(event, beat.job_id, beat.epoch, look.node.node_id, since_ms)


def _saves(look: Look, beat: AttemptHeartbeat, share: float, rank: int, since_ms: int) -> None:
    limit, window_s = look.limits.store_stall_share, (look.at_ms - since_ms) / 1000
    words = f"saves held rank {rank} on {look.node.node_id} up for {share:.0%} of {seconds(window_s)} (limit {limit:.0%})"
    if _beyond(look, thing(StoreSlow.event_type, beat.job_id, beat.epoch), share, limit, words):
        event = StoreSlow(
            **look.of_gang(beat),
            stall_share=share,
            window_s=window_s,
            since_ms=since_ms,
            evidence=f"{words}: the object store is slow, or saves come too often",
        )
        look.issue(event, beat.job_id, beat.epoch, since_ms)
