"""Builds the rows of `step_metrics`, one a value, at the speed of the engine that takes them, and those of its seconds.

Holds: a value is stored once, however its spool was cut; None means no value and makes no row, NaN is a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trainhouse.events.model.telemetry import StepMetrics
from trainhouse.events.wire.topics import METRICS
from trainhouse.projections.ingest.builders import second_rollup
from trainhouse.projections.ingest.builders.json_columns import DAMAGE, Cut, DamagedError, Runs, Sifter, first_new
from trainhouse.projections.ingest.builders.row_batch import Built
from trainhouse.projections.ingest.senders import Senders
from trainhouse.projections.record import MAX_TIME_MS, Record, Row
from trainhouse.projections.rows.dead_letters import unreadable_row
from trainhouse.projections.store.schema import to_table
from trainhouse.projections.store.tables import DEAD_LETTERS_TABLE

TABLE = "step_metrics"
Array = npt.NDArray[Any]


class MetricsBuilder:
    """StepMetrics to rows. `letters` is the Arrow schema of the dead letters' table."""

    def __init__(self, letters: pa.Schema, senders: Senders) -> None:
        self._letters = letters
        self._sifter = Sifter(StepMetrics.event_type, METRICS, senders)

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
        points = columns.table()
        tables = tables_of(TABLE, points, letters, self._letters)
        if points is not None and points.num_rows:
            tables[second_rollup.TABLE] = second_rollup.by_second(points)
        return Built(tables, after, len(letters))


class _Columns:
    """Rows so far: one run for each metric of each record."""

    def __init__(self) -> None:
        self._runs = Runs(("job_id", "metric", "epoch", "attempt", "rank", "node_id", "topic", "partition", "offset"))
        self._steps: list[Array] = []
        self._times: list[Array] = []
        self._values: list[Array] = []

    def add(self, cut: Cut, first: int) -> None:
        data = cut.data
        steps, times = np.array(data["steps"], dtype=np.uint64)[first:], np.array(data["times_ms"], dtype=np.int64)[first:]
        total = len(data["steps"])
        if len(data["times_ms"]) != total or len(data["offsets"]) != total or any(len(c) != total for c in data["metrics"].values()):
            raise DamagedError("its columns differ in length")
        if first >= total:
            return
        times = times.clip(0, MAX_TIME_MS)
        runs = []
        for name, column in data["metrics"].items():
            new = column[first:] if first else column
            values = np.array(new, dtype=np.float64)
            if not steps.ndim == times.ndim == values.ndim == 1:
                raise DamagedError("one of its columns has lists in it")
            if None in new:
                there = np.array([v is not None for v in new])
                runs.append((name, steps[there], times[there], values[there]))
            else:
                runs.append((name, steps, times, values))
        self._append(cut, runs)

    def _append(self, cut: Cut, runs: list[tuple[str, Array, Array, Array]]) -> None:
        data, record = cut.data, cut.record
        for name, steps, times, values in runs:
            self._runs.add(
                len(values),
                data["job_id"],
                name,
                data["epoch"],
                data["attempt"],
                data["rank"],
                data["node_id"],
                record.topic,
                record.partition,
                record.offset,
            )
            self._steps.append(steps)
            self._times.append(times)
            self._values.append(values)

    def table(self) -> pa.Table | None:
        if not self._steps:
            return None
        runs = self._runs
        return pa.table(
            {
                "job_id": runs.text("job_id"),
                "metric": runs.text("metric"),
                "epoch": runs.number("epoch", np.uint32),
                "attempt": runs.number("attempt", np.uint32),
                "rank": runs.number("rank", np.uint32),
                "step": pa.array(np.concatenate(self._steps)),
                "time": pa.array(np.concatenate(self._times), type=pa.timestamp("ms", tz="UTC")),
                "value": pa.array(np.concatenate(self._values)),
                "node_id": runs.text("node_id"),
                "source_topic": runs.text("topic"),
                "source_partition": runs.number("partition", np.uint32),
                "source_offset": runs.number("offset", np.uint64),
            }
        )


def tables_of(name: str, table: pa.Table | None, letters: list[Row], schema: pa.Schema) -> dict[str, pa.Table]:
    """Returns the tables to insert: the rows, and the dead letters if there are any."""
    tables = {} if table is None or not table.num_rows else {name: table}
    if letters:
        tables[DEAD_LETTERS_TABLE] = to_table([r.values for r in letters], schema)
    return tables
