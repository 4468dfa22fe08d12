"""The pace of a wait: quick at first, then ever slower, and never later than a tenth of the time that was waited."""

import pytest

from tests.support.waiting import FIRST_EVERY_S, LATE, MOST_EVERY_S, answered, pause_s, until
from trainhouse.client.errors import NotReachableError, QueryError
from trainhouse.events.model.errors import BusUnavailableError


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


@pytest.mark.parametrize("error", [NotReachableError("SQL is away"), BusUnavailableError("the brokers are away")])
def test_a_server_that_does_not_answer_now_is_asked_again(error: Exception) -> None:
    answers = iter([error, error, "there"])

    def look() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert until(look, every_s=0) == "there"
    with pytest.raises(AssertionError, match=f"not within 0 s: it is there; the last look: {error}"):
        until(lambda: (_ for _ in ()).throw(error), "it is there", timeout_s=0)
    empty = iter([error, 0])

    def ask() -> int:
        answer = next(empty)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert answered(ask) == 0, "an answer that is not true is one, too"


def test_what_is_wrong_for_good_is_raised_at_once() -> None:
    with pytest.raises(QueryError):
        until(lambda: (_ for _ in ()).throw(QueryError("no such column")))


def test_a_wait_that_ends_says_so_though_nobody_answers_what_is_there_instead() -> None:
    def told() -> object:
        raise NotReachableError("SQL is away")

    with pytest.raises(AssertionError, match=r"not within 0 s: \(it is not known what is there instead: SQL is away\)"):
        until(lambda: None, told, timeout_s=0)
