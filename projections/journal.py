"""Builds rows of the scheduler's decisions: the records of its journal that count, each decision as an event with its place.

Holds: a record counts if its seq is the next one of its partition, so of two owners' records of one seq only the first does; how far a
partition is (its seq) is a mark of the lane, so a replay of a batch counts the same records.
Never: reads a record's inputs, or checks the chain of hashes: replay does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from trainhouse.events.base import event_class
from trainhouse.events.envelope import Envelope, Order
from trainhouse.events.errors import InvalidEvent
from trainhouse.events.ids import EventId
from trainhouse.events.journal import InvalidRecord, record_head
from trainhouse.projections.built import Built
from trainhouse.projections.facts import FactsBuilder
from trainhouse.projections.record import Record


class JournalBuilder(FactsBuilder):
    """FactsBuilder over the decisions inside of journal records. A stream is a partition, its mark the seq that counted last."""

    def streams(self, records: Sequence[Record]) -> list[str]:
        return sorted({_stream(r) for r in records})

    def build(self, records: Sequence[Record], marks: dict[str, int]) -> Built:
        after = dict(marks)
        counted = [r for r in records if _counts(r, after)]
        built = super().build(counted, {})
        return Built(built.tables, after, built.unreadable)

    def envelopes(self, record: Record) -> Iterable[Envelope]:
        head = _head(record)
        for ordinal, decision in enumerate(head["decisions"]):
            place = Order(record.partition, head["seq"], ordinal)
            try:
                event = event_class(decision["type"]).model_validate(decision["data"], extra="ignore")
            except ValidationError as error:
                raise InvalidEvent(f"decision {place} ({decision['type']}): {error}") from error
            yield Envelope(
                id=EventId.parse(f"decision:{place}"),
                source=f"{record.topic}/{record.partition}",
                event=event,
                time_ms=int(head["now_ms"]),
                subject=event.subject(),
                order=place,
            )


def _stream(record: Record) -> str:
    return f"{record.topic}/{record.partition}"


def _counts(record: Record, marks: dict[str, int]) -> bool:
    """Whether a record counts, and if so moves its partition's mark. What cannot be read goes on to become a dead letter."""
    try:
        seq = int(_head(record)["seq"])
    except InvalidEvent:
        return True
    folded = marks.get(_stream(record), 0)
    # Where the beginning is gone, what is there first is where we begin.
    if folded and seq != folded + 1:
        return False
    marks[_stream(record)] = seq
    return True


def _head(record: Record) -> dict[str, Any]:
    try:
        return record_head(record.value)
    except InvalidRecord as error:
        raise InvalidEvent(str(error)) from error
