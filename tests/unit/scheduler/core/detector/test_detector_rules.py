"""Stragglers, devices, waiting for data and for saves: each said once, with numbers and since when, and lifted once."""

from typing import Any

import pytest

from tests.support.detector_world import Gang, Listener, beat, hear_for
from trainhouse.events import EventId
from trainhouse.scheduler.core.detector import IssuedVerdict, recall, still_standing


def device(**health: Any) -> list[dict[str, Any]]:
    return [{"device_id": "gpu-0", "utilization_pct": 95.0, "sm_clock_mhz": 1900.0, "max_sm_clock_mhz": 1980.0} | health]


def test_a_straggler_is_said_once_with_how_much_and_since_when() -> None:
    gang, d = Gang(ranks=2, work_time_ms=100.0, fastest_work_time_ms=98.0), Listener()
    assert hear_for(d, gang, 60) == []
    gang.fields[1]["work_time_ms"] = 150.0
    since_ms = gang.now_ms + 1000
    assert hear_for(d, gang, 30) == []
    assert hear_for(d, gang, 60) == ["StragglerDetected"]
    event: Any = d.said[-1].event
    assert (event.rank, event.node_id, event.device_id, event.since_ms) == (1, "n", "d1", since_ms)
    assert event.slowdown == pytest.approx(1.53, abs=0.01) and "150 ms a step against 98 ms" in event.evidence
    gang.fields[1]["work_time_ms"] = 99.0
    assert hear_for(d, gang, 30) == []
    assert hear_for(d, gang, 60) == ["lifted rank.straggler"]
    lifted: Any = d.said[-1].event
    assert (lifted.job_id, lifted.epoch, lifted.rank, lifted.since_ms, lifted.node_id) == ("j", 1, 1, since_ms, "n")


def test_a_rank_that_is_slow_now_and_then_is_no_straggler() -> None:
    gang, d = Gang(ranks=1, work_time_ms=100.0, fastest_work_time_ms=98.0), Listener()
    for _ in range(20):
        gang.every(work_time_ms=200.0)
        assert hear_for(d, gang, 20) == []
        gang.every(work_time_ms=100.0)
        assert hear_for(d, gang, 1) == []


def test_slowness_that_nobody_saw_lasted_no_time() -> None:
    gang, d = Gang(ranks=1, work_time_ms=200.0, fastest_work_time_ms=98.0), Listener()
    assert hear_for(d, gang, 20) == []
    assert d.hear(gang.beat(3600)) == []
    assert hear_for(d, gang, 10) == []
    assert hear_for(d, gang, 2) == ["StragglerDetected"]


def test_uncorrected_errors_that_rise_degrade_a_device_until_none_came_for_a_window() -> None:
    gang, d = Gang(ranks=1), Listener(ecc_errors=2)
    gang.devices = device(ecc_uncorrected=7)
    assert hear_for(d, gang, 100) == []
    gang.devices = device(ecc_uncorrected=8)
    assert hear_for(d, gang, 100) == []
    gang.devices = device(ecc_uncorrected=9)
    first_ms = gang.now_ms + 1000
    assert hear_for(d, gang, 10) == []
    gang.devices = device(ecc_uncorrected=10)
    assert hear_for(d, gang, 1) == ["DeviceDegraded"]
    event: Any = d.said[-1].event
    assert (event.fault, event.value, event.since_ms, event.device_id, event.boot_id) == ("ECC", 2, first_ms, "gpu-0", "b1")
    assert "2 new uncorrected" in event.evidence and "10 in all" in event.evidence
    assert hear_for(d, gang, 60) == []
    assert hear_for(d, gang, 60) == ["lifted device.degraded"]
    lifted: Any = d.said[-1].event
    assert (lifted.device_id, lifted.fault, lifted.since_ms) == ("gpu-0", "ECC", first_ms)


def test_errors_are_over_only_after_a_whole_window_in_which_they_were_counted() -> None:
    gang, first = Gang(ranks=1), Listener()
    gang.devices = device(ecc_uncorrected=0)
    hear_for(first, gang, 5)
    gang.devices = device(ecc_uncorrected=1)
    assert hear_for(first, gang, 5) == ["DeviceDegraded"]
    known: dict[str, Any] = {}
    recall(known, IssuedVerdict(first.said[0].name, first.said[0].event, "n"))
    second = Listener()
    second.state = second.machine.begin(known)
    assert hear_for(second, gang, 60) == []
    assert hear_for(second, gang, 1) == ["lifted device.degraded"]


def test_errors_are_told_again_after_a_boot() -> None:
    gang, d = Gang(ranks=1), Listener()
    gang.devices = device(ecc_uncorrected=0)
    hear_for(d, gang, 5)
    gang.devices = device(ecc_uncorrected=1)
    assert hear_for(d, gang, 5) == ["DeviceDegraded"]
    gang.boot_id, gang.incarnation, gang.devices = "b2", "i2", device(ecc_uncorrected=0)
    assert hear_for(d, gang, 5) == ["lifted device.degraded"]
    gang.devices = device(ecc_uncorrected=1)
    assert hear_for(d, gang, 5) == ["DeviceDegraded"] and d.said[-1].event.boot_id == "b2"  # type: ignore[attr-defined]


def test_a_count_of_errors_that_goes_back_or_comes_with_a_boot_is_no_error() -> None:
    gang, d = Gang(ranks=1), Listener()
    for boot, count in (("b1", 9), ("b1", 0), ("b2", 50)):
        gang.boot_id, gang.devices = boot, device(ecc_uncorrected=count)
        assert hear_for(d, gang, 5) == []


def test_many_errors_are_kept_in_bounds_and_still_counted() -> None:
    gang, d, found = Gang(ranks=1), Listener(ecc_errors=50), []
    for count in range(60):
        gang.devices = device(ecc_uncorrected=count)
        found += hear_for(d, gang, 1)
    assert found == ["DeviceDegraded"]
    assert len(d.state.nodes["n"].devices["gpu-0"].rises) <= 32


def test_a_device_that_throttles_all_the_time_is_degraded() -> None:
    gang, d = Gang(ranks=1), Listener()
    for _ in range(10):
        gang.devices = device(throttled=True, temperature_c=91.0)
        assert hear_for(d, gang, 50) == []
        gang.devices = device(throttled=False)
        assert hear_for(d, gang, 1) == []
    gang.devices = device(throttled=True, temperature_c=91.0)
    assert hear_for(d, gang, 100) == ["DeviceDegraded"]
    event: Any = d.said[-1].event
    assert event.fault == "THROTTLED" and "91 °C" in event.evidence
    gang.devices = device(throttled=False)
    assert hear_for(d, gang, 100) == ["lifted device.degraded"]


@pytest.mark.parametrize("known_best", [True, False])
def test_a_clock_that_fell_counts_only_under_load(known_best: bool) -> None:
    gang, d = Gang(ranks=1), Listener()
    most = {"max_sm_clock_mhz": 1980.0 if known_best else None}
    gang.devices = device(**most)
    assert hear_for(d, gang, 100) == []
    gang.devices = device(**most, sm_clock_mhz=345.0, utilization_pct=0.0)
    assert hear_for(d, gang, 1000) == []
    gang.devices = device(**most, sm_clock_mhz=1100.0)
    assert hear_for(d, gang, 59) == []
    assert hear_for(d, gang, 3) == ["DeviceDegraded"]
    event: Any = d.said[-1].event
    assert event.fault == "SLOW_CLOCK" and event.value == pytest.approx(0.56 if known_best else 0.58, abs=0.01)
    gang.devices = device(**most, sm_clock_mhz=345.0, utilization_pct=0.0)
    assert hear_for(d, gang, 1000) == []
    gang.devices = device(**most)
    assert hear_for(d, gang, 100) == ["lifted device.degraded"]


def wait(d: Listener, gang: Gang, seconds: int, share: float, total: str, *ranks: int) -> list[str]:
    found = []
    for _ in range(seconds):
        for n in ranks:
            gang.fields[n][total] = gang.fields[n].get(total, 0.0) + share
        found += hear_for(d, gang, 1)
    return found


def test_a_rank_that_waits_for_its_data_is_said_and_lifted() -> None:
    gang, d = Gang(ranks=2), Listener()
    assert wait(d, gang, 200, 0.2, "data_wait_s", 0, 1) == []
    assert wait(d, gang, 100, 0.5, "data_wait_s", 1) == ["DataStalled"]
    event: Any = d.said[-1].event
    assert event.rank == 1 and event.wait_share >= 0.3 and 60 <= event.window_s < 75
    assert 0 <= gang.now_ms - event.since_ms - 1000 * event.window_s < 100_000 and "rank 1 on n spent" in event.evidence
    assert wait(d, gang, 100, 0.1, "data_wait_s", 1) == ["lifted gang.data-stalled"]


def test_slow_saves_are_said_by_the_node_of_rank_0_alone() -> None:
    first, second = Gang(ranks=2), Gang(ranks=2, first_rank=2)
    for gang, expected in ((first, ["StoreSlow"]), (second, [])):
        d = Listener()
        assert wait(d, gang, 100, 0.1, "save_stall_s", *gang.fields) == []
        assert wait(d, gang, 100, 0.3, "save_stall_s", *gang.fields) == expected
        assert wait(d, gang, 100, 0.0, "save_stall_s", *gang.fields) == [f"lifted {'gang.store-slow'}" for _ in expected]


def test_totals_that_begin_anew_or_clocks_that_jump_are_no_stall() -> None:
    gang, d = Gang(ranks=1), Listener()
    assert wait(d, gang, 100, 0.1, "data_wait_s", 0) == []
    gang.fields[0]["data_wait_s"] = 0.0
    assert wait(d, gang, 100, 0.1, "data_wait_s", 0) == []
    gang.now_ms -= 3_600_000
    gang.moved_ms[0] = gang.now_ms
    assert wait(d, gang, 100, 0.1, "data_wait_s", 0) == []


def test_what_is_remembered_is_bounded_by_what_the_heartbeats_speak_of() -> None:
    d = Listener()
    for epoch in range(10):
        gang = Gang(ranks=4, epoch=epoch)
        gang.sequence, gang.now_ms = epoch * 300, gang.now_ms + epoch * 300_000
        gang.devices = [dev | {"device_id": f"gpu-{epoch}"} for dev in device()]
        hear_for(d, gang, 300, every_s=0.5 if epoch % 2 else 5)
        node = d.state.nodes["n"]
        assert (len(node.attempts), len(node.devices), len(node.stands)) == (1, 1, 0)
        assert all(len(m.waits.samples) < 10 for a in node.attempts.values() for m in a.ranks.values())


def test_a_detector_that_begins_says_nothing_twice_and_lifts_what_others_said() -> None:
    gang, first = Gang(ranks=1, work_time_ms=200.0, fastest_work_time_ms=98.0), Listener()
    gang.devices = device(throttled=True)
    assert sorted(hear_for(first, gang, 100)) == ["DeviceDegraded", "StragglerDetected"]
    known: dict[str, Any] = {}
    for said in first.said:
        recall(known, IssuedVerdict(said.name, said.event, "n"))
    second = Listener()
    second.state = second.machine.begin(known)
    assert hear_for(second, gang, 100) == []
    gang.every(work_time_ms=98.0)
    assert hear_for(second, gang, 100) == ["lifted rank.straggler"]
    recall(known, second.said[-1])
    assert [s.of for s in known["n"].values()] == ["trainhouse.device.degraded.v1"]
    gang.devices = device(throttled=False)
    assert hear_for(second, gang, 100) == ["lifted device.degraded"]
    recall(known, second.said[-1])
    assert known == {}


def test_a_lost_node_that_speaks_again_is_lifted_by_another_detector_but_not_by_what_is_read_once_more() -> None:
    gang, first = Gang(ranks=1), Listener()
    old = [gang.beat() for _ in range(3)]
    first.listen(1)
    for heartbeat in old:
        first.hear(heartbeat)
    assert first.listen(20) == ["NodeSuspected", "NodeLost"]
    known: dict[str, Any] = {}
    for said in first.said:
        recall(known, said)
    second = Listener()
    second.state = second.machine.begin(known)
    for heartbeat in old:
        assert second.hear(heartbeat) == []
    assert second.listen(20) == []
    assert sorted(second.hear(gang.beat())) == ["lifted node.lost", "lifted node.suspected"]


def test_of_the_past_only_what_still_holds_is_said() -> None:
    gang, d = Gang(ranks=1, work_time_ms=200.0, fastest_work_time_ms=98.0), Listener()
    hear_for(d, gang, 50)
    gang.devices = device(throttled=True)
    gang.every(work_time_ms=98.0)
    hear_for(d, gang, 100)
    assert len(d.said) == 3
    assert [type(s.event).__name__ for s in still_standing(d.state, d.said)] == ["DeviceDegraded"]


@pytest.mark.parametrize("incarnation", ["a\x00b", "é", "x\n", "y" * 1000])
def test_a_verdict_has_an_id_whatever_an_agent_calls_its_incarnation(incarnation: str) -> None:
    """One heartbeat with a NUL there ended the detector when its node fell silent."""
    listener = Listener()
    for sequence in range(5):
        listener.hear(beat(sequence, incarnation=incarnation, at_ms=sequence * 1000))
        listener.listen(1)
    listener.listen(120)
    names = [said.name for said in listener.said]
    assert names and all(EventId.pattern.fullmatch(name) for name in names)
    assert len(set(names)) == len(names)
