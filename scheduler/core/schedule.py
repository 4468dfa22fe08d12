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
    Envelope,
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
    PoolName,
    ProgressReported,
    ProjectLimited,
    RankExited,
    SessionOpened,
)
from trainhouse.events.model.bad_shard import BadShardFound, BadShardNoted, TooManyBadSamples
from trainhouse.events.model.handover import (
    DetourEnded,
    FenceSent,
    HandoverClosed,
    InputRedirected,
    PoolFence,
    PoolHandedOver,
    PoolPart,
    PoolPartReceived,
    PoolTaken,
    RedirectedInput,
)
from trainhouse.events.model.job_outputs import OutputAnswered, OutputsNoted, OutputsRequested, OutputsSealed
from trainhouse.events.model.pool import CycleRan
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.events.wire.redirected import unwrapped
from trainhouse.events.wire.topics import DECISIONS
from trainhouse.scheduler.core.attempts.job_outputs import OUTPUTS_SINCE
from trainhouse.scheduler.core.cycle.cycle import run_cycle
from trainhouse.scheduler.core.effects import effects_of
from trainhouse.scheduler.core.errors import UnexpectedInput
from trainhouse.scheduler.core.handlers import bad_data, handover, nodes, outputs, reports, requests, review, self_tests, verdicts
from trainhouse.scheduler.core.handlers.handover import MOVES_SINCE
from trainhouse.scheduler.core.handlers.pool_changes import CHANGES
from trainhouse.scheduler.core.handlers.timers import next_ms, on_tick
from trainhouse.scheduler.core.placement.stage import Cycle, place_waiting
from trainhouse.scheduler.core.protocol.levels import KNOWN_LEVELS
from trainhouse.scheduler.core.protocol.machine import Condition, Effect, Input, Leveled
from trainhouse.scheduler.core.protocol.snapshot_steps import SCHEDULE_FORMATS
from trainhouse.scheduler.core.state.draft import Draft
from trainhouse.scheduler.core.state.fold import fold_decision
from trainhouse.scheduler.core.state.snapshot import Dumps, capture_schedule, dump_schedule, load_schedule
from trainhouse.scheduler.core.state.state import ScheduleState

_REQUESTS: Final[dict[type[Event], Callable[[Draft, Any], None]]] = {
    JobAdmitted: requests.on_admitted,
    CancelJob: requests.on_cancel,
    ChangeJob: requests.on_change,
    PoolCreated: requests.on_pool,
    ProjectLimited: requests.on_limited,
}
_REPORTS: Final[dict[type[Event], Callable[[Draft, Any], None]]] = {
    NodeLost: nodes.on_lost,
    AttemptStarted: reports.on_started,
    LaunchFailed: reports.on_launch_failed,
    RankExited: reports.on_rank_exited,
    AttemptStopped: reports.on_stopped,
    SessionOpened: reports.on_session,
    CheckpointCompleted: reports.on_checkpoint,
    LossDiverged: verdicts.on_diverged,
    BadShardFound: bad_data.on_bad_shard,
    TooManyBadSamples: bad_data.on_too_many,
    OutputsSealed: outputs.on_sealed,
    OutputAnswered: outputs.on_answered,
    GangHung: verdicts.on_hung,
    DeviceDegraded: verdicts.on_degraded,
    NodeNoticed: verdicts.on_noticed,
    NodeProbed: self_tests.on_probed,
}
_OF_SCHEDULERS: Final = (PoolPart, PoolFence, RedirectedInput)
_OF_MOVES: Final[tuple[type[Event], ...]] = (
    PoolHandedOver,
    PoolPart,
    PoolPartReceived,
    PoolTaken,
    InputRedirected,
    HandoverClosed,
    FenceSent,
    DetourEnded,
)


class ScheduleMachine(Leveled):
    """The machine of `trainhouse.decisions`. Its inputs are what control carries, and ClockTicked."""

    name = "schedule"
    decide_version, fold_version, lowest_level = KNOWN_LEVELS[DECISIONS]
    formats = SCHEDULE_FORMATS
    since: Mapping[str, int] = {
        **dict.fromkeys((kind.event_type for kind in _OF_MOVES), MOVES_SINCE),
        BadShardNoted.event_type: review.BAD_SAMPLES_SINCE,
        **dict.fromkeys((kind.event_type for kind in (OutputsNoted, OutputsRequested, OutputAnswered)), OUTPUTS_SINCE),
    }
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

    def read_ahead(self, state: ScheduleState, events: Sequence[Event]) -> Callable[[], Callable[[], None]] | None:
        """A pool that arrives with these."""
        return handover.read_ahead(state, events)

    def after_refusal(self, state: ScheduleState, refused: Envelope, reason: str) -> Event | None:
        """A job of which an input cannot be handled is sent to review."""
        event = unwrapped(refused.event).event if isinstance(refused.event, RedirectedInput) else refused.event
        return review.after_failure(state, event, reason)

    def _handle(self, draft: Draft, item: Input) -> None:
        kind = type(item.event)
        if kind is ClockTicked:
            on_tick(draft)
            place_waiting(draft, self._cycle, self.decide_version)
        elif kind in _OF_SCHEDULERS:
            if not handover.is_repeat(draft, item.envelope):
                self._of_scheduler(draft, item)
        elif (pool := handover.leads_elsewhere(draft, item)) is not None:
            if kind in _REPORTS or kind is ProgressReported or not requests.is_repeat(draft, item.envelope):
                handover.redirect(draft, item, pool)
        elif kind in _REPORTS or kind is ProgressReported or not requests.is_repeat(draft, item.envelope):
            self._take(draft, item.envelope, by_owner=item.offset is None)

    def _of_scheduler(self, draft: Draft, item: Input) -> None:
        """Handles an input from the scheduler of another partition: a pool, or an input about one."""
        event = item.event
        if isinstance(event, PoolPart):
            handover.on_part(draft, event)
            return
        assert isinstance(event, RedirectedInput | PoolFence)
        if isinstance(event, RedirectedInput) and event.to_partition != draft.state.partition:
            raise UnexpectedInput(f"an input about pool {event.pool} is for partition {event.to_partition}, not {draft.state.partition}")
        if isinstance(event, RedirectedInput) and event.pool in draft.state.pools:
            self._take(draft, unwrapped(event), relayed=True)
        elif event.pool in draft.state.moved:
            handover.redirect(draft, item, event.pool)
        else:
            raise UnexpectedInput(f"pool {event.pool} is not on partition {draft.state.partition}, nor was it before")

    def _take(self, draft: Draft, envelope: Envelope, *, by_owner: bool = False, relayed: bool = False) -> None:
        event, kind = envelope.event, type(envelope.event)
        if isinstance(event, ProgressReported):
            reports.on_progress(draft, event, by_owner=by_owner)
        elif isinstance(event, NodeRegistered):
            nodes.on_registered(draft, event, relayed=relayed)
        elif isinstance(event, PoolFence) and relayed:
            handover.on_fence(draft, event)
        elif kind in _REPORTS:
            _REPORTS[kind](draft, event)
        elif kind in CHANGES:
            CHANGES[kind](draft, envelope)
        elif kind in _REQUESTS:
            _REQUESTS[kind](draft, event)
        else:
            raise UnexpectedInput(f"{event.event_type} ({envelope.id}) is nothing that the scheduler takes; see the topic table")

    def fold(self, state: ScheduleState, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> ScheduleState:
        """The state after a record, changed in place; the inputs are not looked at."""
        for decision in decisions:
            fold_decision(state, now_ms, decision)
        state.pool_reader.let_go()
        return state

    def effects(self, seq: int, now_ms: int, inputs: Sequence[Input], decisions: Sequence[Event]) -> list[Effect]:
        """Orders, statuses, pools and alerts of a record."""
        return list(effects_of(seq, now_ms, inputs, decisions))

    def condition(self, state: ScheduleState) -> Condition:
        """The pools, and the reason of a freeze; of a partition that is not frozen, also those that get their requests by way of it."""
        by_way = {PoolName(name) for name in state.moved} if state.frozen is None else set()
        pools = tuple(sorted({pool.name for pool in state.pools.values()} | by_way))
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
