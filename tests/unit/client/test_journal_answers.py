"""Answers to requests in the scheduler's journal: from records that count, and to each request its own."""

from dataclasses import dataclass
from typing import Any

import pytest

from trainhouse.client.errors import ChangeRefusedError
from trainhouse.client.kafka.journal_answers import JournalAnswers, outcome_of
from trainhouse.events import ChangeJob, Envelope, Event, EventId, Order
from trainhouse.events.model.decisions import JobRetuned, TokenSeen
from trainhouse.events.model.handover import RedirectedInput
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.journal import InputRefused, JournaledInput, JournalRecord, record_hash
from trainhouse.scheduler.core.schedule import ScheduleMachine

JOB, DIRECTORY = "waits", 2


@dataclass(frozen=True)
class Message:
    """A record of a journal as a client reads it."""

    record: bytes
    at: int = 0

    def value(self) -> bytes:
        return self.record

    def partition(self) -> int:
        return self.at


def change(number: int) -> Envelope:
    """Request of this number: a change to a priority of the same number."""
    event = ChangeJob.model_validate({"job_id": JOB, "priority": number})
    return Envelope(EventId(f"asked-{number}"), "directory", event, order=Order(DIRECTORY, number, 0))


def token(number: int, *, by_scheduler: bool = False) -> Event:
    return TokenSeen(partition=DIRECTORY, seq=number, ordinal=0, by_scheduler=by_scheduler)


def retuned(priority: int) -> Event:
    return JobRetuned.model_validate({"job_id": JOB, "priority": priority, "limits": {}})


def record(seq: int, inputs: list[Envelope], decisions: list[Event], owner: str = "me") -> Any:
    items = tuple(JournaledInput(n, envelope) for n, envelope in enumerate(inputs))
    made = JournalRecord(seq, owner, 5, len(items), items, tuple(decisions), 0, 11, 9, "0" * 64)
    return Message(made.encode(ScheduleMachine.since))


def outcomes(records: list[Any], number: int) -> list[int | None]:
    """Every answer to a request that a reader of these records gets."""
    answers, found = JournalAnswers(), list[int | None]()
    for message in records:
        decisions = answers.decided(message, f"asked-{number}")
        outcome = outcome_of(decisions, f"asked-{number}", JobRetuned, lambda d: d.job_id == JOB, reported_elsewhere=False)
        found += [None if d is None else d.priority for d in outcome or ()]
    return found


def test_a_record_that_lost_the_race_for_its_seq_is_no_answer() -> None:
    first, lost = record(7, [], []), record(7, [change(1)], [token(1)], owner="paused")
    counted = record(8, [change(1)], [token(1), retuned(1)])
    assert outcomes([first, lost, counted], 1) == [1]
    assert outcomes([first, lost], 1) == []


def test_also_one_behind_another_that_lost_is_none() -> None:
    first, claim = record(8, [], []), record(7, [], [], owner="paused")
    lost, counted = record(8, [change(1)], [token(1)], owner="paused"), record(9, [change(1)], [token(1), retuned(1)])
    assert outcomes([first, claim, lost, counted], 1) == [1]


def test_seqs_are_those_of_each_partition() -> None:
    elsewhere = Message(record(90, [], []).value(), at=1)
    assert outcomes([elsewhere, record(7, [change(1)], [token(1), retuned(1)])], 1) == [1]


def test_each_request_of_one_record_is_answered_by_its_own_decisions() -> None:
    both = record(7, [change(1), change(2), change(3)], [token(1), retuned(1), token(2), token(3), retuned(3)])
    assert [outcomes([both], n) for n in (1, 2, 3)] == [[1], [None], [3]]


def test_a_request_that_another_scheduler_passed_on_is_told_from_one_of_the_same_place() -> None:
    redirected = RedirectedInput.model_validate({"pool": "p", "to_partition": 0, "event": {"id": "x"}})
    relayed = Envelope(EventId("asked-2"), "scheduler", redirected, order=Order(DIRECTORY, 1, 0))
    both = record(7, [change(1), relayed], [token(1), retuned(1), token(1, by_scheduler=True), retuned(2)])
    assert (outcomes([both], 1), outcomes([both], 2)) == ([1], [2])


def test_a_repeat_in_the_same_record_is_no_second_answer() -> None:
    assert outcomes([record(7, [change(1), change(1)], [token(1), retuned(1)])], 1) == [1]


def test_bytes_that_are_no_record_answer_nothing() -> None:
    broken: Any = Message(b"\xff" + encode(change(1)))
    assert outcomes([broken], 1) == []


def test_a_request_on_which_handling_raised_is_refused_at_once_and_no_other_is() -> None:
    refused = InputRefused(offset=0, reason="handling it failed: X", event_id="asked-1")
    raw = JournaledInput(0, None, encode(change(1)))
    message: Any = Message(JournalRecord(7, "me", 5, 1, (raw,), (refused,), 0, 11, 9, "0" * 64).encode(ScheduleMachine.since))
    assert outcomes([message], 2) == []
    with pytest.raises(ChangeRefusedError, match="handling it failed: X"):
        outcomes([message], 1)
    assert outcomes([record(7, [], []), message], 1) == [], "the record lost the race for its seq"


def test_a_record_with_a_seq_far_ahead_neither_answers_nor_hides_those_that_count() -> None:
    stray, again = record(900, [change(1)], [token(1)]), record(901, [change(1)], [token(1)])
    counted = record(7, [change(1)], [token(1), retuned(1)])
    assert outcomes([record(5, [], []), stray, record(6, [], []), again, counted], 1) == [1]
    assert outcomes([record(5, [], []), stray, record(6, [], [])], 1) == []


def test_a_record_that_a_repair_emptied_is_no_answer_and_takes_its_seq() -> None:
    emptied, again = record(7, [change(1)], [token(1), retuned(1)]), record(8, [change(1)], [token(1), retuned(1)], owner="later")
    repairs = list[frozenset[str]]()
    answers = JournalAnswers(lambda: repairs[-1])
    repairs.append(frozenset({record_hash(emptied.value())}))
    assert answers.decided(emptied, "asked-1") is None
    assert answers.decided(again, "asked-1") == (token(1), retuned(1))


def test_repairs_are_looked_up_for_a_record_with_the_request_alone() -> None:
    looked = list[int]()
    answers = JournalAnswers(lambda: frozenset({str(looked.append(1))}))
    for message in (record(7, [], []), record(8, [change(2)], [token(2)]), record(8, [change(1)], [token(1)], owner="paused")):
        assert answers.decided(message, "asked-1") is None
    assert not looked
    assert answers.decided(record(9, [change(1)], [token(1)]), "asked-1") == (token(1),) and looked == [1]


@pytest.mark.parametrize("emptied", [True, False])
def test_a_record_of_the_request_that_this_program_cannot_read_is_no_answer(emptied: bool) -> None:
    value = record(7, [change(1)], [token(1)]).value().replace(TokenSeen.event_type.encode(), b"trainhouse.newer.v1")
    answers, message = JournalAnswers(lambda: frozenset({record_hash(value)} if emptied else ())), Message(value)
    assert answers.decided(message, "asked-1") is None  # type: ignore[arg-type]
