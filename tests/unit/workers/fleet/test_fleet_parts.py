"""The emulator's parts: chance that repeats, timers, run times, faults, scripts, machines, loads."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fleet_stage import stage
from trainhouse.workers.fleet.durations import parse_durations
from trainhouse.workers.fleet.errors import InvalidPlanError
from trainhouse.workers.fleet.faults import FaultPlan, NodeFault, Rate, parse_faults
from trainhouse.workers.fleet.hardware import Hardware
from trainhouse.workers.fleet.job_load import MIXED, LoadPlan, Sizes
from trainhouse.workers.fleet.script_file import read_script
from trainhouse.workers.fleet.scripts import Defaults, Rule, Scripts
from trainhouse.workers.fleet.seeded_random import draw, pick
from trainhouse.workers.fleet.timers import MIN_SWEEP, Timers


@given(st.integers(0, 2**40), st.text(max_size=8))
def test_draws_repeat_and_stay_in_range(seed: int, name: str) -> None:
    assert draw(seed, name, 1) == draw(seed, name, 1) and 0 <= draw(seed, name) < 1
    assert draw(seed, name, 1) != draw(seed, name, 2)
    assert 0 <= pick(seed, 7, name) < 7


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=60), st.integers(0, 60))
def test_timers_run_what_is_due_in_order_and_nothing_cancelled(entries: list[tuple[int, bool]], now_ms: int) -> None:
    timers, ran = Timers(), []
    for number, (at_ms, cancelled) in enumerate(entries):
        timer = timers.at(at_ms, lambda _, key=(at_ms, number): ran.append(key))  # type: ignore[misc]
        if cancelled:
            timer.cancel()
            timer.cancel()
    timers.run(now_ms)
    assert ran == sorted((at, n) for n, (at, cancelled) in enumerate(entries) if at <= now_ms and not cancelled)
    left = [at for at, cancelled in entries if at > now_ms and not cancelled]
    assert timers.next_ms() == min(left, default=None)


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    for number in range(20 * MIN_SWEEP):
        timers.at(10**9 + number, lambda _: None).cancel()
    assert len(timers) < 3 * MIN_SWEEP


@pytest.mark.parametrize(("text", "low", "high"), [("30", 30, 30), ("10..20", 10, 20), ("exp:5", 0, 200), ("lognormal:60,1.5", 0, 1e6)])
def test_durations_are_of_their_kind_and_repeat(text: str, low: float, high: float) -> None:
    rule = parse_durations(text)
    drawn = [rule.run_s(1, f"j{i}") for i in range(500)]
    assert drawn == [parse_durations(text).run_s(1, f"j{i}") for i in range(500)]
    assert all(low <= d <= high and d > 0 for d in drawn)
    assert (len(set(drawn)) == 1) == (text == "30")


def test_means_and_medians_are_those_asked_for() -> None:
    exponential = [parse_durations("exp:5").run_s(3, f"j{i}") for i in range(4000)]
    assert 4.6 < sum(exponential) / 4000 < 5.4
    lognormal = sorted(parse_durations("lognormal:60,1.5").run_s(3, f"j{i}") for i in range(4000))
    assert 54 < lognormal[2000] < 66


def test_durations_of_a_trace_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"job_id,duration_s\na,100\nb,\nc,300\n"))
    drawn = {parse_durations(f"trace:{path},0.01").run_s(0, f"j{i}") for i in range(50)}
    assert drawn == {1.0, 3.0}
    path.write_bytes(gzip.compress(b"job_id,duration_s\na,soon\n"))
    with pytest.raises(InvalidPlanError, match=r"line 2.*'soon'"):
        parse_durations(f"trace:{path}")


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "20..10", "exp:", "exp:nan", "lognormal:1,x", "trace:/nowhere.csv", "1..inf"])
def test_a_wrong_duration_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(InvalidPlanError, match=r"10\.\.600"):
        parse_durations(text)


def test_faults_are_read() -> None:
    plan = parse_faults("die=2/h:120s, silent=4/h,crash=1%,slow=2%:7s,die=1/h:never")
    assert plan.rates == (Rate("die", 2, 120), Rate("silent", 4, 30), Rate("die", 1, None))
    assert (plan.crash_share, plan.slow_share, plan.slow_s) == (0.01, 0.02, 7)
    assert parse_faults("") == FaultPlan()


@pytest.mark.parametrize(
    "text", ["die", "die=2", "die=0/h", "die=x/h", "burn=1/h", "crash=1", "crash=101%", "silent=1/h:never", "slow=1%:never"]
)
def test_a_wrong_fault_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(InvalidPlanError, match=r"die=2/h"):
        parse_faults(text)


def test_rates_strike_about_as_often_as_asked() -> None:
    s = stage(nodes=50, faults=parse_faults("restart=60/h:1s"), heartbeat_s=60)
    s.run(10 * 3600 * 1000)
    assert 500 < sum(s.fleet.tally.faults.values()) + s.fleet.tally.passed_over < 700


def test_a_script_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("faults:\n- {at_s: 1.5, node: 3, kind: die, for_s: never}\njobs:\n- {name: 'b-*', run_s: 3, crash_s: 0}\n")
    found = read_script(path, 4)
    assert found.faults == (NodeFault(1500, 3, "die", None),)
    assert found.rules == (Rule("b-*", {"run_s": 3.0, "crash_s": 0.0}),)
    path.write_text("faults:\n- {busy_s: 1.5, node: 3, kind: die}\n- {busy_s: 2, kind: silent, for_s: lost}\n")
    first, second = read_script(path, 4).faults
    assert first == NodeFault(0, 3, "die", 120.0, busy_ms=1500)
    assert second == NodeFault(0, None, "silent", None, busy_ms=2000, until_lost=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "faults:"),
        ("fault: []", "faults:"),
        ("faults: [{at_s: 1, node: 4, kind: die}]", "entry 1 of `faults`: node 4"),
        ("faults: [{at_s: 1, node: 0, kind: burn}]", "no kind 'burn'"),
        ("faults: [{node: 0, kind: die}]", "'at_s' is missing"),
        ("faults: [{at_s: 1, node: 0, kind: die, who: me}]", "not who"),
        ("faults: [{at_s: 1, busy_s: 1, node: 0, kind: die}]", "not both"),
        ("faults: [{at_s: 1, kind: die}]", "'node' is missing"),
        ("faults: [{busy_s: -1, kind: die}]", "busy_s -1"),
        ("faults: [{busy_s: 1, kind: restart, for_s: lost}]", "only a node that is silent"),
        ("jobs: [{name: a, run: 3}]", "nothing like run"),
        ("jobs: [{name: a, run_s: 0}]", "run_s"),
        ("jobs: [3]", "key: value"),
        ("{", "cannot be read"),
    ],
)
def test_a_wrong_script_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(InvalidPlanError) as refused:
        read_script(path, 4)
    assert says in str(refused.value)


def test_a_jobs_own_words_go_before_the_script_and_that_before_the_options() -> None:
    rule = Rule("job", {"run_s": 7, "step_s": 2})
    s = stage(rules=(rule,), defaults=Defaults(step_s=9, save_s=4))
    event = s.gang("j", {0: [0]}, labels={"emulate.run_s": "3"}, env={"EMULATE_EXIT_CODE": "4", "OTHER": "x"})
    script = s.fleet.scripts.of(event)
    assert (script.run_ms, script.step_ms, script.save_ms, script.exit_code) == (3000, 2000, 4000, 4)
    assert script.total_steps == 2


def test_crashes_by_share_are_of_attempts() -> None:
    s = stage()
    scripts = Scripts(parse_durations("10"), faults=FaultPlan(crash_share=0.25))
    crashing = [scripts.of(s.gang(f"j{i}", {0: [0]})).crash_at_ms for i in range(400)]
    struck = [c for c in crashing if c is not None]
    assert 60 < len(struck) < 140 and all(0 <= c <= 10_000 for c in struck)


def test_racks_and_pods_fill_in_order_and_nodes_differ() -> None:
    hardware = Hardware("big", nodes=300, gpus_per_node=8, nodes_per_rack=16, racks_per_pod=8, spot_share=0.5)
    assert hardware.labels(0)["rack"] == hardware.labels(15)["rack"] != hardware.labels(16)["rack"]
    assert hardware.labels(127)["pod"] == "p0" and hardware.labels(128)["pod"] == "p1"
    assert 100 < sum(hardware.labels(i).get("spot") == "true" for i in range(300)) < 200
    facts = [hardware.facts(i) for i in range(300)]
    devices = [d for f in facts for d in f.devices.devices()]
    assert len({d.device_id for d in devices}) == 2400 and {d.type for d in devices} == {"H100"} and devices[0].memory_bytes == 80 * 2**30
    assert len({f.address for f in facts}) == 300 and len(facts[0].ports) == 8
    assert len(devices[0].nvlink_peers) == 7


def test_a_load_is_the_same_each_time_and_of_the_sizes_asked_for() -> None:
    plan = LoadPlan("l", "p", 5.0, 100, Sizes.parse("1:1,4:1"))
    assert [plan.job(n) for n in range(9)] == [plan.job(n) for n in range(9)]
    ranks = [plan.job(n).spec.gang.ranks for n in range(400)]
    assert set(ranks) == {1, 4} and 140 < ranks.count(4) < 260
    assert max(Sizes.parse(MIXED).at_most(80).ranks) == 64


@pytest.mark.parametrize("text", ["", "x:1", "0:1", "4:0", "4:x"])
def test_wrong_sizes_are_refused(text: str) -> None:
    with pytest.raises(InvalidPlanError):
        Sizes.parse(text)
    with pytest.raises(InvalidPlanError):
        Sizes.parse("8:1").at_most(4)
