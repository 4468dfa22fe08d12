"""Answer to one request: its own, also beside another request for the same thing; of what the directory could not handle, too."""

from dataclasses import dataclass
from typing import Any

import pytest

from trainhouse.client.errors import ChangeRefusedError
from trainhouse.client.kafka.journal_answers import JournalAnswers
from trainhouse.client.kafka.request_answer import JOURNALS, RequestAnswer, of_review
from trainhouse.events import Event, JobReviewed, MovePool, NodeLost, PoolCreated, envelope_of
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.events.wire.topics import ADMISSION, DECISIONS, DIRECTORY, POOLS, VERDICTS
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.protocol.batch import Limits, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import begin
from trainhouse.scheduler.core.schedule import ScheduleMachine


@dataclass(frozen=True)
class Message:
    """A record of a topic as a client reads it."""

    on: str
    record: bytes
    named: str = ""

    def topic(self) -> str:
        return self.on

    def value(self) -> bytes:
        return self.record

    def partition(self) -> int:
        return 0

    def key(self) -> bytes:
        return self.named.encode()

    def headers(self) -> list[tuple[str, bytes]]:
        return list(HEADERS)


def answer(event_id: str, kind: Any, mine: Any, topic: str, *, by_decisions: bool = True) -> Any:
    return RequestAnswer(event_id, kind, mine, topic, {journal: JournalAnswers() for journal in JOURNALS}, by_decisions)


def journaled(machine: Any, topic: str, event: Event, event_id: str) -> Message:
    """The record of one input's handling."""
    value = encode(envelope_of(event, id=event_id, source="test", now_ms=5))
    proposer = Proposer(machine, "me", input_topic=topic)
    made = proposer.propose(begin(machine, 0), 5, [pending(0, value, HEADERS, Limits())], 0, tick=False)
    assert made is not None
    return Message(DIRECTORY if machine.name == "directory" else DECISIONS, made.value)


@pytest.mark.parametrize("by_decisions", [True, False])
def test_what_the_directory_could_not_handle_is_refused_at_once_and_nobody_else_is(by_decisions: bool) -> None:
    lost = NodeLost.model_validate(
        {"node_id": "n", "boot_id": "b", "incarnation": "i", "pool": "p", "evidence": "none", "silent_s": 1.0, "at_ms": 5}
    )
    refused = journaled(DirectoryMachine(), ADMISSION, lost, "asked-1")

    def ask(event_id: str) -> Any:
        return answer(event_id, PoolCreated, lambda d, _: True, POOLS, by_decisions=by_decisions)

    assert ask("asked-2")(refused) is None
    with pytest.raises(ChangeRefusedError, match="nothing that the directory takes"):
        ask("asked-1")(refused)


def test_what_the_directory_handled_is_no_answer_yet() -> None:
    created = PoolCreated.model_validate({"pool": "p", "partition": 0})
    passed_on = journaled(DirectoryMachine(control_partitions=4), ADMISSION, created, "asked-1")
    assert answer("asked-1", PoolCreated, lambda d, _: True, POOLS)(passed_on) is None


def test_a_move_is_answered_where_the_pool_came_to_and_not_by_the_decisions_of_where_it_left() -> None:
    move = MovePool.model_validate({"pool": "p", "to_partition": 1})
    left = journaled(ScheduleMachine(), DECISIONS, move, "asked-1")
    assert answer("asked-1", PoolCreated, lambda d, _: True, POOLS, by_decisions=False)(left) is None


def test_of_two_reviews_for_the_same_reason_each_has_its_own_answer() -> None:
    def reviewed(event_id: str) -> Message:
        fields = {"job_id": "j", "action": "go_on", "event_id": event_id, "pool": "p", "user": "ana", "reason": "fixed", "at_ms": 5}
        return Message(VERDICTS, encode(envelope_of(JobReviewed.model_validate(fields), id=f"{event_id}:reviewed", source="s", now_ms=5)))

    mine = answer("asked-2", JobReviewed, of_review, VERDICTS)
    assert mine(reviewed("asked-1")) is None
    assert mine(reviewed("asked-2"))[0].event_id == "asked-2"
