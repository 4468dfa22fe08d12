"""Transition of the machine in progress: the state and the actions so far.

Holds: lives within one call of `step`; nothing outside sees it.
"""

from dataclasses import replace

from trainhouse.events import AttemptStarted, AttemptStopped, GangAllocated, GangReleased, LaunchFailed, OutputsSealed, RankExited
from trainhouse.workers.agent.core.actions import (
    Action,
    Drain,
    KillTree,
    Launch,
    Report,
    Seal,
    Sweep,
    TakeStacks,
    Terminate,
    UploadOwnStates,
)
from trainhouse.workers.agent.core.agent_state import (
    AgentState,
    AttemptKey,
    Draining,
    Launching,
    LocalAttempt,
    Phase,
    Reporting,
    Running,
    Sealing,
    Stop,
    Stopping,
    Sweeping,
    Waiting,
)
from trainhouse.workers.agent.core.inputs import RankGone, Sealed

KILL_AGAIN_MS = 5_000
DRAIN_MS = 60_000
STACKS_MS = 3_000
MAX_REASON_CHARS = 8_000


class Turn:
    """Helpers that change `state` and append to `actions`."""

    def __init__(self, state: AgentState, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.actions: list[Action] = []

    def do(self, action: Action) -> None:
        self.actions.append(action)

    def put(self, attempt: LocalAttempt, phase: Phase) -> LocalAttempt:
        changed = replace(attempt, phase=phase)
        self.state = self.state.with_attempt(changed)
        return changed

    def stop(self, attempt: LocalAttempt, stop: Stop) -> None:
        """Begins to end an attempt, or hastens an end that has begun. No grace is longer than the node is here."""
        if self.state.notice is not None:
            stop = replace(stop, grace_ms=max(0, min(stop.grace_ms, self.state.notice.kill_ms - self.now_ms)))
        kill_at = self.now_ms + stop.grace_ms
        match attempt.phase:
            case Waiting():
                self.report_stopped(attempt)
            case Launching(stop=earlier):
                if earlier is None or stop.grace_ms < earlier.grace_ms:
                    self.put(attempt, Launching(stop))
            case Stopping(kill_at_ms=earlier_kill, grace_ms=after_stacks):
                repeats = stop.stacks and after_stacks is not None
                if kill_at < earlier_kill and not repeats:
                    self.put(attempt, replace(attempt.phase, kill_at_ms=kill_at, grace_ms=None))
                    if after_stacks is not None and stop.grace_ms > 0:
                        self.do(Terminate(attempt.key))
                    self.kill_if_due(attempt.key)
            case Sealing(until_ms=until_ms):
                if stop.grace_ms <= 0:
                    self.report_stopped(attempt)
                else:
                    self.put(attempt, Sealing(kill_at if until_ms is None else min(kill_at, until_ms)))
            case Sweeping(stop_ms=stop_ms) | Draining(stop_ms=stop_ms):
                self.put(attempt, replace(attempt.phase, stop_ms=kill_at if stop_ms is None else min(kill_at, stop_ms)))
            case Reporting():
                pass
            case _:
                if stop.stacks and self.state.notice is None and isinstance(attempt.phase, Running) and attempt.ranks_left:
                    self.put(attempt, Stopping(stop.reason, kill_at + STACKS_MS, stop.grace_ms))
                    self.do(TakeStacks(attempt.key, tuple(sorted(attempt.ranks_left)), STACKS_MS * 4 // 5))
                    return
                self.put(attempt, Stopping(stop.reason, kill_at))
                if stop.grace_ms > 0:
                    self.do(Terminate(attempt.key))
                self.kill_if_due(attempt.key)

    def terminate_if_due(self, key: AttemptKey, *, taken: bool = False) -> None:
        """SIGTERM to a hung attempt once its stacks are `taken`, or have had the time to."""
        attempt = self.state.attempts[key]
        phase = attempt.phase
        if not isinstance(phase, Stopping) or phase.grace_ms is None or not (taken or phase.kill_at_ms - phase.grace_ms <= self.now_ms):
            return
        self.put(attempt, replace(phase, kill_at_ms=min(phase.kill_at_ms, self.now_ms + phase.grace_ms), grace_ms=None))
        if phase.grace_ms > 0:
            self.do(Terminate(key))
        self.kill_if_due(key)

    def kill_if_due(self, key: AttemptKey) -> None:
        """SIGKILLs a stopping attempt whose grace is over; again a while later, should anything be left."""
        attempt = self.state.attempts[key]
        if isinstance(attempt.phase, Stopping) and attempt.phase.kill_at_ms <= self.now_ms:
            killed_at_ms = self.now_ms if attempt.phase.killed_at_ms is None else attempt.phase.killed_at_ms
            self.put(attempt, replace(attempt.phase, kill_at_ms=self.now_ms + KILL_AGAIN_MS, grace_ms=None, killed_at_ms=killed_at_ms))
            self.do(KillTree(key))

    def launch_what_may(self) -> None:
        """Starts each waiting attempt that nothing stands in the way of."""
        for attempt in list(self.state.attempts.values()):
            if isinstance(attempt.phase, Waiting) and not self._blocked(attempt):
                self.put(attempt, Launching())
                self.do(Launch(attempt.allocation, attempt.placement))

    def _blocked(self, attempt: LocalAttempt) -> bool:
        others = (o for o in self.state.attempts.values() if o.key != attempt.key and o.has_processes)
        return any(o.key.job_id == attempt.key.job_id or _collide(o, attempt) for o in others)

    def upload_own_states(self, attempt: LocalAttempt) -> None:
        """Uploads the ranks' own states if the gang spans several nodes; ranks on this one read the files themselves."""
        if len(attempt.allocation.placements) > 1:
            self.do(UploadOwnStates(attempt.key))

    def sweep(self, attempt: LocalAttempt) -> None:
        """No rank is left: what they left behind must go before anything newer starts."""
        phase = attempt.phase
        self.put(attempt, Sweeping(phase.kill_at_ms if isinstance(phase, Stopping) else None))
        self.do(Sweep(attempt.key))

    def drain(self, attempt: LocalAttempt) -> None:
        """No process is left: ship what they wrote."""
        stop_ms = attempt.phase.stop_ms if isinstance(attempt.phase, Sweeping) else None
        self.put(attempt, Draining(self.now_ms + DRAIN_MS, stop_ms))
        self.do(Drain(attempt.key))

    def close(self, attempt: LocalAttempt) -> None:
        """Seals the outputs of a drained attempt, where they may be and it was not asked to be gone by now; else reports it stopped."""
        stop_ms = attempt.phase.stop_ms if isinstance(attempt.phase, Draining) else None
        if attempt.seals and (stop_ms is None or stop_ms > self.now_ms):
            self.put(attempt, Sealing(stop_ms))
            self.do(Seal(attempt.key))
        else:
            self.report_stopped(attempt)

    def report_sealed(self, attempt: LocalAttempt, sealed: Sealed) -> None:
        event = OutputsSealed(
            **self._fields(attempt.allocation), versions=sealed.versions, failure=sealed.failure[:MAX_REASON_CHARS], at_ms=self.now_ms
        )
        self.do(Report(event, f"{attempt.key}:outputs-sealed"))

    def report_started(self, attempt: LocalAttempt, warm: bool) -> None:
        event = AttemptStarted(**self._fields(attempt.allocation), started_at_ms=self.now_ms, warm=warm)
        self.do(Report(event, f"{attempt.key}:{self.state.identity.node_id}:started"))

    def report_launch_failed(self, allocation: GangAllocated, reason: str, retryable: bool) -> None:
        event = LaunchFailed(**self._fields(allocation), reason=reason[:4096], retryable=retryable)
        key = AttemptKey(allocation.job_id, int(allocation.epoch))
        self.do(Report(event, f"{key}:{self.state.identity.node_id}:launch-failed"))

    def report_rank(self, attempt: LocalAttempt, gone: RankGone) -> None:
        event = RankExited(
            **self._fields(attempt.allocation),
            rank=gone.rank,
            exit_code=gone.exit_code,
            signal=gone.signal,
            reason=gone.reason[:MAX_REASON_CHARS],
            exited_at_ms=gone.at_ms,
            by_agent=gone.by_agent,
        )
        self.do(Report(event, f"{attempt.key}:rank-{gone.rank}:exited"))

    def report_stopped(self, attempt: LocalAttempt) -> None:
        """The attempt's last word; it leaves the state when the brokers hold it."""
        self.put(attempt, Reporting())
        self._stopped(attempt.allocation, attempt.key)

    def report_nothing_here(self, of: GangAllocated | GangReleased) -> None:
        """Of an attempt that this node does not run (any more): says so, and never starts it later."""
        self.state = self.state.with_fence(of.job_id, seen=int(of.epoch), ended=int(of.epoch))
        self._stopped(of, None)

    def _stopped(self, of: GangAllocated | GangReleased, stops: AttemptKey | None) -> None:
        event = AttemptStopped(**self._fields(of), boot_id=self.state.identity.boot_id, stopped_at_ms=self.now_ms)
        self.do(Report(event, f"{of.job_id}:{int(of.epoch)}:{self.state.identity.node_id}:stopped", stops))

    def _fields(self, of: GangAllocated | GangReleased) -> dict[str, object]:
        return {"job_id": of.job_id, "attempt": of.attempt, "epoch": of.epoch, "node_id": self.state.identity.node_id, "pool": of.pool}


def _collide(one: LocalAttempt, other: LocalAttempt) -> bool:
    """Returns whether two attempts have a device in common that they do not both have only a share of."""
    both_share = one.allocation.spec.shares_device and other.allocation.spec.shares_device
    return not both_share and not set(one.placement.devices).isdisjoint(other.placement.devices)
