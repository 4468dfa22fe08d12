"""Silence of nodes: what was listened to condemns a node once; the detector's own blindness condemns nobody."""

import math

import pytest

from tests.support.detector_world import Listener, beat
from trainhouse.events.model.failure_policy import Detection
from trainhouse.scheduler.core.detector.heartbeat_stats import PHI, WINDOW, Rhythm, phi_of
from trainhouse.scheduler.core.detector.silence import UNUSUAL_PHI, Liveness, standing_after


def test_a_silent_node_is_suspected_and_then_lost_once() -> None:
    d = Listener()
    d.listen(1)
    d.hear(beat(7))
    assert d.listen(4) == []
    assert d.listen(1) == ["NodeSuspected"]
    assert d.listen(9) == []
    assert d.listen(1) == ["NodeLost"]
    assert d.listen(60) == []
    lost = d.said[-1]
    assert lost.name == "trainhouse.node.lost.v1:n:i1:7"
    assert (lost.event.boot_id, lost.event.incarnation, lost.event.silent_s, lost.event.sequence) == ("b1", "i1", 15.0, 7)  # type: ignore[attr-defined]


def test_limits_follow_the_interval_that_the_node_promised() -> None:
    d = Listener()
    d.listen(1)
    d.hear(beat(0, interval_s=4))
    assert d.listen(59) == ["NodeSuspected"]
    assert d.listen(1) == ["NodeLost"]


def test_limits_are_those_of_the_pool_and_a_new_policy_counts_at_once() -> None:
    d = Listener()
    d.machine.apply("p", Detection(suspected_beats=3, lost_beats=4))
    d.listen(1)
    d.hear(beat(0))
    d.hear(beat(0, node_id="elsewhere", pool="q"))
    assert d.listen(3) == ["NodeSuspected"]
    assert d.listen(1) == ["NodeLost"]
    assert d.listen(1) == ["NodeSuspected"]
    d.machine.apply("q", Detection(suspected_beats=2, lost_beats=6))
    assert d.listen(1) == ["NodeLost"]


def test_an_interval_that_is_no_number_is_a_long_one() -> None:
    d = Listener()
    d.listen(1)
    d.hear(beat(0, interval_s="NaN"))
    assert d.listen(299) == [] and d.listen(1) == ["NodeSuspected"]


def heard_at(d: Listener, gaps_s: list[int]) -> None:
    for number, gap_s in enumerate(gaps_s):
        assert "NodeLost" not in d.listen(gap_s)
        d.hear(beat(number))


def test_a_node_that_is_often_late_is_suspected_later_than_a_punctual_one() -> None:
    late, punctual = Listener(), Listener()
    heard_at(late, [1, 1, 4, 1, 1, 4] * 4)
    heard_at(punctual, [1] * 24)
    assert punctual.listen(5) == ["NodeSuspected"]
    assert late.listen(5) == []
    assert late.listen(8) == ["NodeSuspected"]
    assert late.said[-1].event.suspicion >= 8  # type: ignore[attr-defined]


def test_phi_is_the_tail_of_the_normal_distribution() -> None:
    for deviations, phi in enumerate(PHI):
        assert phi == pytest.approx(-math.log10(math.erfc(deviations / math.sqrt(2)) / 2), abs=1e-4)
    assert phi_of(-1) == 0 and phi_of(100) == PHI[-1]
    values = [phi_of(n / 10) for n in range(100)]
    assert values == sorted(values)


def test_a_rhythm_forgets_and_is_bounded() -> None:
    rhythm = Rhythm()
    for gap_ms in [9000] * 50 + [1000] * WINDOW:
        rhythm.add(gap_ms)
    assert len(rhythm.gaps_ms) == WINDOW and rhythm.mean_ms(1000) == 1000 and rhythm.deviation_ms(1000) == 250


def test_silence_counts_only_while_the_detector_reads() -> None:
    d = Listener()
    d.listen(1)
    d.hear(beat(0))
    assert d.listen(600, reading=False) == []
    assert d.listen(4) == []


def test_a_paused_detector_condemns_nobody() -> None:
    d = Listener()
    d.listen(1)
    d.hear(beat(0))
    d.now_ms += 3_600_000
    assert d.listen(2) == []


def test_a_heartbeat_ends_the_silence_and_a_new_silence_is_judged_again() -> None:
    d = Listener()
    d.listen(1)
    d.hear(beat(0))
    d.listen(20)
    assert d.hear(beat(1)) == ["lifted node.suspected", "lifted node.lost"]
    assert d.said[-1].name == "trainhouse.verdict.lifted.v1:trainhouse.node.lost.v1:n:i1:0"
    assert d.hear(beat(2)) == []
    assert d.listen(15) == ["NodeSuspected", "NodeLost"]


def test_a_repeated_or_older_heartbeat_is_no_sign_of_life() -> None:
    d = Listener()
    d.listen(1)
    d.hear(beat(899, incarnation="i0", at_ms=50))
    d.hear(beat(5, at_ms=5_000))
    d.listen(10)
    d.hear(beat(5, at_ms=5_000))
    d.hear(beat(4, at_ms=4_000))
    d.hear(beat(900, incarnation="i0", at_ms=100))
    assert d.listen(5) == ["NodeLost"]


def test_an_agent_that_restarts_while_its_clock_goes_back_is_believed_once_the_old_one_is_silent() -> None:
    d = Listener()
    d.listen(1)
    d.hear(beat(100, at_ms=3_600_000))
    for number in range(40):
        d.listen(1)
        d.hear(beat(number, incarnation="i2", at_ms=1000 * number))
    assert d.listen(4) == []
    assert "NodeLost" not in [type(s.event).__name__ for s in d.said]


def test_nodes_that_are_gone_for_a_day_are_forgotten() -> None:
    d = Listener()
    d.listen(1)
    d.hear(beat(0))
    d.listen(86_404, step_ms=2_000)
    assert d.state.nodes == {}


def test_silence_makes_no_standing_better_and_only_an_unusual_one_makes_it_worse() -> None:
    limits = Detection()
    for silent_ms in (0, round(limits.suspected_beats * 1000)):
        assert standing_after(silent_ms, Rhythm(), 1.0, Liveness.LOST, limits) is Liveness.LOST
    assert standing_after(0, Rhythm(), 1.0, Liveness.SUSPECTED, limits) is Liveness.SUSPECTED
    late = Rhythm([100, 100, 100, 9_000] * 8)
    silent_ms = round(limits.suspected_beats * late.mean_ms(1000.0))
    assert late.phi(silent_ms, 1000.0) < UNUSUAL_PHI and silent_ms < limits.lost_beats * late.mean_ms(1000.0)
    assert standing_after(silent_ms, late, 1.0, Liveness.ALIVE, limits) is Liveness.ALIVE
    assert standing_after(silent_ms, Rhythm(), late.mean_ms(1000.0) / 1000, Liveness.ALIVE, limits) is Liveness.SUSPECTED
