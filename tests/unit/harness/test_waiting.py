"""The pace of a wait: quick at first, then ever slower, and never later than a tenth of the time that was waited."""

import pytest

from tests.support.waiting import FIRST_EVERY_S, LATE, MOST_EVERY_S, pause_s, until


@pytest.mark.parametrize("waited_s", [0.0, 0.5, 1.0, 2.5, 5.0, 60.0, 300.0])
def test_a_wait_is_late_by_a_tenth_of_itself_or_by_one_look(waited_s: float) -> None:
    assert FIRST_EVERY_S <= pause_s(waited_s) <= max(FIRST_EVERY_S, LATE * waited_s)
    assert pause_s(waited_s) <= MOST_EVERY_S


def test_a_long_wait_looks_a_third_as_often_as_at_its_first_pace() -> None:
    at_s, looks = 0.0, 0
    while at_s < 60:
        at_s, looks = at_s + pause_s(at_s), looks + 1
    assert looks < 60 / FIRST_EVERY_S / 3


def test_the_first_true_answer_comes_back_and_a_wait_ends_with_its_words() -> None:
    answers = iter(["", "", "there"])
    assert until(lambda: next(answers), every_s=0) == "there"
    with pytest.raises(AssertionError, match="not within 0 s: no answer"):
        until(lambda: None, lambda: "no answer", timeout_s=0)
