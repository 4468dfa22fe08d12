"""When an interactive session is idle, in virtual time."""

from __future__ import annotations

from pathlib import Path

from trainhouse.workers.interactive.idle_rule import Activity, IdleRule
from trainhouse.workers.interactive.ssh_endpoint import _configuration


def test_a_session_that_nobody_uses_and_that_does_nothing_ends_at_its_limit_and_warns_once_before() -> None:
    rule = IdleRule(100, began_s=1000)
    found = [rule.observe(Activity(1000 + s)) for s in range(5, 105, 5)]
    assert [each.is_over for each in found] == [False] * 19 + [True]
    assert [each.warned_left_s for each in found if each.warned_left_s is not None] == [20]
    assert found[-1].idle_s == 100


def test_traffic_work_of_processors_and_a_busy_device_each_begin_the_time_anew() -> None:
    for busy in (Activity(90, traffic_bytes=1), Activity(90, cpu_s=9.1), Activity(90, device_busy=True)):
        rule = IdleRule(100, began_s=0)
        assert not rule.observe(busy).is_over
        still = Activity(189, busy.traffic_bytes, busy.cpu_s)
        assert not rule.observe(still).is_over
        assert rule.observe(Activity(190, busy.traffic_bytes, busy.cpu_s)).is_over


def test_a_server_that_waits_is_no_work() -> None:
    rule = IdleRule(100, began_s=0)
    assert [rule.observe(Activity(s, cpu_s=0.05 * s)).is_over for s in (50, 99, 100)] == [False, False, True]


def test_a_session_that_worked_again_after_its_warning_is_warned_again() -> None:
    rule = IdleRule(100, began_s=0)
    assert rule.observe(Activity(85)).warned_left_s == 15
    assert rule.observe(Activity(86, traffic_bytes=3)).idle_s == 0
    assert rule.observe(Activity(100, traffic_bytes=3)).warned_left_s is None
    assert rule.observe(Activity(170, traffic_bytes=3)).warned_left_s == 16


def test_seconds_of_processes_that_ended_unseen_make_no_negative_work() -> None:
    rule = IdleRule(10, began_s=0)
    rule.observe(Activity(5, cpu_s=50))
    assert rule.observe(Activity(15, cpu_s=40)).is_over


def test_an_idle_window_of_ssh_is_no_traffic() -> None:
    assert "ClientAlive" not in _configuration(Path("/f"), "")
