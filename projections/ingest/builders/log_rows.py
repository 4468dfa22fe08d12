"""Builds the rows of `logs`, one a line of a rank's output.

Holds: a line is stored once, however its file was cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event

import numpy as np
import pyarrow as pa

from trainhouse.events.model.telemetry import LogLines
from trainhouse.events.wire.topics import LOGS
from trainhouse.projections.ingest.builders.json_columns import DAMAGE, Cut, DamagedError, Runs, Sifter, first_new
from trainhouse.projections.ingest.builders.row_batch import Built
from trainhouse.projections.ingest.builders.step_metrics import tables_of
from trainhouse.projections.ingest.senders import Senders
from trainhouse.projections.record import Record, clamp_ms
from trainhouse.projections.rows.dead_letters import unreadable_row

TABLE = "logs"


class LogsBuilder:
    """LogLines to rows. `letters` is the Arrow schema of the dead letters' table."""

    def __init__(self, letters: pa.Schema, senders: Senders) -> None:
        self._letters = letters
        self._sifter = Sifter(LogLines.event_type, LOGS, senders)

    def ready(self, records: Sequence[Record], stop: Event) -> bool:
        return self._sifter.ready(records, stop)

    def streams(self, records: Sequence[Record]) -> list[str]:
        return [c.stream for c in self._sifter.sifted(records)[0]]

    def build(self, records: Sequence[Record], marks: dict[str, int]) -> Built:
        cuts, letters = self._sifter.take(records)
        columns = _Columns()
        after = dict(marks)
        for cut in cuts:
            mark = after.get(cut.stream, 0)
            try:
                columns.add(cut, first_new(cut, mark))
                after[cut.stream] = max(mark, cut.data["end"])
            except DAMAGE as error:
                letters.append(unreadable_row(cut.record, f"{type(error).__name__}: {error}", cut.data["job_id"]))
        return Built(tables_of(TABLE, columns.table(), letters, self._letters), after, len(letters))


class _Columns:
    """Rows so far: one run for each record."""

    def __init__(self) -> None:
        self._runs = Runs(("job_id", "epoch", "attempt", "rank", "stream", "node_id", "time", "partition", "offset"))
        self._lines: list[str] = []
        self._offsets: list[int] = []

    def add(self, cut: Cut, first: int) -> None:
        data, record = cut.data, cut.record
        lines, offsets = data["lines"], data["offsets"]
        if len(lines) != len(offsets):
            raise DamagedError("lines and offsets differ in length")
        if not all(type(line) is str for line in lines) or not all(type(o) is int and 0 <= o < 2**63 for o in offsets):
            raise DamagedError("a line is no text or an offset no count")
        if type(lines) is not list or type(offsets) is not list:
            raise DamagedError("lines or offsets are no list")
        if first >= len(lines):
            return
        self._runs.add(
            len(lines) - first,
            data["job_id"],
            data["epoch"],
            data["attempt"],
            data["rank"],
            data["stream"],
            data["node_id"],
            clamp_ms(data["read_at_ms"]),
            record.partition,
            record.offset,
        )
        self._lines += lines[first:]
        self._offsets += offsets[first:]

    def table(self) -> pa.Table | None:
        if not self._lines:
            return None
        runs = self._runs
        return pa.table(
            {
                "job_id": runs.text("job_id"),
                "epoch": runs.number("epoch", np.uint32),
                "attempt": runs.number("attempt", np.uint32),
                "rank": runs.number("rank", np.uint32),
                "stream": runs.text("stream"),
                "offset": pa.array(self._offsets, type=pa.uint64()),
                "time": runs.number("time", np.int64).cast(pa.timestamp("ms", tz="UTC")),
                "line": pa.array(self._lines, type=pa.string()),
                "node_id": runs.text("node_id"),
                "source_partition": runs.number("partition", np.uint32),
                "source_offset": runs.number("offset", np.uint64),
            }
        )
