"""The scheduler's machine at the size that it is meant for; untimed, it would not end if a decision cost more than it should."""

from tests.support.core_world import Driver, admitted, ending_with_a_tick, exited, policy_changed, registered, stopped
from trainhouse.events import Event, GangAllocated, JobState
from trainhouse.events.wire.journal import ClockTicked
from trainhouse.scheduler.core.schedule import ScheduleMachine


def test_ten_thousand_devices_and_five_thousand_waiting_jobs() -> None:
    machine, clock = ScheduleMachine(), Driver()
    state = machine.initial(0)
    decided: list[Event] = []

    def feed(*events: Event) -> None:
        nonlocal state
        inputs = [clock._input(e) for e in ending_with_a_tick(events)]
        decisions = machine.decide(state, clock.now_ms, inputs)
        state = machine.fold(state, clock.now_ms, inputs, decisions)
        decided.extend(decisions)

    feed(*(registered(f"n{i}", slots=8) for i in range(1250)))
    feed(policy_changed(blocking="strict", order="submit"))
    feed(admitted("whole", ranks=10_000), admitted("next", ranks=10_000))
    gang = next(d for d in decided if isinstance(d, GangAllocated))
    for i in range(0, 5000, 250):
        feed(*(admitted(f"j{n}", ranks=n % 8 + 1) for n in range(i, i + 250)))
    for _ in range(50):
        feed(ClockTicked())
    assert len(state.jobs) == 5002 and state.book.cluster.free("default") == 0
    feed(exited(gang, 0, 1))
    feed(*(stopped(gang, p.node_id) for p in gang.placements))
    assert state.jobs["whole"].epoch == 2, "nobody slipped past the whole fleet's gang"
    assert state.jobs["next"].phase.kind == JobState.PENDING.lower()
