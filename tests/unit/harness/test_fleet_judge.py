"""The judge of a fleet's events can complain: each rule once with events that hold, and with one thing wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.fleet_judge import each_attempt_ran_once, no_device_was_shared
from tests.support.fleet_stage import stage
from trainhouse.events import AttemptStopped, Envelope, Event, GangAllocated, NodeRegistered, RankExited, envelope_of

RANKS = {"a": 6, "b": 2}


@pytest.fixture
def told() -> list[Envelope]:
    """Two jobs, one after the other on the same devices of node 0."""
    s = stage(durations="2")
    first = _wrapped(s.allocate("a", {0: [0, 1, 2, 3], 1: [0, 1]}), s.now_ms)
    s.run(10_000)
    second = _wrapped(s.allocate("b", {0: [0, 1]}), s.now_ms)
    s.run(10_000)
    return [first, second, *(e for _, e in s.records.sent)]


def _wrapped(event: Event, now_ms: int) -> Envelope:
    return envelope_of(event, id="an-order", source="test", now_ms=now_ms)


def _first(told: list[Envelope], kind: type[Event], job: str) -> Envelope:
    return next(e for e in told if isinstance(e.event, kind) and getattr(e.event, "job_id", "") == job)


def test_what_holds_passes(told: list[Envelope]) -> None:
    each_attempt_ran_once(told, RANKS)
    no_device_was_shared(told, "p")


def test_an_order_given_twice_is_told(told: list[Envelope]) -> None:
    with pytest.raises(AssertionError, match="twice"):
        each_attempt_ran_once([*told, _first(told, GangAllocated, "a")], RANKS)


def test_a_partial_gang_and_a_missing_or_doubled_rank_are_told(told: list[Envelope]) -> None:
    with pytest.raises(AssertionError):
        each_attempt_ran_once(told, RANKS | {"a": 7})
    gone = _first(told, RankExited, "b")
    with pytest.raises(AssertionError, match="b"):
        each_attempt_ran_once([e for e in told if e is not gone], RANKS)
    with pytest.raises(AssertionError, match="b"):
        each_attempt_ran_once([*told, gone], RANKS)


def test_a_job_that_was_never_ordered_is_told(told: list[Envelope]) -> None:
    with pytest.raises(AssertionError):
        each_attempt_ran_once(told, RANKS | {"c": 1})


def test_a_device_ordered_before_it_was_free_is_told(told: list[Envelope]) -> None:
    order = _first(told, GangAllocated, "b")
    assert order.time_ms is not None
    early = replace(order, time_ms=order.time_ms - 9_000)
    with pytest.raises(AssertionError, match="p-00000"):
        no_device_was_shared([early if e is order else e for e in told], "p")


def test_an_attempt_that_never_ended_is_told(told: list[Envelope]) -> None:
    with pytest.raises(AssertionError, match="ended"):
        no_device_was_shared([e for e in told if e is not _first(told, AttemptStopped, "b")], "p")


def test_a_part_that_an_agent_answers_for_again_ended_with_the_first_answer(told: list[Envelope]) -> None:
    part, second = _first(told, AttemptStopped, "a"), _first(told, GangAllocated, "b")
    assert isinstance(part.event, AttemptStopped) and second.time_ms is not None
    again = replace(part, event=part.event.model_copy(update={"stopped_at_ms": second.time_ms + 5_000}))
    no_device_was_shared([*told, again], "p")
    with pytest.raises(AssertionError, match="p-00000"):
        no_device_was_shared([again if e is part else e for e in told], "p")


def test_an_order_that_came_to_a_machine_that_was_down_ends_with_its_next_boot(told: list[Envelope]) -> None:
    registered = next(e for e in told if isinstance(e.event, NodeRegistered) and e.event.node_id == "p-00000")
    order, second = _first(told, GangAllocated, "a"), _first(told, GangAllocated, "b")
    assert order.time_ms is not None and second.time_ms is not None and isinstance(registered.event, NodeRegistered)

    def booted(at_ms: int) -> Envelope:
        return replace(registered, event=registered.event.model_copy(update={"boot_id": "another"}), time_ms=at_ms)

    part = next(e for e in told if isinstance(e.event, AttemptStopped) and e.event.job_id == "a" and e.event.node_id == "p-00000")
    unanswered = [e for e in told if e is not part]
    with pytest.raises(AssertionError, match="ended"):
        no_device_was_shared(unanswered, "p")
    no_device_was_shared([*unanswered, booted(order.time_ms + 1000)], "p")
    with pytest.raises(AssertionError, match="p-00000"):
        no_device_was_shared([*unanswered, booted(second.time_ms + 1)], "p")
