"""Metrics by second, minute and hour, and last values: exactly what the points say, whatever was cut, in whatever order blocks came."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.memory_source import MemoryLog
from tests.support.tables.projecting import Killed, Killing, append, drain, metrics
from trainhouse.events.model.telemetry import StepMetrics
from trainhouse.events.wire import topics
from trainhouse.projections.store import rollups
from trainhouse.projections.store.clickhouse import ConnectClickHouse, connect_embedded
from trainhouse.projections.store.migrate import Migration, migrate, migrations

pytestmark = pytest.mark.stack
LEVELS = {"1s": 1000, "1m": 60_000, "1h": 3_600_000}


def points(start: int, count: int, every_ms: int = 400, **more: Any) -> StepMetrics:
    """Points [start, start + count) of one rank, `every_ms` apart. Every 7th value is NaN."""
    curves = {"it's \\ a loss": lambda step: math.nan if step % 7 == 0 else math.sin(step), "lr": lambda step: 0.5}
    return metrics(start, count, every_ms=every_ms, curves=curves, **more)


def a_log() -> MemoryLog:
    log = MemoryLog()
    for n in range(4):
        append(log, topics.METRICS, points(n * 50, 50), f"a{n}")
        append(log, topics.METRICS, points(n * 50, 50, every_ms=40_000, rank=1), f"b{n}")
    append(log, topics.METRICS, points(0, 20, epoch=1), "c")
    return log


def judged(clickhouse: ConnectClickHouse) -> None:
    """Every bucket of every level against the points themselves, and the last values."""
    for level, width_ms in LEVELS.items():
        expected = clickhouse.rows(
            f"""SELECT job_id, metric, epoch, rank, intDiv(toUnixTimestamp64Milli(p.time), {width_ms}) * {width_ms} AS bucket,
            min(step), max(step), minIf(value, NOT isNaN(value)), maxIf(value, NOT isNaN(value)), argMax(value, step), count()
            FROM step_metrics AS p GROUP BY job_id, metric, epoch, rank, bucket ORDER BY ALL"""
        )
        found = clickhouse.rows(
            f"""SELECT job_id, metric, epoch, rank, toUnixTimestamp(time) * 1000 AS bucket, first_step, last_step,
            ifNull(min_value, 0), ifNull(max_value, 0), last_value, points FROM step_metrics_{level} ORDER BY ALL"""
        )
        assert [_plain(r) for r in found] == [_plain(r) for r in expected]
        means = f"SELECT sum(points), sum(mean_value IS NULL) FROM step_metrics_{level}"
        assert clickhouse.rows(means)[0][0] == clickhouse.rows("SELECT count() FROM step_metrics")[0][0]
    last = "SELECT job_id, metric, rank, epoch, step, time, toString(value) FROM metric_latest ORDER BY ALL"
    by_hand = """SELECT job_id, metric, rank, epoch, step, time, toString(value) FROM step_metrics
        ORDER BY job_id, metric, rank, epoch DESC, step DESC LIMIT 1 BY job_id, metric, rank"""
    assert clickhouse.rows(last) == sorted(clickhouse.rows(by_hand))


def _plain(row: tuple[Any, ...]) -> list[Any]:
    return ["nan" if isinstance(v, float) and math.isnan(v) else v for v in row]


@pytest.mark.parametrize(("at", "how"), [(0, "not"), (2, "inside"), (2, "after"), (3, "inside"), (3, "after"), (7, "inside")])
def test_buckets_are_what_the_points_say_whatever_was_cut(clickhouse: ConnectClickHouse, at: int, how: str) -> None:
    log = a_log()
    if at:
        with pytest.raises(Killed):
            drain("metrics", Killing(clickhouse, at, how), log, 3)
    drain("metrics", clickhouse, log, 5)
    judged(clickhouse)
    assert clickhouse.rows("SELECT count() FROM step_metrics")[0][0] == 840


def test_a_rollup_whose_part_was_lost_is_noticed(clickhouse: ConnectClickHouse) -> None:
    log = a_log()
    with pytest.raises(Killed):
        drain("metrics", Killing(clickhouse, 3, "after"), log, 9)
    for table in (*rollups.LEVELS, "metric_latest_rows"):
        clickhouse.command(f"ALTER TABLE {table} DELETE WHERE 1 SETTINGS mutations_sync = 2")
    drain("metrics", clickhouse, log)
    judged(clickhouse)


def test_without_making_them_anew_a_lost_part_stays_lost(clickhouse: ConnectClickHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log()
    with pytest.raises(Killed):
        drain("metrics", Killing(clickhouse, 3, "after"), log, 9)
    clickhouse.command(f"ALTER TABLE {rollups.LEVELS[2]} DELETE WHERE 1 SETTINGS mutations_sync = 2")
    monkeypatch.setattr(rollups, "make_anew", lambda *_: None)
    drain("metrics", clickhouse, log)
    kept, all_points = (
        clickhouse.rows(f"SELECT {what}")[0][0] for what in ("sum(points) FROM step_metrics_1h", "count() FROM step_metrics")
    )
    assert kept < all_points


def test_points_that_were_there_before_the_rollups_are_in_them(tmp_path: Path) -> None:
    made = connect_embedded(tmp_path / "clickhouse", 1024**3, 2)
    try:
        files = migrations()
        (of_rollups,) = (m for m in files if m.name == "rollups")
        migrate(made, [m for m in files if m.number < of_rollups.number])
        rows = "SELECT 'j', 'loss', 1, 0, number % 2, number, toDateTime64(number / 10, 3, 'UTC'), number / 3, 'n', 0, number"
        columns = "job_id, metric, epoch, attempt, rank, step, time, value, node_id, source_partition, source_offset"
        made.command(f"INSERT INTO step_metrics ({columns}) {rows} FROM numbers(100000)")
        for cut_at in (6, 9, 11, 12, 15):  # and a migration that was cut is applied again from its start
            for statement in of_rollups.statements[:cut_at]:
                made.command(statement)
        migrate(made, [Migration(m.number, m.name, m.text) for m in files if m.number <= of_rollups.number])
        assert made.rows("SELECT sum(points), count() FROM step_metrics_1s") == [(100_000, 20_000)]
        judged(made)
    finally:
        made.close()
