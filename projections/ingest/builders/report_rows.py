"""Builds rows of agents' reports from the scheduler's journal, which holds each input whole and marks the refused ones.

Agents write to control, so a record there may be anybody's word; the journal has what the scheduler took as said by whom it names.
Holds: an input of a record that counts is a record of control again, at its own offset, so the rows say where it was told; what the
scheduler refused (a signature that is not the node's, what cannot be read) makes no row. It depends on the journal alone, which never
expires, so a rebuild shows the same.
Never: reads control; judges a signature.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from threading import Event
from typing import Any

import orjson
import pyarrow as pa

from trainhouse.events.model.checkpoint import CheckpointCompleted
from trainhouse.events.model.decisions import CheckpointNoted
from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.security.vetting import BY_AGENTS
from trainhouse.events.wire.codec import HEADERS, decode
from trainhouse.events.wire.envelope import Envelope
from trainhouse.events.wire.journal import InputRefused, InvalidRecordError, record_head
from trainhouse.events.wire.repairs import is_emptied
from trainhouse.events.wire.topics import CONTROL
from trainhouse.events.wire.upcast import UPCASTERS
from trainhouse.projections.ingest.builders.decision_rows import Counting
from trainhouse.projections.ingest.builders.event_builder import FactsBuilder
from trainhouse.projections.ingest.builders.row_batch import Built
from trainhouse.projections.ingest.placements import Attempt
from trainhouse.projections.ingest.senders import Senders
from trainhouse.projections.record import Record, RowsFunction

_BY_NODES = frozenset(cls.event_type for cls in BY_AGENTS if {"job_id", "epoch", "attempt", "node_id"} <= cls.model_fields.keys())


class _StoredFacts(FactsBuilder):
    """Of events that count already: what was allowed then is read, whatever is refused by now."""

    def envelopes(self, record: Record) -> Iterable[Envelope]:
        return () if record.value is None else (decode(record.value, record.headers, stored=True),)


class ReportsBuilder:
    """FactsBuilder over the inputs of journal records. Streams and marks are those of the journal.

    Where nodes must sign what they say, what one says of an attempt that it was not given makes no row.
    """

    def __init__(self, functions: Mapping[str, Sequence[RowsFunction]], schemas: Mapping[str, pa.Schema], senders: Senders) -> None:
        self._facts = _StoredFacts(functions, schemas)
        self._senders = senders
        self._emptied = senders.emptied

    def ready(self, records: Sequence[Record], stop: Event) -> bool:
        """Waits until it is known which nodes the attempts were given; False where `stop` was set before. Blocks."""
        if not self._senders.required:
            return True
        origins = [of for record in records for item in _taken(record, self._emptied) if (of := _node_of(item)) is not None]
        return self._senders.known_attempts({attempt for attempt, _ in origins}, stop)

    def streams(self, records: Sequence[Record]) -> list[str]:
        """As a JournalBuilder's."""
        return Counting.streams(records)

    def build(self, records: Sequence[Record], marks: dict[str, int]) -> Built:
        """The rows of the inputs, in their order."""
        counting = Counting(marks)
        inputs = [item for record in records for item in _inputs(record, counting, self._counts, self._emptied)]
        built = self._facts.build(inputs, {})
        return Built(built.tables, counting.marks, built.unreadable, tuple(counting.gaps))

    def _counts(self, item: Mapping[str, Any]) -> bool:
        of = _node_of(item) if self._senders.required else None
        return of is None or self._senders.has(*of)


def _taken(record: Record, emptied: frozenset[str]) -> list[Mapping[str, Any]]:
    """The same whether the record counts or not."""
    if record.value is None or is_emptied(record.value, emptied):
        return []
    with contextlib.suppress(InvalidRecordError):
        return readable_inputs(record_head(record.value))
    return []


def readable_inputs(head: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """As `taken_inputs`, without an input of another shape; none of a record of another shape, of which the lane of decisions says so."""
    with contextlib.suppress(KeyError, TypeError, AttributeError, InvalidEvent):
        return [item for item in taken_inputs(head) if _is_whole(item)]
    return []


def _is_whole(item: Mapping[str, Any]) -> bool:
    """Returns whether the node and the attempt of a report can be read; this program may not know an older or newer input at all."""
    try:
        _node_of(item)
    except (KeyError, TypeError, AttributeError, InvalidEvent):
        return False
    return True


def _node_of(item: Mapping[str, Any]) -> tuple[Attempt, str] | None:
    """The attempt that a node's report is about, and the node; None for what is no such report."""
    event = item["event"]
    if UPCASTERS.newest(event["type"]) not in _BY_NODES:
        return None
    _, data = UPCASTERS.lift(event["type"], event["data"])
    return Attempt(data["job_id"], data["epoch"], data["attempt"]), data["node_id"]


def _inputs(record: Record, counting: Counting, wanted: Callable[[Mapping[str, Any]], bool], emptied: frozenset[str]) -> Iterator[Record]:
    """The records of control that a journal record took; none where it does not count."""
    if record.value is None:
        return
    try:
        head = record_head(record.value)
    except InvalidRecordError:
        return  # the lane of decisions says so
    if not counting.counts(record, head["seq"]) or is_emptied(record.value, emptied):
        return
    for item in filter(wanted, readable_inputs(head)):
        yield Record(CONTROL, record.partition, item["offset"], int(head["now_ms"]), None, input_bytes(item), HEADERS)


def taken_inputs(head: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The inputs of a journal record that its owner took from control: neither its own ones, nor what it refused.

    Of completed checkpoints only those that it noted: of a job that it has forgotten it does not know whose word counts. What its nodes
    tell of older ones stands on the topic of checkpoints.
    """
    decisions = [UPCASTERS.lift(d["type"], d["data"]) for d in head["decisions"]]
    refused = {data["offset"] for kind, data in decisions if kind == InputRefused.event_type}
    notes = [data for kind, data in decisions if kind == CheckpointNoted.event_type]
    noted = {(d["job_id"], d["checkpoint"]["commit"]) for d in notes}
    for item in head["inputs"]:
        # Without an offset it is the owner's own; without an event it was refused.
        if item["offset"] is None or "event" not in item or item["offset"] in refused:
            continue
        if _is_noted(item["event"], noted):
            yield item


def _is_noted(event: Mapping[str, Any], noted: Collection[tuple[Any, Any]]) -> bool:
    if UPCASTERS.newest(event["type"]) != CheckpointCompleted.event_type:
        return True
    try:
        _, data = UPCASTERS.lift(event["type"], event["data"])
        return (data["job_id"], data["commit"]) in noted
    except (KeyError, TypeError, InvalidEvent):
        return False


def input_bytes(item: Mapping[str, Any]) -> bytes:
    """An input's envelope as it is on the wire, for `decode` with HEADERS."""
    return orjson.dumps(item["event"])
