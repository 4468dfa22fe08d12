"""Builds rows of what was said on control, from the scheduler's journal: there each input stands whole, and what was refused is told apart.

Agents write to control, so a record there may be anybody's word; the journal has what the scheduler took as said by whom it names.
Holds: an input of a record that counts is a record of control again, at its own offset, so the rows say where it was told; what the
scheduler refused (a signature that is not the node's, what cannot be read) makes no row. It depends on the journal alone, which never
expires, so a rebuild shows the same.
Never: reads control; judges a signature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from typing import Any

import orjson
import pyarrow as pa

from trainhouse.events.checkpoint import CheckpointCompleted
from trainhouse.events.codec import HEADERS
from trainhouse.events.decisions import CheckpointNoted
from trainhouse.events.journal import InputRefused, InvalidRecord, record_head
from trainhouse.events.topics import CONTROL
from trainhouse.projections.built import Built
from trainhouse.projections.facts import FactsBuilder
from trainhouse.projections.journal import Counting
from trainhouse.projections.record import Record, RowsFunction


class ReportsBuilder:
    """FactsBuilder over the inputs of journal records. Streams and marks are those of the journal."""

    def __init__(self, functions: Mapping[str, Sequence[RowsFunction]], schemas: Mapping[str, pa.Schema]) -> None:
        self._facts = FactsBuilder(functions, schemas)

    def ready(self, records: Sequence[Record], stop: Event) -> bool:
        """At once."""
        return True

    def streams(self, records: Sequence[Record]) -> list[str]:
        """As a JournalBuilder's."""
        return Counting.streams(records)

    def build(self, records: Sequence[Record], marks: dict[str, int]) -> Built:
        """The rows of the inputs, in their order."""
        counting = Counting(marks)
        built = self._facts.build([told for record in records for told in _inputs(record, counting)], {})
        return Built(built.tables, counting.marks, built.unreadable, tuple(counting.gaps))


def _inputs(record: Record, counting: Counting) -> Iterator[Record]:
    """The records of control that a journal record took; none where it does not count."""
    if record.value is None:
        return
    try:
        head = record_head(record.value)
    except InvalidRecord:
        return  # the lane of decisions says so
    if not counting.counts(record, head["seq"]):
        return
    for item in taken_inputs(head):
        yield Record(CONTROL, record.partition, item["offset"], int(head["now_ms"]), None, input_bytes(item), HEADERS)


def taken_inputs(head: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The inputs of a journal record that its owner took from control: neither its own ones, nor what it refused.

    Of completed checkpoints only those that it noted: of a job that it has forgotten it does not know whose word counts. What its nodes
    tell of older ones stands on the topic of checkpoints.
    """
    refused = {d["data"]["offset"] for d in head["decisions"] if d["type"] == InputRefused.event_type}
    notes = [d["data"] for d in head["decisions"] if d["type"] == CheckpointNoted.event_type]
    noted = {(d["job_id"], d["checkpoint"]["commit"]) for d in notes}
    for item in head["inputs"]:
        # Without an offset it is the owner's own; without an event it was refused.
        if item["offset"] is None or "event" not in item or item["offset"] in refused:
            continue
        event = item["event"]
        if event["type"] != CheckpointCompleted.event_type or (event["data"]["job_id"], event["data"]["commit"]) in noted:
            yield item


def input_bytes(item: Mapping[str, Any]) -> bytes:
    """An input's envelope as it is on the wire, for `decode` with HEADERS."""
    return orjson.dumps(item["event"])
