"""How many requests an upload makes at a time, and that one which is hurried at any moment loses and repeats nothing."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.checkpointing.chain.chunks import in_threads
from trainhouse.checkpointing.chain.pace import Pace


def test_a_watcher_is_called_once_when_it_is_hurried_and_not_after_it_has_gone() -> None:
    pace, calls = Pace(), [0]

    def called() -> None:
        calls[0] += 1

    with pace.watched(called) as full:
        assert not full and not pace.full
        pace.hurry()
        pace.hurry()
    assert calls == [1] and pace.full
    with pace.watched(called) as full:
        assert full
        pace.hurry()
    other = Pace()
    with other.watched(called):
        pass
    other.hurry()
    assert calls == [1]


def test_a_thread_that_cannot_be_started_is_no_error_of_who_waits() -> None:
    def none_left() -> None:
        raise RuntimeError("can't start new thread")

    pace = Pace()
    with pace.watched(none_left):
        pace.hurry()
    assert pace.full


@given(count=st.integers(0, 40), hurried_at=st.integers(-1, 40), fails_at=st.integers(-1, 45))
def test_results_are_those_of_one_thread_whenever_it_is_hurried(count: int, hurried_at: int, fails_at: int) -> None:
    pace = Pace(full=hurried_at < 0)
    before = threading.active_count()

    def work(item: int) -> int:
        if item == hurried_at:
            pace.hurry()
        if item == fails_at:
            raise ValueError(item)
        return -item

    found: list[int] = []
    with suppress(ValueError):
        for result in in_threads(work, range(count), 4, pace):
            found.append(result)
    assert found == [-item for item in range(count if fails_at < 0 else min(count, fails_at))]
    assert threading.active_count() == before, "no thread is left"


def test_without_a_pace_there_are_as_many_threads_as_asked_for() -> None:
    together = threading.Barrier(3)
    assert list(in_threads(lambda item: together.wait(60) * 0 + item, range(3), 3)) == [0, 1, 2]
    with pytest.raises(threading.BrokenBarrierError):
        list(in_threads(lambda item: together.wait(0.1), range(3), 2))
