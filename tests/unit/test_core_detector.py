"""The detector: silence that it listened to condemns a node once; its own blindness condemns nobody."""

from typing import Any

from trainhouse.events import NodeHeartbeat, NodeLost, NodeSuspected
from trainhouse.scheduler.core.detector import DetectorMachine, DetectorState


def beat(sequence: int, node_id: str = "n", incarnation: str = "i1", at_ms: int = 0, interval_s: float = 1, **more: Any) -> NodeHeartbeat:
    base = {"node_id": node_id, "boot_id": "b1", "incarnation": incarnation, "pool": "p", "sequence": sequence}
    return NodeHeartbeat.model_validate(base | {"at_ms": at_ms, "interval_s": interval_s} | more)


class Listener:
    def __init__(self) -> None:
        self.machine = DetectorMachine()
        self.state: DetectorState = self.machine.initial()
        self.now_ms = 0
        self.verdicts: list[Any] = []

    def listen(self, seconds: int, reading: bool = True, step_ms: int = 1000) -> list[type]:
        """Ticks through some seconds; the kinds of verdicts that came."""
        found: list[Any] = []
        for _ in range(seconds * 1000 // step_ms):
            self.now_ms += step_ms
            found += self.machine.tick(self.state, self.now_ms, reading)
        self.verdicts += found
        return [type(v) for v in found]


def test_a_silent_node_is_suspected_and_then_lost_once() -> None:
    d = Listener()
    d.listen(1)
    d.machine.heard(d.state, beat(0))
    assert d.listen(4) == []
    assert d.listen(1) == [NodeSuspected]
    assert d.listen(9) == []
    assert d.listen(1) == [NodeLost]
    assert d.listen(60) == []
    lost = d.verdicts[-1]
    assert (lost.boot_id, lost.incarnation, lost.silent_s) == ("b1", "i1", 15.0)


def test_limits_follow_the_nodes_own_rhythm() -> None:
    d = Listener()
    d.listen(1)
    d.machine.heard(d.state, beat(0, interval_s=4))
    assert d.listen(59) == [NodeSuspected]
    assert d.listen(1) == [NodeLost]


def test_silence_counts_only_while_the_detector_reads() -> None:
    d = Listener()
    d.listen(1)
    d.machine.heard(d.state, beat(0))
    assert d.listen(600, reading=False) == []
    assert d.listen(4) == []


def test_a_paused_detector_condemns_nobody() -> None:
    d = Listener()
    d.listen(1)
    d.machine.heard(d.state, beat(0))
    d.now_ms += 3_600_000
    assert d.listen(2) == []


def test_a_restarted_detector_goes_on_counting_from_what_it_kept() -> None:
    d = Listener()
    d.listen(1)
    d.machine.heard(d.state, beat(0))
    d.listen(10)
    d.state = d.machine.load(d.machine.dump(d.state))
    d.now_ms += 3_600_000
    assert d.listen(5) == []
    assert d.listen(1) == [NodeLost]


def test_a_heartbeat_ends_the_silence_and_a_new_silence_is_judged_again() -> None:
    d = Listener()
    d.listen(1)
    d.machine.heard(d.state, beat(0))
    d.listen(20)
    d.machine.heard(d.state, beat(1))
    assert d.listen(15) == [NodeSuspected, NodeLost]


def test_a_repeated_or_older_heartbeat_is_no_sign_of_life() -> None:
    d = Listener()
    d.listen(1)
    d.machine.heard(d.state, beat(5, at_ms=5_000))
    d.listen(10)
    d.machine.heard(d.state, beat(5, at_ms=5_000))
    d.machine.heard(d.state, beat(4, at_ms=4_000))
    d.machine.heard(d.state, beat(900, incarnation="i0", at_ms=100))
    assert d.listen(5) == [NodeLost]


def test_nodes_that_are_gone_for_a_day_are_forgotten() -> None:
    d = Listener()
    d.listen(1)
    d.machine.heard(d.state, beat(0))
    d.listen(86_402, step_ms=2_000)
    assert d.state.nodes == {}
