"""Hung gangs: found one heartbeat after the limit at most, with the right ranks; never where nobody saw, or somebody is busy."""

from typing import Any

import pytest

from tests.support.detector_world import Gang, Listener, hear_for
from trainhouse.events.model.verdict import GangHung

HUNG = ["GangHung"]


def started(gang: Gang, seconds: float = 10, every_s: float = 1.0, **limits: Any) -> Listener:
    d = Listener(**limits)
    assert hear_for(d, gang, seconds, every_s) == []
    return d


def hung(d: Listener) -> GangHung:
    event = d.said[-1].event
    assert isinstance(event, GangHung)
    return event


@pytest.mark.parametrize(("step_s", "limit_s"), [(0.1, 5), (2, 6), (4, 12)])
def test_a_stopped_rank_is_found_at_the_first_heartbeat_after_the_limit(step_s: float, limit_s: float) -> None:
    gang = Gang(ranks=4, step_s=step_s)
    d = started(gang, 40)
    gang.frozen, gang.waiting = {2}, {0, 1, 3}
    still_s = max(gang.now_ms - moved for moved in gang.moved_ms.values()) / 1000
    assert hear_for(d, gang, limit_s - still_s - 0.99) == []
    assert hear_for(d, gang, still_s + 1.98) == HUNG
    event = hung(d)
    assert event.ranks == (2,) and event.step == gang.steps[2] and event.limit_s == limit_s
    assert limit_s <= event.silent_s <= limit_s + 1
    assert "rank 2" in event.evidence and "No pulse of rank 2" in event.evidence and "pid 102" in event.evidence
    assert event.activity is None
    assert hear_for(d, gang, 100) == []


def test_ranks_that_live_get_more_time_and_nobody_is_named() -> None:
    gang = Gang(ranks=2)
    d = started(gang)
    gang.waiting = {0, 1}
    assert hear_for(d, gang, 28) == []
    assert hear_for(d, gang, 2) == HUNG
    assert hung(d).ranks == () and "wait for one another" in hung(d).evidence


def test_a_rank_that_is_behind_is_named() -> None:
    gang = Gang(ranks=3)
    d = started(gang)
    gang.waiting = {1}
    gang.advance(0.5)
    gang.waiting = {0, 1, 2}
    assert hear_for(d, gang, 32) == HUNG
    assert hung(d).ranks == (1,) and "fewer steps" in hung(d).evidence


def test_a_rank_without_pulses_is_judged_by_the_limit_of_a_step() -> None:
    gang = Gang(ranks=1, pulse=False)
    d = started(gang)
    gang.waiting = {0}
    assert hear_for(d, gang, 6) == HUNG


def test_the_longest_step_and_the_policy_set_the_limit() -> None:
    gang = Gang(ranks=1, step_s=0.1, longest_step_ms=8_000)
    d = started(gang)
    gang.frozen = {0}
    assert hear_for(d, gang, 11) == []
    assert hear_for(d, gang, 2) == HUNG and hung(d).limit_s == 12
    gang = Gang(ranks=1, step_s=0.1)
    d = started(gang, hang_floor_s=0, longest_factor=0, hang_factor=20)
    gang.frozen = {0}
    assert hear_for(d, gang, 3) == HUNG and hung(d).limit_s == 2


def test_a_rank_that_never_spoke_is_not_judged() -> None:
    gang = Gang(ranks=2, pulse=False, step=None, step_at_ms=None, step_time_p99_ms=None)
    assert hear_for(Listener(start_limit_s=5), gang, 100) == []


def test_where_all_programs_speak_a_rank_that_never_does_hangs_at_a_limit_of_its_own() -> None:
    gang = Gang(ranks=2, pulse=False, step=None, step_at_ms=None, step_time_p99_ms=None)
    d = started(gang, 60, silent_start_limit_s=60)
    assert hear_for(d, gang, 1) == HUNG
    assert (hung(d).ranks, hung(d).step, hung(d).silent_s, hung(d).limit_s) == ((), None, 60, 60)
    assert "ranks 0-1 on n: no step for 60.0 s, before the first" in hung(d).evidence and "Not a word of ranks 0-1" in hung(d).evidence
    assert hear_for(d, gang, 100) == []


def test_a_rank_that_never_speaks_is_named_and_lends_its_patience_to_nobody() -> None:
    silent = {"step": None, "step_at_ms": None, "step_time_p99_ms": None, "pulse_at_ms": None, "activity": None, "activity_since_ms": None}
    gang = Gang(ranks=2)
    gang.fields[1] = silent
    d = started(gang, 40, silent_start_limit_s=60)
    assert hear_for(d, gang, 21) == HUNG and hung(d).ranks == (1,)
    gang = Gang(ranks=2)
    gang.fields[1] = silent
    d = started(gang, 10, silent_start_limit_s=600)
    gang.frozen = {0}
    assert hear_for(d, gang, 6) == HUNG and "No pulse of rank 0" in hung(d).evidence


def test_a_rank_that_speaks_late_is_judged_by_what_it_says() -> None:
    gang = Gang(ranks=1, pulse=False, step=None, step_at_ms=None, step_time_p99_ms=None)
    d = started(gang, 50, silent_start_limit_s=60)
    gang.pulse, gang.fields[0] = True, {}
    gang.moved_ms = dict.fromkeys(gang.fields, gang.now_ms)
    assert hear_for(d, gang, 100) == []


def test_a_start_has_its_own_limit() -> None:
    gang = Gang(ranks=2, step=None, step_at_ms=None, step_time_p99_ms=None, activity="STARTING")
    gang.frozen = {0}
    d = started(gang, 59, start_limit_s=60)
    assert hear_for(d, gang, 3) == HUNG and hung(d).step is None


@pytest.mark.parametrize(
    ("fields", "limit_s"),
    [
        ({"step_time_p99_ms": "NaN"}, 60),
        ({"longest_step_ms": "NaN"}, 5),
        ({"activity": "BUSY", "activity_limit_s": "NaN"}, 60),
    ],
)
def test_a_figure_that_is_no_number_says_nothing(fields: dict[str, Any], limit_s: float) -> None:
    gang = Gang(ranks=2, **fields)
    d = started(gang, start_limit_s=60)
    gang.frozen = {0, 1}
    assert hear_for(d, gang, limit_s - 1) == []
    assert hear_for(d, gang, 2) == HUNG and hung(d).limit_s == limit_s


@pytest.mark.parametrize(("activity", "fields", "limit_s"), [("SAVING", {}, 50), ("BUSY", {"activity_limit_s": 40}, 40), ("BUSY", {}, 90)])
def test_saving_and_announced_work_have_their_own_limits(activity: str, fields: dict[str, Any], limit_s: float) -> None:
    gang = Gang(ranks=2)
    d = started(gang, save_limit_s=50, start_limit_s=90)
    gang.doing(activity, **fields)
    assert hear_for(d, gang, limit_s - 1) == []
    assert hear_for(d, gang, 1) == HUNG and hung(d).limit_s == limit_s
    assert f", while {activity};" in hung(d).evidence and hung(d).activity == activity
    gang.doing("STEPPING")
    assert hear_for(d, gang, 2) == ["lifted gang.hung"]


def test_whoever_waits_for_a_rank_that_saves_may_take_as_long() -> None:
    gang = Gang(ranks=2)
    d = started(gang, save_limit_s=600)
    gang.doing("SAVING", 0)
    gang.waiting = {0, 1}
    assert hear_for(d, gang, 300) == []
    gang.doing("STEPPING", 0)
    gang.waiting = {0, 1}
    assert hear_for(d, gang, 10) == []
    assert hear_for(d, gang, 25) == HUNG


def test_waiting_for_data_is_no_hang_for_long() -> None:
    gang = Gang(ranks=2)
    d = started(gang, data_wait_share=1, start_limit_s=100)
    gang.doing("WAITING_FOR_DATA")
    assert hear_for(d, gang, 99) == []
    assert hear_for(d, gang, 2) == HUNG


def test_a_rank_that_is_done_or_gone_is_not_waited_for() -> None:
    gang = Gang(ranks=2)
    d = started(gang)
    gang.doing("DONE", 0)
    gang.fields[1]["state"] = "EXITED"
    gang.frozen = {0, 1}
    assert hear_for(d, gang, 3600) == []


def test_a_gap_in_the_heartbeats_is_held_against_nobody() -> None:
    gang = Gang()
    d = started(gang)
    gang.frozen = {0, 1}
    assert hear_for(d, gang, 4) == []
    assert d.hear(gang.beat(600)) == []
    assert hear_for(d, gang, 4) == []
    assert hear_for(d, gang, 2) == HUNG


def test_a_clock_that_jumps_is_held_against_nobody() -> None:
    for jump_s in (-3600, -2, 3600):
        gang = Gang()
        d = started(gang)
        gang.now_ms += jump_s * 1000
        gang.pulse_ms = dict.fromkeys(gang.fields, gang.now_ms)
        gang.moved_ms = dict.fromkeys(gang.fields, gang.now_ms)
        assert hear_for(d, gang, 60) == []
        gang.frozen = {0, 1}
        assert hear_for(d, gang, 7) == HUNG


def test_an_agent_that_restarts_and_knows_nothing_yet_ends_no_hang_and_makes_none() -> None:
    gang = Gang()
    d = started(gang)
    silent = {"step": None, "step_at_ms": None, "activity": None, "activity_since_ms": None, "pulse_at_ms": None, "step_time_p99_ms": None}
    known = gang.fields
    gang.incarnation, gang.sequence, gang.fields = "i2", 0, {n: dict(silent) for n in known}
    assert hear_for(d, gang, 60) == []
    gang.fields = known
    assert hear_for(d, gang, 60) == []
    gang.frozen = {0, 1}
    assert hear_for(d, gang, 7) == HUNG
    gang.incarnation, gang.sequence = "i3", 0
    assert hear_for(d, gang, 60) == []
    gang.frozen = set()
    assert hear_for(d, gang, 3) == ["lifted gang.hung"]


def test_an_agent_that_is_far_behind_with_what_ranks_wrote_condemns_nobody() -> None:
    gang = Gang()
    d = started(gang)
    gang.frozen, gang.more = {0, 1}, {"spool_lag_bytes": 50_000_000}
    assert hear_for(d, gang, 100) == []
    gang.more = {}
    assert hear_for(d, gang, 7) == HUNG


def test_an_attempt_that_left_is_forgotten_and_the_next_one_is_judged_afresh() -> None:
    gang = Gang()
    d = started(gang)
    gang.frozen = {0, 1}
    assert hear_for(d, gang, 7) == HUNG
    first = d.said[-1].name
    gang.epoch = 2
    assert hear_for(d, gang, 4) == []
    assert hear_for(d, gang, 7) == HUNG
    node = d.state.nodes["n"]
    assert list(node.attempts) == ["j:2"] and len(node.stands) == 1
    assert d.said[-1].name != first and f":j:2:n:{gang.steps[0]}" in d.said[-1].name


def test_the_same_hang_has_the_same_name_whoever_finds_it() -> None:
    gang, names = Gang(), []
    d = started(gang)
    gang.frozen = {0, 1}
    for _ in range(2):
        assert hear_for(d, gang, 12) == HUNG
        names.append(d.said[-1].name)
        d = Listener()
    assert names[0] == names[1]
