"""The scheduler as a pure machine over one partition of control: jobs in, gangs and statuses out.

Holds: every decision follows from state, `now_ms` and inputs; decide leaves the state as it was; inputs are handled one by one, and gangs
are placed at ticks alone, so the bounds of a batch change nothing. Directory's repeats and agents' repeats, late or stale, change nothing.
Never: gives a device to two attempts, or a part of a gang.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from trainhouse.events import (
    AttemptStarted,
    AttemptStopped,
    CancelJob,
    ChangeJob,
    CheckpointCompleted,
    DeviceDegraded,
    Event,
    GangHung,
    JobAdmitted,
    LaunchFailed,
    LossDiverged,
    NodeLost,
    NodeNoticed,
    NodeProbed,
    NodeRegistered,
    PoolCreated,
    ProgressReported,
    ProjectLimited,
    RankExited,
    SessionOpened,
)
from trainhouse.events.journal import ClockTicked
from trainhouse.events.pool import CycleRan
from trainhouse.scheduler.core import fleet, probes, reports, requests, review, verdicts
from trainhouse.scheduler.core.changes import CHANGES
from trainhouse.scheduler.core.cycle.cycle import run_cycle
from trainhouse.scheduler.core.draft import Draft
from trainhouse.scheduler.core.effects import effects_of
from trainhouse.scheduler.core.errors import UnexpectedInput
from trainhouse.scheduler.core.fold import fold_decision
from trainhouse.scheduler.core.machine import Condition, Effect, Input, Leveled
from trainhouse.scheduler.core.placing import Cycle, place_waiting
from trainhouse.scheduler.core.snapshot import Dumps, capture_schedule, dump_schedule, load_schedule
from trainhouse.scheduler.core.snapshot_steps import SCHEDULE_FORMATS
from trainhouse.scheduler.core.state import ScheduleState
from trainhouse.scheduler.core.timers import next_ms, on_tick

_REQUESTS: Final[dict[type[Event], Callable[[Draft, Any], None]]] = {
    JobAdmitted: requests.on_admitted,
    CancelJob: requests.on_cancel,
    ChangeJob: requests.on_change,
    PoolCreated: requests.on_pool,
    ProjectLimited: requests.on_limited,
}
_REPORTS: Final[dict[type[Event], Callable[[Draft, Any], None]]] = {
    NodeRegistered: fleet.on_registered,
    NodeLost: fleet.on_lost,
    AttemptStarted: reports.on_started,
    LaunchFailed: reports.on_launch_failed,
    RankExited: reports.on_rank_exited,
    AttemptStopped: reports.on_stopped,
    SessionOpened: reports.on_session,
    CheckpointCompleted: reports.on_checkpoint,
    LossDiverged: verdicts.on_diverged,
    GangHung: verdicts.on_hung,
    DeviceDegraded: verdicts.on_degraded,
    NodeNoticed: verdicts.on_noticed,
    NodeProbed: probes.on_probed,
}


class ScheduleMachine(Leveled):
    """The machine of `trainhouse.decisions`. Its inputs are what control carries, and ClockTicked."""

    name = "schedule"
    decide_version = 10
    fold_version = 8
    lowest_level = 7
    formats = SCHEDULE_FORMATS
    since: Mapping[str, int] = {}
    passing: tuple[type[Event], ...] = (CycleRan,)

    def __init__(self, cycle: Cycle = run_cycle) -> None:
        self._cycle = cycle
        self._dumps = Dumps()

    def initial(self, partition: int) -> ScheduleState:
        """No jobs, no nodes, no pools."""
        return ScheduleState(partition)

    def decide(self, state: ScheduleState, now_ms: int, inputs: Sequence[Input]) -> list[Event]:
        """Decisions for a batch. Raises UnexpectedInput on an event that control does not carry."""
        draft = Draft(state.fork(), now_ms, self.level)
        for item in inputs:
            self._handle(draft, item)
        return draft.decisions

    def after_refusal(self, state: ScheduleState, event: Event, reason: str) -> Event | None:
        """A job of which an input cannot be handled is sent to review."""
        return review.after_failure(state, event, reason)

    def _handle(self, draft: Draft, item: Input) -> None:
        kind = type(item.event)
        if kind is ClockTicked:
            on_tick(draft)
            place_waiting(draft, self._cycle, self.decide_version)
        elif isinstance(item.event, ProgressReported):
            reports.on_progress(draft, item.event, by_owner=item.offset is None)
        elif kind in _REPORTS:
            _REPORTS[kind](draft, item.event)
        elif kind not in _REQUESTS and kind not in CHANGES:
            raise UnexpectedInput(f"{item.event.event_type} ({item.envelope.id}) is nothing that the scheduler takes; see the topic table")
        elif not requests.is_repeat(draft, item.envelope):
            if kind in CHANGES:
                CHANGES[kind](draft, item.envelope)
            else:
                _REQUESTS[kind](draft, item.event)

    def fold(self, state: ScheduleState, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> ScheduleState:
        """The state after a record, changed in place; the inputs are not looked at."""
        for decision in decisions:
            fold_decision(state, now_ms, decision)
        return state

    def effects(self, seq: int, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> list[Effect]:
        """Orders, statuses, pools and alerts of a record."""
        return list(effects_of(seq, now_ms, decisions))

    def condition(self, state: ScheduleState) -> Condition:
        """The pools, and the reason of a freeze."""
        pools = tuple(sorted(pool.name for pool in state.pools.values()))
        return Condition(pools, state.frozen.reason if state.frozen is not None else "")

    def wakes_ms(self, state: ScheduleState, after_ms: int) -> int | None:
        """The next limit, deadline, self test, end of a pause, held start or forgetting."""
        return next_ms(state, after_ms)

    def dump(self, state: ScheduleState) -> bytes:
        """Canonical JSON."""
        return self.formats.lowered(dump_schedule(state, self._dumps), self.level)

    def capture(self, state: ScheduleState) -> Callable[[], bytes]:
        """The same for later."""
        written = capture_schedule(state, self._dumps)
        return lambda: self.formats.lowered(written(), self.level)

    def load(self, data: bytes) -> ScheduleState:
        """The state back, indexes included. Raises BrokenInvariant on bytes of another version."""
        return load_schedule(data)
