"""Builds the rows of low-volume topics: decode each event, ask each projection of its topic for rows.

Holds: a record that cannot be read, or whose rows do not fit their table, becomes a dead letter and stops nothing, whoever's fault it is:
the topic or the archive still has it, so a rebuild by a program without the fault has its rows. A fault of our own is logged as such, by
topic and kind; a number that its column cannot hold is none: agents and programs of strangers tell numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from threading import Event
from typing import Any

import pyarrow as pa
import structlog

from trainhouse.events.model.errors import InvalidEvent
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import decode
from trainhouse.events.wire.envelope import Envelope
from trainhouse.projections.ingest.builders.row_batch import Built
from trainhouse.projections.record import Record, Row, RowsFunction
from trainhouse.projections.rows.dead_letters import letter_row, unreadable_row
from trainhouse.projections.store.schema import UNFIT, out_of_range, to_table
from trainhouse.projections.store.tables import DEAD_LETTERS_TABLE

log_ = structlog.get_logger(__name__)


class FactsBuilder:
    """Rows by functions of (envelope, record); `schemas` are the Arrow schemas of all tables that they name."""

    def __init__(self, functions: Mapping[str, Sequence[RowsFunction]], schemas: Mapping[str, pa.Schema]) -> None:
        self._functions = functions
        self._schemas = schemas

    def ready(self, records: Sequence[Record], stop: Event) -> bool:
        return True

    def streams(self, records: Sequence[Record]) -> list[str]:
        return []

    def build(self, records: Sequence[Record], marks: dict[str, int]) -> Built:
        rows: dict[str, list[dict[str, Any]]] = {}
        letters: list[Row] = []
        faults: Counter[tuple[str, str]] = Counter()
        for record in records:
            try:
                found = self._rows(record)
            except InvalidEvent as invalid:
                found = []
                letters.append(unreadable_row(record, str(invalid), invalid.job_id or "", invalid.event_id or ""))
            except UNFIT as error:
                found = []
                letters.append(unreadable_row(record, f"no row fits it: {type(error).__name__}: {error}"))
                faults[record.topic, type(error).__name__] += 1
            for row in found:
                rows.setdefault(row.table, []).append(row.values)
        _say(faults)
        return self._tables(rows, letters)

    def _rows(self, record: Record) -> list[Row]:
        if record.topic == topics.DEAD_LETTERS:
            try:
                return [letter_row(record)]
            except (KeyError, ValueError) as error:  # whoever may write there, wrote it by hand
                raise InvalidEvent(f"its headers are no dead letter's: {error}") from error
        source = {"source_topic": record.topic, "source_partition": record.partition, "source_offset": record.offset}
        functions = self._functions.get(record.topic, ())  # none: a batch was cut whose lane read this topic then
        return [Row(r.table, r.values | source) for e in self.envelopes(record) for f in functions for r in f(e, record)]

    def envelopes(self, record: Record) -> Iterable[Envelope]:
        """The events of one record. Raises InvalidEvent."""
        # A tombstone of a compacted topic has none.
        return () if record.value is None else (decode(record.value, record.headers),)

    def _tables(self, rows: dict[str, list[dict[str, Any]]], letters: list[Row]) -> Built:
        tables = {}
        for name, values in rows.items():
            try:
                tables[name] = to_table(values, self._schemas[name])
            except UNFIT:
                fit, unfit = self._sift(name, values)
                letters += unfit
                if fit:
                    tables[name] = to_table(fit, self._schemas[name])
        unreadable = len(letters)
        if letters:
            own = to_table([r.values for r in letters], self._schemas[DEAD_LETTERS_TABLE])
            tables[DEAD_LETTERS_TABLE] = pa.concat_tables([t for t in (tables.get(DEAD_LETTERS_TABLE), own) if t is not None])
        return Built(tables, {}, unreadable)

    def _sift(self, name: str, values: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[Row]]:
        """Rows that fit, and dead letters for those that do not."""
        fit, unfit = [], []
        faults: Counter[tuple[str, str]] = Counter()
        schema = self._schemas[name]
        for value in values:
            try:
                to_table([value], schema)
                fit.append(value)
            except UNFIT as error:
                unfit.append(_unfit_letter(name, value, error))
                if not any(out_of_range(value.get(field.name), field.type) for field in schema):
                    faults[str(value.get("source_topic", "")), type(error).__name__] += 1
        _say(faults)
        return fit, unfit


def _unfit_letter(table: str, value: dict[str, Any], error: Exception) -> Row:
    record = Record(
        str(value.get("source_topic", topics.DEAD_LETTERS)), value.get("source_partition", 0), value.get("source_offset", 0), 0, None, None
    )
    return unreadable_row(record, f"its row does not fit table {table}: {error}", str(value.get("job_id", "")))


def _say(faults: Counter[tuple[str, str]]) -> None:
    for (topic, kind), count in sorted(faults.items()):
        log_.critical(
            "records were set aside because the projections failed on them, a fault of the program: "
            "update it, then `trainhouse projections rebuild`",
            topic=topic,
            error=kind,
            records=count,
        )
