"""Laws of the detector: nothing that is healthy is condemned, whatever is late, lost or not looked at; what hangs or dies is found."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.detector_world import Gang, Listener, hear_for
from tests.support.profiles import examples
from trainhouse.events import NodeHeartbeat
from trainhouse.scheduler.core.detector import Standings, recall, still_standing

seconds = st.integers(1, 90)
TROUBLE = st.one_of(
    st.tuples(st.just("beats"), seconds),
    st.tuples(st.just("late"), st.lists(st.integers(0, 3000), min_size=1, max_size=20)),
    st.tuples(st.just("lost"), st.integers(1, 4)),
    st.tuples(st.just("detector paused"), st.integers(1, 600)),
    st.tuples(st.just("brokers away"), st.integers(1, 900)),
    st.tuples(st.just("agent restarted"), st.integers(1, 12)),
    st.tuples(st.just("machine paused"), st.integers(1, 600)),
    st.tuples(st.just("clock jumps"), st.integers(-4000, 4000)),
    st.tuples(st.just("saves"), st.integers(1, 100)),
    st.tuples(st.just("waits for data"), st.integers(1, 15)),
    st.tuples(st.just("detector restarted"), st.just(0)),
    st.tuples(st.just("read again"), st.integers(1, 30)),
)


class World:
    """A node with a healthy gang, and a detector that ticks twice a second, in one time."""

    def __init__(self, step_s: float) -> None:
        self.gang = Gang(ranks=2, step_s=step_s, work_time_ms=10.0, fastest_work_time_ms=9.0)
        self.gang.devices = [
            {"device_id": "gpu-0", "utilization_pct": 97.0, "sm_clock_mhz": 1800.0, "ecc_uncorrected": 0, "throttled": False}
        ]
        self.listener = Listener(stall_window_s=3600)
        self.sent: list[NodeHeartbeat] = []
        self.listener.listen(1)

    def tick(self, span_ms: int, reading: bool = True) -> None:
        while span_ms > 0:
            step_ms = min(span_ms, 500)
            self.listener.listen(step_ms / 1000, reading, step_ms)
            span_ms -= step_ms

    def beat(self, after_s: float = 1.0, heard_after_ms: int = 0) -> None:
        heartbeat = self.gang.beat(after_s)
        self.tick(int(after_s * 1000) + heard_after_ms)
        self.sent.append(heartbeat)
        self.listener.hear(heartbeat)

    def happens(self, what: str, how: Any) -> None:
        gang, listener = self.gang, self.listener
        match what:
            case "beats":
                for _ in range(how):
                    self.beat()
            case "late":
                for late_ms in how:
                    self.beat(heard_after_ms=late_ms)
            case "lost":
                for _ in range(how):
                    gang.beat()
                    self.tick(1000)
            case "detector paused" | "brokers away":
                missed = [gang.beat() for _ in range(how)]
                self.listener.now_ms += 1000 * how
                if what == "detector paused":
                    for heartbeat in missed:
                        listener.hear(heartbeat)
                else:
                    listener.listen(1, reading=False)
            case "agent restarted":
                gang.advance(how)
                self.tick(1000 * how)
                gang.incarnation, gang.sequence = f"{gang.incarnation}'", 0
            case "machine paused":
                self.listener.now_ms += 1000 * how
                gang.now_ms += 1000 * how
                for n in gang.fields:
                    gang.moved_ms[n] += 1000 * how
            case "clock jumps":
                gang.now_ms += 1000 * how
                gang.moved_ms = dict.fromkeys(gang.fields, gang.now_ms)
                gang.pulse_ms = dict.fromkeys(gang.fields, gang.now_ms)
            case "saves" | "waits for data":
                gang.doing("SAVING" if what == "saves" else "WAITING_FOR_DATA")
                for _ in range(how):
                    self.beat()
                gang.doing("STEPPING")
            case "detector restarted":
                self.restart()
            case "read again":
                for heartbeat in self.sent[-how:]:
                    listener.hear(heartbeat)
        self.beat()

    def restart(self) -> None:
        """Another detector reads back what was said, and the heartbeats of the last minutes."""
        listener, known = self.listener, Standings()
        for said in listener.said:
            recall(known, said)
        listener.state = listener.machine.begin(known)
        past = [said for beat in self.sent[-180:] for said in listener.machine.on_heartbeat(listener.state, beat, listener.now_ms)]
        listener.said += still_standing(listener.state, past)


def harmful(world: World) -> list[str]:
    """Verdicts on which somebody would act. A suspicion takes nothing from anybody."""
    return [type(s.event).__name__ for s in world.listener.said if "suspected" not in s.name]


@settings(max_examples=examples(40))
@given(st.sampled_from([0.05, 0.9, 3.0, 20.0]), st.lists(TROUBLE, max_size=12))
def test_no_verdict_on_what_is_healthy(step_s: float, troubles: list[tuple[str, Any]]) -> None:
    world = World(step_s)
    for what, how in troubles:
        world.happens(what, how)
    assert harmful(world) == []


@settings(max_examples=examples(40))
@given(st.sampled_from([0.05, 0.9, 3.0, 20.0]), st.lists(TROUBLE, max_size=6), st.booleans())
def test_a_real_hang_is_found_at_the_first_heartbeat_after_its_limit(step_s: float, troubles: list[tuple[str, Any]], stopped: bool) -> None:
    world = World(step_s)
    for what, how in troubles:
        world.happens(what, how)
    if stopped:
        world.gang.frozen = {0, 1}
    world.gang.waiting = {0, 1}
    # Up to one step's worth of stillness lies before, and a jump of the clock just now takes the stillness of one heartbeat away.
    limit_s = max(3 * step_s, 5 if stopped else 30)
    for _ in range(int(limit_s) + 3):
        world.beat()
    assert harmful(world) == ["GangHung"]
    assert world.listener.said[-1].event.limit_s == limit_s  # type: ignore[attr-defined]
    world.gang.frozen, world.gang.waiting = set(), set()
    for _ in range(int(step_s) + 3):
        world.beat()
    assert harmful(world) == ["GangHung", "VerdictLifted"]


@settings(max_examples=examples(30))
@given(st.lists(TROUBLE, max_size=6))
def test_a_node_that_dies_is_lost_within_its_limit(troubles: list[tuple[str, Any]]) -> None:
    world = World(1.0)
    world.beat()
    for what, how in troubles:
        world.happens(what, how)
    world.tick(16_000 * 5)  # its own rhythm may have become five times slower by all that happened to it, not more
    assert harmful(world) == ["NodeLost"]


def test_hundreds_of_attempts_leave_nothing_behind() -> None:
    world = World(0.05)
    for epoch in range(300):
        world.gang.epoch = epoch
        hear_for(world.listener, world.gang, 3)
    node = world.listener.state.nodes["n"]
    assert len(node.attempts) == 1 and len(node.attempts["j:299"].ranks) == 2 and not node.stands and len(node.devices) == 1
