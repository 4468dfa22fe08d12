"""Answer to one request: the first record that says what came of it, from its own topic, the refusals and both journals.

Holds: pure. A record of another request, also one for the same thing, is none: where the outcome names its request, the id decides.
Never: reads a topic; raises anything but ChangeRefusedError.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from confluent_kafka import Message

from trainhouse.client.errors import ChangeRefusedError
from trainhouse.client.kafka.journal_answers import EARLIER_RECORDS, JournalAnswers, check_handled, outcome_of
from trainhouse.client.kafka.outcomes import event_of, key_of
from trainhouse.events import (
    ChangeProject,
    ChangeRefused,
    CordonNode,
    DrainNode,
    Event,
    JobReviewed,
    JobState,
    JobStatus,
    NodeRestricted,
    PoolCreated,
    ProjectApplied,
    QuarantineNode,
    Restriction,
    UncordonNode,
)
from trainhouse.events.wire.topics import DECISIONS, DIRECTORY, POLICIES, STATUS

E = TypeVar("E", bound=Event)
JOURNALS: Final = {DIRECTORY: 2, DECISIONS: EARLIER_RECORDS}
"""The journals that a request passes, and how many records of each partition are read from before it. The directory's, whose records are
large, is searched for a refusal with the request's id alone: a record that lost the race for its seq says the same as the one that won."""
REFUSALS: Final = (POLICIES, STATUS)
NodeRequest = CordonNode | UncordonNode | DrainNode | QuarantineNode
# What each request makes of a node.
RESTRICTIONS: dict[type[NodeRequest], Restriction] = {
    CordonNode: Restriction.CORDONED,
    UncordonNode: Restriction.NONE,
    DrainNode: Restriction.DRAINING,
    QuarantineNode: Restriction.QUARANTINED,
}


@dataclass(frozen=True)
class RequestAnswer(Generic[E]):
    """Reader of the answer to one request, record by record, for `Outcomes.first`.

    `mine`: whether an event of `kind`, with the request's id, is the outcome. `by_decisions`: the scheduler's decisions on the request are
    its outcome, and none on `topic` follows where they have none; else the outcome comes from `topic` alone.
    """

    event_id: str
    kind: type[E]
    mine: Callable[[E, str], bool]
    topic: str
    journals: Mapping[str, JournalAnswers]
    by_decisions: bool = True

    def __call__(self, message: Message) -> tuple[E | None] | None:
        """Returns the outcome that a record holds; None: it is no answer; (None,): nothing came of it. Raises ChangeRefusedError."""
        journal = self.journals.get(message.topic() or "")
        if journal is not None:
            decisions = journal.decided(message, self.event_id)
            check_handled(decisions, self.event_id)
            if message.topic() != DECISIONS or not self.by_decisions:
                return None
            return outcome_of(decisions, self.event_id, self.kind, self._is_mine, reported_elsewhere=self.topic != DECISIONS)
        refused = refusal(self.event_id, message)
        if refused is not None:
            raise ChangeRefusedError(refused)
        published = event_of(message)
        return (published,) if isinstance(published, self.kind) and self._is_mine(published) else None

    def _is_mine(self, event: E) -> bool:
        return self.mine(event, self.event_id)


def of_review(reviewed: JobReviewed, event_id: str) -> bool:
    """Whether a review was obeyed for the request of this id, and not for another that asked the same."""
    return reviewed.event_id == event_id


def creates(asked: PoolCreated, created: PoolCreated) -> bool:
    """Whether a pool was created as was asked for: by this request or by an equal one."""
    return (created.pool, created.partition) == (asked.pool, asked.partition)


def restricts(asked: NodeRequest, restricted: NodeRestricted) -> bool:
    """Whether a node was closed or opened as was asked for, for this user and reason."""
    wanted = (asked.node_id, RESTRICTIONS[type(asked)], asked.user, asked.reason)
    return (restricted.node_id, restricted.restriction, restricted.by, restricted.reason) == wanted


def sets(asked: ChangeProject, applied: ProjectApplied) -> bool:
    """Whether a later version of a project is what was asked for by this user."""
    from trainhouse.scheduler.core.intake.projects import as_asked

    return applied.version > (asked.replaces or 0) and applied.user == asked.user and as_asked(asked, applied)


def refusal(event_id: str, message: Message) -> str | None:
    """Reason for which the event of this id was refused, or None. Intake answers on the status topic, the scheduler with the policies."""
    if key_of(message) != event_id:
        return None
    event = event_of(message)
    if isinstance(event, ChangeRefused):
        return event.reason
    if isinstance(event, JobStatus) and event.state in (JobState.REJECTED, JobState.NEEDS_REVIEW):
        return event.reason
    return None
