"""A hung gang, said once for each node that sees it.

Holds: `ranks` names those that the others wait for, as far as this node's heartbeats show: none where all merely wait.
"""

from trainhouse.events import AttemptHeartbeat, RankHeartbeat
from trainhouse.events.model.verdict import GangHung
from trainhouse.scheduler.core.detector.formatting import rank_words, seconds
from trainhouse.scheduler.core.detector.hang import ALL, RankWatch, culprits, own_limit_s, patient_limit_s, watch_rank
from trainhouse.scheduler.core.detector.observation import Look
from trainhouse.scheduler.core.detector.open_verdicts import thing
from trainhouse.scheduler.core.detector.state import AttemptWatch

Judged = list[tuple[RankHeartbeat, RankWatch]]


def look_for_hang(look: Look, watch: AttemptWatch, beat: AttemptHeartbeat) -> None:
    """Takes in the progress of all ranks, and says that the gang is hung, or that it is not any more."""
    judged: Judged = []
    own_s: list[float] = []
    shared_s = 0.0
    for rank in beat.ranks:
        member, limit_s = watch.ranks[rank.rank], own_limit_s(rank, look.limits)
        spoke = member.progress.spoke() or rank.step is not None or rank.pulse_at_ms is not None
        if limit_s is not None and spoke:
            shared_s = max(shared_s, patient_limit_s(rank, limit_s, look.limits))
        elif limit_s is not None:
            limit_s = look.limits.silent_start_limit_s
        if limit_s is None:
            member.progress = RankWatch()
        else:
            judged.append((rank, member.progress))
            own_s.append(limit_s)
    seen_ms = None if look.behind else look.seen_ms
    for (rank, progress), limit_s in zip(judged, own_s, strict=True):
        watch_rank(progress, rank, limit_s, max(limit_s, shared_s), look.at_ms, seen_ms)
    hung = any(progress.stuck for _, progress in judged)
    if not (hung or look.node.stands):
        return
    about = thing(GangHung.event_type, beat.job_id, beat.epoch)
    if hung and about not in look.node.stands:
        _say(look, beat, judged)
    elif not hung and judged and all(progress.moved for _, progress in judged):
        ranks = rank_words(rank.rank for rank, _ in judged)
        look.lifts(about, f"{ranks} on {look.node.node_id} make steps again, or say what else they are at")


def _say(look: Look, beat: AttemptHeartbeat, judged: Judged) -> None:
    named = culprits([(rank.rank, progress) for rank, progress in judged])
    stuck = [(rank, progress) for rank, progress in judged if progress.stuck]
    rank, progress = max(stuck, key=lambda s: (s[0].rank in named, s[1].still_ms, -s[0].rank))
    limit_s = progress.own_s if progress.used < ALL else progress.shared_s
    p99_s = None if rank.step_time_p99_ms is None else rank.step_time_p99_ms / 1000
    event = GangHung(
        **look.of_gang(beat),
        node_id=look.node.node_id,
        ranks=named,
        step=progress.step,
        silent_s=progress.still_ms / 1000,
        limit_s=limit_s,
        p99_step_s=p99_s,
        activity=None if any(progress.deaf() for _, progress in stuck) else progress.activity,
        evidence=f"{_silence(look, stuck, rank, progress, limit_s)}. {_suspects_text(stuck, named)}",
    )
    look.issue(event, beat.job_id, beat.epoch, look.node.node_id, progress.step)


def _silence(look: Look, stuck: Judged, rank: RankHeartbeat, progress: RankWatch, limit_s: float) -> str:
    after = "before the first" if progress.step is None else f"after step {progress.step}"
    words = f"{rank_words(r.rank for r, _ in stuck)} on {look.node.node_id}: no step for {seconds(progress.still_ms / 1000)}, {after}"
    if progress.activity is not None:
        words += f", while {progress.activity.value}"
    words += f"; the limit is {seconds(limit_s)}"
    if rank.step_time_p99_ms is not None:
        words += f" (p99 of its steps {seconds(rank.step_time_p99_ms / 1000)}, longest {seconds((rank.longest_step_ms or 0) / 1000)})"
    return words


def _suspects_text(stuck: Judged, named: tuple[int, ...]) -> str:
    deaf = [(rank, progress) for rank, progress in stuck if progress.deaf()]
    if deaf:
        rank, progress = deaf[0]
        which = rank_words(r.rank for r, _ in deaf)
        return f"No pulse of {which} for {seconds(progress.deaf_ms / 1000)}: stopped, or deaf in native code (pid {rank.pid})"
    silent = [(rank, progress) for rank, progress in stuck if not progress.spoke()]
    if silent:
        which = rank_words(r.rank for r, _ in silent)
        return f"Not a word of {which}: no session was begun yet; the program hangs before it, or uses none (pid {silent[0][0].pid})"
    if named:
        return f"{rank_words(named)} did fewer steps than the others here"
    return "All of them live and wait for one another, or for a rank on another node"
