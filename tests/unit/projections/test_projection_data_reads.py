"""Rows of what steps read: bounded an attempt, whatever a rank reports."""

from __future__ import annotations

from typing import Any

from tests.contract.test_data_reads import A, read, run, stretch
from trainhouse.events import DataRead, envelope_of
from trainhouse.events.wire.topics import ENVIRONMENTS
from trainhouse.projections.record import Record
from trainhouse.projections.rows.datasets.read_rows import MOST_LOADERS, POSITIONS, SHARDS, rows
from trainhouse.workers.session.steps import data_reads

KEY = ("job_id", "fact", "epoch", "loader", "first_step", "first_position")


def made(*reports: DataRead) -> list[tuple[str, dict[str, Any]]]:
    record = Record(ENVIRONMENTS, 0, 0, 0, None, None)
    return [(r.table, r.values) for each in reports for r in rows(envelope_of(each, id="e", source="rank", now_ms=1), record)]


def test_reports_of_one_attempt_make_one_begin_whatever_steps_and_loaders_they_name() -> None:
    found = made(*(read(2, began, loader=loader) for began in (7, 3, 9) for loader in range(3)))
    assert {tuple(values[name] for name in KEY) for _, values in found} == {("gpt-1", "began", 2, 0, 0, 0)}
    least = max(found, key=lambda row: int(row[1]["steps"]))[1]
    assert least["steps"] == made(read(2, 3))[0][1]["steps"], "the row that stays is that of the least step"


def test_reports_beyond_the_loaders_that_a_session_counts_make_no_row() -> None:
    assert MOST_LOADERS == data_reads.MOST_LOADERS
    assert made(read(1, 0, loader=MOST_LOADERS - 1)) and not made(read(1, 0, loader=MOST_LOADERS))


def test_what_is_reported_of_later_attempts_makes_no_row() -> None:
    found = made(read(2, 0, runs=(run(3, 0, 1, 0), run(2, 0, 1, 0), run(1, 0, 1, 0)), stretch=stretch(3, 0, 1, (A, 1, [(0, 1)]))))
    assert [values["epoch"] for table, values in found if table == POSITIONS and values["fact"] == "read"] == [2, 1]
    assert not [table for table, _ in found if table == SHARDS]
