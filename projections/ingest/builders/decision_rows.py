"""Builds rows of the scheduler's decisions: the records of its journal that count, each decision as an event with its place.

Holds: a record counts if its seq is the next one of its partition, so of two owners' records of one seq only the first does; how far a
partition is (its seq) is a mark of the lane, so a replay of a batch counts the same records. Where seqs are missing (bytes that this
program cannot read, a journal that was restored in part) the tables go on behind the gap, and its numbers are said.
Of a record's inputs only the ids and places are read, for the request that a decision answers; report_rows.py reads them whole.
Never: checks the chain of hashes: replay does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pydantic import ValidationError

from trainhouse.events.model.base import Event
from trainhouse.events.model.decisions import JobRetuned, TokenSeen
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.model.handover import PoolHandedOver
from trainhouse.events.model.ids import EventId
from trainhouse.events.model.job import JobReviewed
from trainhouse.events.model.pool import ChangeRefused, NodeRestricted, PolicyApplied
from trainhouse.events.wire.envelope import Envelope, Order
from trainhouse.events.wire.journal import InvalidRecordError, read_decision, record_head
from trainhouse.events.wire.journaled_input import JournaledInput
from trainhouse.events.wire.repairs import is_emptied
from trainhouse.events.wire.request_decisions import request_decisions
from trainhouse.projections.ingest.builders.event_builder import FactsBuilder
from trainhouse.projections.ingest.builders.row_batch import Built
from trainhouse.projections.record import Record, Row, RowsFunction


class Counting:
    """Selection of journal records that count, from the marks of a lane on: of each partition the seq that counted last. One batch long."""

    def __init__(self, marks: Mapping[str, int]) -> None:
        self.marks = dict(marks)
        self.gaps: list[str] = []

    @staticmethod
    def streams(records: Sequence[Record]) -> list[str]:
        """The marks that these records need."""
        partitions = {_stream(r) for r in records}
        return sorted(partitions | {_ahead(p) for p in partitions})

    def counts(self, record: Record, seq: int) -> bool:
        """Returns whether a record counts, and if so moves its partition's mark."""
        stream = _stream(record)
        folded, ahead = self.marks.get(stream, 0), self.marks.get(_ahead(stream), 0)
        if seq <= folded:
            return False
        if seq > folded + 1 and seq != ahead + 1:
            self.marks[_ahead(stream)] = seq
            return False
        if seq > folded + 1:
            self.gaps.append(
                f"{record.topic}-{record.partition}: what the records with seq {folded + 1} to {seq - 1} decided is in no table: the "
                "journal lacks some of them, or they cannot be read; where it or its archive has them, `trainhouse projections rebuild` "
                "makes the tables whole"
            )
        self.marks[stream] = seq
        return True


class JournalBuilder(FactsBuilder):
    """FactsBuilder over the decisions inside of journal records. A stream is a partition, its mark the seq that counted last."""

    def __init__(
        self,
        functions: Mapping[str, Sequence[RowsFunction]],
        schemas: Mapping[str, pa.Schema],
        emptied: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(functions, schemas)
        self._emptied = emptied
        self._counting = Counting({})
        self._requests: dict[int, str] = {}

    def streams(self, records: Sequence[Record]) -> list[str]:
        return Counting.streams(records)

    def build(self, records: Sequence[Record], marks: dict[str, int]) -> Built:
        counting = self._counting = Counting(marks)
        built = super().build(records, {})
        return Built(built.tables, counting.marks, built.unreadable, tuple(counting.gaps))

    def _rows(self, record: Record) -> list[Row]:
        found = super()._rows(record)
        for row in found:
            if self._requests and "request_id" in row.values:
                row.values["request_id"] = self._requests.get(row.values["ordinal"], "")
        return found

    def envelopes(self, record: Record) -> Iterable[Envelope]:
        self._requests = {}
        if record.value is None:
            return
        try:
            head = record_head(record.value)
        except InvalidRecordError as error:
            raise InvalidEvent(str(error)) from error
        if not self._counting.counts(record, head["seq"]) or is_emptied(record.value, self._emptied):
            return
        events = list[Event]()
        for ordinal, decision in enumerate(head["decisions"]):
            place = Order(record.partition, head["seq"], ordinal)
            try:
                events.append(read_decision(decision))
            except ValidationError as error:
                raise InvalidEvent(f"decision {place} ({decision['type']}): {error}") from error
        self._requests = requests_by_decision(head["inputs"], events)
        for ordinal, event in enumerate(events):
            place = Order(record.partition, head["seq"], ordinal)
            yield Envelope(
                id=EventId.parse(f"decision:{place}"),
                source=f"{record.topic}/{record.partition}",
                event=event,
                time_ms=int(head["now_ms"]),
                subject=event.subject(),
                order=place,
            )


# Decisions that a request alone leads to: others may stand behind the last request of a record, and are of a tick or of reports.
_ANSWERS = (TokenSeen, JobRetuned, JobReviewed, PolicyApplied, PoolHandedOver, ChangeRefused)
_PLATFORM: Final = "trainhouse"
"""Who closes and opens nodes for no request. Of pools there is none: intake sends one on under an id of the pool's own, since a repeated
request for it is the same pool."""


def requests_by_decision(inputs: Sequence[Any], decisions: Sequence[Event]) -> dict[int, str]:
    """Id of the request that a decision answers, by the decision's place; none of inputs in another shape, of which the reports say so."""
    if not any(isinstance(d, TokenSeen) for d in decisions):
        return {}
    with contextlib.suppress(KeyError, TypeError, ValueError):
        items = [JournaledInput.stored(item) for item in inputs]
        found = request_decisions(items, decisions)
        return {place: asked for asked, places in found for place in places if _answers(decisions[place])}
    return {}


def _answers(decision: Event) -> bool:
    return isinstance(decision, _ANSWERS) or (isinstance(decision, NodeRestricted) and decision.by != _PLATFORM)


def _stream(record: Record) -> str:
    return f"{record.topic}/{record.partition}"


def _ahead(stream: str) -> str:
    """The mark of the newest record behind a gap. It does not count: one such record may be nobody's, two in a row are the journal."""
    return f"{stream}/ahead"
