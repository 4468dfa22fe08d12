"""Answers to requests in the scheduler's journal: the record that handled a request, and its decisions on that request.

Holds: only a record that counts answers; of many requests in one record, each is answered by its own decisions.
Never: folds state, or checks the chain of hashes.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from confluent_kafka import Message

from trainhouse.client.errors import ChangeRefusedError
from trainhouse.events import ChangeRefused, Event, JobRejected
from trainhouse.events.wire.journal import GreatestSeqs, InputRefused, InvalidRecordError, JournalRecord, record_head
from trainhouse.events.wire.repairs import NO_REPAIRS, is_emptied
from trainhouse.events.wire.request_decisions import request_decisions

E = TypeVar("E", bound=Event)
EARLIER_RECORDS: Final = 32
"""So many records before the end of each partition are read as well, for the greatest seq up to there. The newest may be ones that lost
the race for their seq, but at most one of each process: an owner has one append under way, and reads on before it decides again."""


class JournalAnswers:
    """One reader's answers, from the journal's records in the order of each partition, EARLIER_RECORDS before the request included.

    `repairs` reads the hashes of records that count as empty. It is called for a record with the request alone: whatever empties that comes
    later than the request.
    """

    def __init__(self, repairs: Callable[[], frozenset[str]] = lambda: NO_REPAIRS) -> None:
        self._seqs = GreatestSeqs()
        self._repairs = repairs

    def decided(self, message: Message, event_id: str) -> tuple[Event, ...] | None:
        """Returns the decisions on the request of this id; None of a record that did not handle it, does not count, or counts as empty."""
        value = message.value() or b""
        try:
            head = record_head(value)
        except InvalidRecordError:
            return None  # its partition halts there
        if not self._seqs.counts(message.partition() or 0, head["seq"]) or event_id.encode() not in value:
            return None
        if is_emptied(value, self._repairs()):
            return None
        try:
            return _decisions_on(JournalRecord.of_head(head), event_id)
        except InvalidRecordError:
            return None  # a newer program's: its own topic may have the outcome


def _decisions_on(record: JournalRecord, event_id: str) -> tuple[Event, ...] | None:
    """The decisions on a request; None where it came a second time, or went on to the partition of its pool.

    Of one that could not be handled the record has its bytes only, and its id in the refusal.
    """
    # What intake took from people is no journal's effect: of the directory's record, all decisions are given.
    if any(item.event_id == event_id and item.is_event and item.order is None for item in record.inputs):
        return record.decisions
    found = next((places for asked, places in request_decisions(record.inputs, record.decisions) if asked == event_id), None)
    if found is not None:
        return record.decisions[found.start : found.stop]
    return tuple(d for d in record.decisions if isinstance(d, InputRefused) and d.event_id == event_id) or None


def _refuses(decision: Event, event_id: str) -> bool:
    match decision:
        case ChangeRefused():
            return decision.event_id == event_id
        case JobRejected():
            return decision.submission_id == event_id
    return False


def check_handled(decisions: Sequence[Event] | None, event_id: str) -> None:
    """Raises ChangeRefusedError where the request could not be handled: of one about no job nothing else is published."""
    for decision in decisions or ():
        if isinstance(decision, InputRefused) and decision.event_id == event_id:
            raise ChangeRefusedError(decision.reason)


def outcome_of(
    decisions: Sequence[Event] | None, event_id: str, kind: type[E], mine: Callable[[E], bool], *, reported_elsewhere: bool
) -> tuple[E | None] | None:
    """Returns the outcome in the decisions on a request; None: not there, it is reported on its own topic.

    (None,): nothing came of it, all is so already. Raises ChangeRefusedError where it could not be handled.
    """
    check_handled(decisions, event_id)
    if decisions is None or any(_refuses(d, event_id) for d in decisions):
        return None
    found = next((d for d in decisions if isinstance(d, kind) and mine(d)), None)
    return None if found is not None and reported_elsewhere else (found,)
