"""When a client of librdkafka is asked whether it reaches the brokers, and when it is given up: by a clock that the test moves."""

from __future__ import annotations

import math

from trainhouse.events.bus.outage import AFTER_OUTAGE_S, AFTER_SILENCE_S, Outage


def test_a_client_to_which_records_come_is_never_asked() -> None:
    outage = Outage(0.0, AFTER_SILENCE_S)
    for now_s in range(0, 1000, 10):
        assert not outage.due(now_s)
        outage.on_message(now_s)


def test_a_silent_client_is_asked_once_in_a_while_and_kept_as_long_as_it_reaches_the_brokers() -> None:
    outage, asked = Outage(0.0, AFTER_SILENCE_S), 0
    for now_s in range(601):
        if outage.due(now_s):
            asked += 1
            assert not outage.asked(reaches=True, others_reach=False, now_s=now_s)
    assert asked == 10


def test_after_an_outage_it_is_asked_soon_and_a_later_notice_does_not_put_that_off() -> None:
    outage = Outage(0.0, math.inf)
    assert not outage.due(1e9)
    outage.all_down(100.0)
    outage.all_down(100.0 + AFTER_OUTAGE_S - 1)
    assert not outage.due(99.0 + AFTER_OUTAGE_S) and outage.due(100.0 + AFTER_OUTAGE_S)


def test_it_is_given_up_only_once_others_reach_the_brokers_and_then_once() -> None:
    outage = Outage(0.0, math.inf)
    outage.all_down(0.0)
    now_s = AFTER_OUTAGE_S
    for _ in range(5):
        assert outage.due(now_s) and not outage.asked(reaches=False, others_reach=False, now_s=now_s)
        assert not outage.due(now_s)
        now_s += AFTER_OUTAGE_S
    assert outage.asked(reaches=False, others_reach=True, now_s=now_s)
    assert not outage.due(1e9), "the new one has not said that it lost them"
