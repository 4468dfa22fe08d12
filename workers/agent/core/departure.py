"""Departure of a node: reports it to the scheduler at once, and asks attempts to leave where the scheduler does not.

Holds: a notice counts once, and a later one only if the node goes earlier; one that is withdrawn leaves those of other sources standing.
No attempt outlives the deadline. A session is asked to save and stop (its ranks agree with all others of their gang, wherever those are);
ranks without one have nothing to save: SIGTERM tells them.
Never: takes for granted that the scheduler answers.
"""

from dataclasses import replace

from trainhouse.events import CheckpointRequested, NodeNoticed
from trainhouse.workers.agent.core.actions import AskCheckpoint, Register, Report
from trainhouse.workers.agent.core.agent_state import AgentState, Launching, LocalAttempt, Running, Stop, Stopping, Waiting
from trainhouse.workers.agent.core.termination_notice import Notice
from trainhouse.workers.agent.core.transition import Turn

MAX_REASON_CHARS = 1_000
SIGTERM = "sigterm"


def noticed(turn: Turn, source: str, reason: str, deadline_ms: int) -> None:
    """Reports a termination notice to the scheduler, unless an earlier or equal deadline is reported already."""
    known, notice = turn.state.notice, Notice(source, reason[:MAX_REASON_CHARS], turn.now_ms, deadline_ms)
    earlier = turn.state.notices.get(source)
    if earlier is None or deadline_ms < earlier.deadline_ms:
        turn.state = replace(turn.state, notices={**turn.state.notices, source: notice})
    if known is not None and known.deadline_ms <= deadline_ms:
        return
    for report in notice_reports(turn.state):
        turn.do(report)
    for attempt in list(turn.state.attempts.values()):
        if isinstance(attempt.phase, Stopping):
            turn.stop(attempt, _stop(turn, notice))
    see_off(turn)


def withdrawn(turn: Turn, source: str) -> None:
    """The node stays after all, or until another source's end: it registers anew. What was asked to leave leaves."""
    if source not in turn.state.notices or turn.state.shutting_down:
        return
    known = turn.state.notice
    turn.state = replace(turn.state, notices={s: n for s, n in turn.state.notices.items() if s != source})
    if turn.state.notice != known:
        turn.do(Register(f"the notice by {source} was withdrawn"))


def shutdown_asked(turn: Turn, grace_ms: int) -> None:
    """The agent itself ends: a notice, and nothing new starts here."""
    turn.state = replace(turn.state, shutting_down=True)
    noticed(turn, SIGTERM, "the node's agent was asked to stop", turn.now_ms + grace_ms)
    see_off(turn)


def see_off(turn: Turn) -> None:
    """Carries out the due actions for each attempt on a node that goes away."""
    notice = turn.state.notice
    if notice is None:
        return
    on_its_own = turn.now_ms >= notice.ask_ms
    for attempt in list(turn.state.attempts.values()):
        if not isinstance(attempt.phase, Waiting | Launching | Running):
            continue
        if turn.now_ms >= notice.stop_ms:
            turn.stop(attempt, _stop(turn, notice))
        elif isinstance(attempt.phase, Running) and attempt.talks:
            if on_its_own and not attempt.asked:
                _ask(turn, attempt, notice)
        elif turn.state.shutting_down or (on_its_own and not attempt.asked):
            turn.stop(attempt, _stop(turn, notice))


def notice_reports(state: AgentState) -> list[Report]:
    """Returns the reports after each registration: the scheduler forgets a notice with the incarnation that had it."""
    me, notice = state.identity, state.notice
    if notice is None:
        return []
    event = NodeNoticed.model_validate(
        {
            "node_id": me.node_id,
            "boot_id": me.boot_id,
            "incarnation": me.incarnation,
            "pool": me.pool,
            "source": notice.source,
            "reason": notice.reason,
            "deadline_ms": notice.deadline_ms,
            "at_ms": notice.at_ms,
        }
    )
    return [Report(event, f"{me.node_id}:{me.incarnation}:noticed:{notice.deadline_ms}")]


def next_due_ms(state: AgentState, now_ms: int) -> int | None:
    """Returns the next time that the machine needs a Tick, for a grace that is over or a notice; None: for neither."""
    due = [a.phase.kill_at_ms - (a.phase.grace_ms or 0) for a in state.attempts.values() if isinstance(a.phase, Stopping)]
    if state.notice is not None and state.attempts:
        due += [at_ms for at_ms in (state.notice.ask_ms, state.notice.stop_ms) if at_ms > now_ms]
    return min(due, default=None)


def _stop(turn: Turn, notice: Notice) -> Stop:
    return Stop(str(notice), max(0, notice.kill_ms - turn.now_ms))


def _ask(turn: Turn, attempt: LocalAttempt, notice: Notice) -> None:
    attempt = turn.put(replace(attempt, asked=True), attempt.phase)
    of = attempt.allocation
    request = CheckpointRequested(
        job_id=of.job_id,
        attempt=of.attempt,
        epoch=of.epoch,
        pool=of.pool,
        node_ids=(attempt.placement.node_id,),
        reason=str(notice),
        deadline_ms=notice.deadline_ms,
        then_stop=True,
    )
    turn.do(AskCheckpoint(attempt.key, request))
