"""Answer to one request: its own, also beside another request for the same thing; of what the directory could not handle, too."""

from dataclasses import dataclass
from typing import Any

import pytest

from trainhouse.client.errors import ChangeRefusedError
from trainhouse.client.kafka.journal_answers import JournalAnswers
from trainhouse.client.kafka.request_answer import JOURNALS, RequestAnswer, creates, of_review, restricts, sets
from trainhouse.events import (
    ChangeProject,
    CordonNode,
    DrainNode,
    Event,
    JobReviewed,
    MovePool,
    NodeLost,
    NodeRestricted,
    PoolCreated,
    ProjectApplied,
    UncordonNode,
    envelope_of,
)
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


def test_who_closes_a_node_is_answered_by_no_one_elses_restriction() -> None:
    def closed(**fields: Any) -> NodeRestricted:
        about = {"node_id": "n", "pool": "p", "restriction": "CORDONED", "reason": "fan", "by": "ada", "at_ms": 5}
        return NodeRestricted.model_validate(about | fields)

    about = {"pool": "p", "node_id": "n", "reason": "fan", "user": "ada"}
    asked = CordonNode.model_validate(about)
    assert restricts(asked, closed())
    others = ({"by": "bo"}, {"reason": "noise"}, {"node_id": "m"}, {"restriction": "DRAINING"})
    assert not any(restricts(asked, closed(**other)) for other in others)
    assert restricts(DrainNode.model_validate(about | {"deadline_s": 60}), closed(restriction="DRAINING"))
    assert restricts(UncordonNode.model_validate(about), closed(restriction="NONE"))


def test_who_creates_a_pool_is_not_answered_by_another_that_created_it_elsewhere() -> None:
    created = [PoolCreated.model_validate({"pool": "p", "partition": n}) for n in range(2)]
    assert [creates(created[1], found) for found in created] == [False, True]


def test_of_two_changes_of_one_project_each_is_answered_by_its_own_content() -> None:
    def asked(*members: str) -> ChangeProject:
        project = {"name": "vision", "members": dict.fromkeys(members, "viewer"), "purposes": {"x": {"description": "d"}}}
        return ChangeProject.model_validate({"project": project, "replaces": 3, "user": "ops"})

    def applied(version: int, *members: str) -> ProjectApplied:
        approved = {"x": {"description": "d", "approved_by": "max", "approved_at_ms": 2}}
        project = {"name": "vision", "members": dict.fromkeys(members, "viewer"), "purposes": approved}
        about = {"project": project, "version": version, "user": "ops", "applied_at_ms": 5, "admission_partitions": 4}
        return ProjectApplied.model_validate(about)

    assert sets(asked("bo"), applied(4, "bo"))
    assert not sets(asked("cy"), applied(4, "bo")), "it is refused: it was made from version 3"
    assert not sets(asked("bo"), applied(3, "bo")), "of before"
