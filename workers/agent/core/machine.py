"""The machine itself: what an agent does about one input.

Holds, for every sequence of inputs: at most one epoch of a job has processes here; an epoch below one that was seen is never
launched; an epoch that ended here is never launched again; no device has two attempts, but those that each have a share of it; a command
not newer than the order token is dropped; an attempt's AttemptStopped comes after its last process.
Never: raises on a command that makes no sense here; it drops it.
"""

from dataclasses import replace

from trainhouse.events import (
    CheckpointRequested,
    GangAllocated,
    GangReleased,
    NodeDesiredState,
    NodeKeyed,
    NodeLost,
    NodeOrders,
    NodeProbeAsked,
)
from trainhouse.workers.agent.core.actions import Action, AskCheckpoint, Finish, Probe, Register
from trainhouse.workers.agent.core.agent_state import (
    AgentState,
    AttemptKey,
    Draining,
    Launching,
    LocalAttempt,
    Running,
    Sealing,
    Stop,
    Stopping,
    Sweeping,
    Waiting,
)
from trainhouse.workers.agent.core.departure import noticed, see_off, shutdown_asked, withdrawn
from trainhouse.workers.agent.core.inputs import (
    AgentInput,
    AttemptAdopted,
    Command,
    Drained,
    LaunchDone,
    LaunchRefused,
    Noticed,
    NoticeWithdrawn,
    OfAttempt,
    RankGone,
    Sealed,
    SessionSeen,
    ShutdownAsked,
    StacksTaken,
    StopAcked,
    Swept,
    Tick,
)
from trainhouse.workers.agent.core.transition import Turn

# What a session ends with when it is done, was asked to save and leave, found that its loss diverged, or that too many samples are bad:
# nobody saves for it then.
AS_IT_SHOULD = frozenset({0, 75, 76, 77})


def step(state: AgentState, now_ms: int, happened: AgentInput) -> tuple[AgentState, list[Action]]:
    """The next state, and what to do in this order. Pure."""
    turn = Turn(state, now_ms)
    match happened:
        case Command():
            _command(turn, happened)
        case AttemptAdopted():
            _adopt(turn, happened)
        case Noticed(source=source, reason=reason, deadline_ms=deadline_ms):
            noticed(turn, source, reason, deadline_ms)
        case NoticeWithdrawn(source=source):
            withdrawn(turn, source)
        case ShutdownAsked(grace_ms=grace_ms):
            shutdown_asked(turn, grace_ms)
        case Tick():
            _tick(turn)
        case _:
            known = turn.state.attempts.get(happened.key)
            if known is not None:
                _of_attempt(turn, known, happened)
    if not turn.state.shutting_down:
        turn.launch_what_may()
    return turn.state, turn.actions


def _of_attempt(turn: Turn, attempt: LocalAttempt, happened: OfAttempt) -> None:
    match happened:
        case LaunchDone(warm=warm) if isinstance(attempt.phase, Launching):
            asked = attempt.phase.stop
            attempt = turn.put(attempt, Running())
            turn.report_started(attempt, warm)
            if asked is not None:
                turn.stop(attempt, asked)
        case LaunchRefused(reason=reason, retryable=retryable) if isinstance(attempt.phase, Launching):
            turn.report_launch_failed(attempt.allocation, reason, retryable)
            turn.sweep(attempt)
        case RankGone(rank=rank) if isinstance(attempt.phase, Running | Stopping) and rank in attempt.ranks_left:
            broken = attempt.broken or happened.exit_code != 0
            attempt = turn.put(replace(attempt, exited=attempt.exited | {rank}, broken=broken), attempt.phase)
            turn.report_rank(attempt, happened)
            if isinstance(attempt.phase, Running) and happened.exit_code not in AS_IT_SHOULD:
                turn.upload_own_states(attempt)
            if not attempt.ranks_left:
                turn.sweep(attempt)
        case StacksTaken():
            turn.terminate_if_due(attempt.key, taken=True)
        case Swept() if isinstance(attempt.phase, Sweeping):
            turn.drain(attempt)
        case Drained() if isinstance(attempt.phase, Draining):
            turn.close(attempt)
        case Sealed() if isinstance(attempt.phase, Sealing):
            if happened.makes:
                turn.report_sealed(attempt, happened)
            turn.report_stopped(attempt)
        case SessionSeen() if not attempt.talks:
            turn.put(replace(attempt, talks=True), attempt.phase)
        case StopAcked():
            turn.state = turn.state.without_attempt(attempt.key).with_fence(attempt.key.job_id, ended=attempt.key.epoch)
            turn.do(Finish(attempt.key))
        case _:
            pass  # repeated or late: what it tells is known already


def _tick(turn: Turn) -> None:
    for attempt in list(turn.state.attempts.values()):
        turn.terminate_if_due(attempt.key)
        turn.kill_if_due(attempt.key)
        if isinstance(attempt.phase, Draining) and attempt.phase.until_ms <= turn.now_ms:
            turn.close(attempt)
        elif isinstance(attempt.phase, Sealing) and attempt.phase.until_ms is not None and attempt.phase.until_ms <= turn.now_ms:
            turn.report_stopped(attempt)
    see_off(turn)


def _adopt(turn: Turn, found: AttemptAdopted) -> None:
    allocation = found.allocation
    placement = allocation.on_node(turn.state.identity.node_id)
    if placement is None:
        return
    turn.state = turn.state.with_fence(allocation.job_id, seen=int(allocation.epoch))
    _stop_older(turn, allocation.job_id, int(allocation.epoch))
    attempt = LocalAttempt(allocation, placement, Running())
    turn.state = turn.state.with_attempt(attempt)
    if found.launched:
        turn.report_started(attempt, found.warm)
    else:
        turn.report_launch_failed(allocation, "the agent was cut off while it launched the ranks", retryable=True)
        turn.sweep(attempt)


def _command(turn: Turn, command: Command) -> None:
    if command.order is not None:
        known = turn.state.order.get(command.order.partition)
        if known is not None and command.order <= known:
            return
        turn.state = replace(turn.state, order={**turn.state.order, command.order.partition: command.order})
    event = command.event
    me = turn.state.identity
    match event:
        case GangAllocated():
            _allocated(turn, event)
        case GangReleased() if me.node_id in event.node_ids:
            _released(turn, event)
        case CheckpointRequested() if me.node_id in event.node_ids:
            attempt = turn.state.attempts.get(AttemptKey(event.job_id, int(event.epoch)))
            if attempt is not None and isinstance(attempt.phase, Running):
                turn.put(replace(attempt, asked=attempt.asked or event.then_stop), attempt.phase)
                turn.do(AskCheckpoint(attempt.key, event))
        case NodeOrders() if (event.node_id, event.boot_id, event.incarnation) == (me.node_id, me.boot_id, me.incarnation):
            for allocation in event.allocations:
                _allocated(turn, allocation)
        case NodeDesiredState() if (event.node_id, event.boot_id, event.incarnation) == (me.node_id, me.boot_id, me.incarnation):
            _desired(turn, event)
        case NodeProbeAsked() if (event.node_id, event.boot_id) == (me.node_id, me.boot_id) and not turn.state.shutting_down:
            turn.do(Probe(event))
        case NodeLost() if (event.node_id, event.boot_id, event.incarnation) == (me.node_id, me.boot_id, me.incarnation):
            turn.do(Register(f"given up as lost after {event.silent_s:.1f} s of silence"))
        case NodeKeyed():
            turn.do(Register(f"the key that node {event.node_id} had was forgotten; it announces its own"))
        case _:
            pass  # for another node, another boot, or an earlier start of this agent


def _allocated(turn: Turn, event: GangAllocated) -> None:
    epoch = int(event.epoch)
    fence = turn.state.fence(event.job_id)
    _stop_older(turn, event.job_id, epoch)
    placement = event.on_node(turn.state.identity.node_id)
    if placement is None:
        if epoch > fence.seen and any(k.job_id == event.job_id for k in turn.state.attempts):
            turn.state = turn.state.with_fence(event.job_id, seen=epoch)
        return
    if AttemptKey(event.job_id, epoch) in turn.state.attempts:
        return
    if epoch < fence.seen or epoch <= fence.ended:
        turn.report_nothing_here(event)
    elif placement.boot_id != turn.state.identity.boot_id:
        turn.report_launch_failed(event, f"node {placement.node_id} has booted again since this placement was made", retryable=True)
        turn.report_nothing_here(event)
    elif not turn.state.shutting_down:
        turn.state = turn.state.with_fence(event.job_id, seen=epoch)
        turn.state = turn.state.with_attempt(LocalAttempt(event, placement, Waiting()))


def _stop_older(turn: Turn, job_id: str, epoch: int) -> None:
    """A newer epoch exists: an older one cannot commit any more, so it gets no grace."""
    for attempt in list(turn.state.attempts.values()):
        if attempt.key.job_id == job_id and attempt.key.epoch < epoch:
            turn.stop(attempt, Stop(f"epoch {epoch} of the job has been allocated", 0))


def _released(turn: Turn, event: GangReleased) -> None:
    _stop_older(turn, event.job_id, int(event.epoch))
    attempt = turn.state.attempts.get(AttemptKey(event.job_id, int(event.epoch)))
    if attempt is None:
        turn.report_nothing_here(event)
    else:
        if event.for_survivors and attempt.has_processes:
            turn.upload_own_states(attempt)
        turn.stop(attempt, Stop(event.reason, round(event.grace_s * 1000), event.stacks))


def _desired(turn: Turn, event: NodeDesiredState) -> None:
    wanted = {AttemptKey(a.job_id, int(a.epoch)) for a in event.allocations} | {AttemptKey(k.job_id, int(k.epoch)) for k in event.keeps}
    for attempt in list(turn.state.attempts.values()):
        if attempt.key not in wanted:
            turn.stop(attempt, Stop("not among what this node is to run", round(attempt.allocation.spec.limits.grace_s * 1000)))
    for allocation in event.allocations:
        _allocated(turn, allocation)
