"""Ingestion into the real embedded engine, cut at every point: each row is there once, whatever was interrupted.

Each hazard has a test that shows the harm without its counter-measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.fakes.memory_source import MemoryLog
from tests.support.tables.projecting import NOW, Killed, Killing, append, drain, lines, metrics, three_records
from trainhouse.events.model.checkpoint import CheckpointCompleted
from trainhouse.events.model.job import JobState, JobStatus
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.projections.errors import BrokenMigrationError
from trainhouse.projections.ingest import lane as lane_module
from trainhouse.projections.ingest.high_water import Marks
from trainhouse.projections.ingest.lane import Pace
from trainhouse.projections.store.clickhouse import ClickHouse, ConnectClickHouse, connect_embedded
from trainhouse.projections.store.migrate import Migration, migrate, migrations
from trainhouse.projections.store.positions import Batch, LaneState, Positions, Range
from trainhouse.projections.store.schema import read_schemas
from trainhouse.projections.store.tables import TABLES

pytestmark = pytest.mark.stack


def steps_of(clickhouse: ClickHouse, metric: str = "loss") -> list[int]:
    sql = "SELECT step FROM step_metrics WHERE metric = {m:String} ORDER BY step"
    return [r[0] for r in clickhouse.rows(sql, {"m": metric})]


@pytest.mark.parametrize("how", ["before", "after", "inside"])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6])
def test_a_batch_cut_anywhere_is_there_once(clickhouse: ConnectClickHouse, at: int, how: str) -> None:
    log = three_records()
    with pytest.raises(Killed):
        drain("metrics", Killing(clickhouse, at, how), log, 2)
    # More arrived meanwhile: a restart that chose new bounds would cut other blocks.
    append(log, topics.METRICS, metrics(21, 7), "m3")
    drain("metrics", clickhouse, log, 4)
    assert steps_of(clickhouse) == list(range(28))
    assert steps_of(clickhouse, "lr") == list(range(28))


@pytest.mark.parametrize("how", ["after", "inside"])
def test_without_the_intent_a_cut_batch_is_doubled(clickhouse: ConnectClickHouse, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log = three_records()
    with pytest.raises(Killed):
        drain("metrics", Killing(clickhouse, 2, how), log, 2)
    load = Positions.load

    def forgetful(self: Positions) -> LaneState:
        found = load(self)
        return LaneState({}, None, found.next_number)

    monkeypatch.setattr(Positions, "load", forgetful)
    drain("metrics", clickhouse, log, 4)
    assert steps_of(clickhouse) != list(range(21))


def test_a_token_without_its_rows_is_noticed(clickhouse: ConnectClickHouse) -> None:
    log = three_records()
    with pytest.raises(Killed):
        drain("metrics", Killing(clickhouse, 2, "after"), log, 4)
    clickhouse.command("ALTER TABLE step_metrics DELETE WHERE 1 SETTINGS mutations_sync = 2")
    drain("metrics", clickhouse, log, 4)
    assert steps_of(clickhouse) == list(range(21))


def test_without_the_count_a_token_without_its_rows_loses_them(clickhouse: ConnectClickHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    log = three_records()
    with pytest.raises(Killed):
        drain("metrics", Killing(clickhouse, 2, "after"), log, 4)
    clickhouse.command("ALTER TABLE step_metrics DELETE WHERE 1 SETTINGS mutations_sync = 2")
    monkeypatch.setattr(lane_module, "make_whole", lambda *_: False)
    drain("metrics", clickhouse, log, 4)
    assert steps_of(clickhouse) == []


def test_a_spool_that_was_cut_differently_is_trimmed(clickhouse: ConnectClickHouse) -> None:
    log = MemoryLog()
    append(log, topics.METRICS, metrics(0, 10), "a")
    append(log, topics.LOGS, lines(0, 10), "b")
    for name in ("metrics", "logs"):
        drain(name, clickhouse, log)
    # The agent restarts, has forgotten how far it got, and cuts [4, 25); its predecessor's repeat comes as well.
    for again in (metrics(4, 21), metrics(0, 10), metrics(24, 2)):
        append(log, topics.METRICS, again, "c")
    for repeat in (lines(4, 21), lines(0, 10), lines(24, 2)):
        append(log, topics.LOGS, repeat, "d")
    for name in ("metrics", "logs"):
        drain(name, clickhouse, log, 1)
    assert steps_of(clickhouse) == list(range(26))
    assert clickhouse.rows("SELECT count(), uniqExact(offset) FROM logs") == [(26, 26)]
    # Another epoch, and another rank, have files of their own.
    append(log, topics.METRICS, metrics(0, 3, epoch=1), "e")
    append(log, topics.METRICS, metrics(0, 3, rank=1), "f")
    drain("metrics", clickhouse, log)
    assert clickhouse.rows("SELECT count() FROM step_metrics WHERE metric = 'loss'") == [(32,)]


@pytest.mark.parametrize("at", [2, 3, 4])
@pytest.mark.parametrize("how", ["before", "after", "inside"])
def test_trimming_is_exact_when_the_trimmed_batch_itself_is_cut(clickhouse: ConnectClickHouse, at: int, how: str) -> None:
    log = MemoryLog()
    append(log, topics.METRICS, metrics(0, 10), "a")
    drain("metrics", clickhouse, log)
    append(log, topics.METRICS, metrics(6, 10), "b")
    append(log, topics.METRICS, metrics(12, 10), "c")
    try:
        drain("metrics", Killing(clickhouse, at, how), log)
    except Killed:
        pass
    drain("metrics", clickhouse, log)
    assert steps_of(clickhouse) == list(range(22))


def test_a_damaged_record_is_told_and_stops_nothing(clickhouse: ConnectClickHouse) -> None:
    log = MemoryLog()
    good = encode(envelope_of(metrics(0, 2), id="g", source="t", now_ms=NOW))
    damaged = [
        b"{",
        b"\xff" * 10_000,
        b"[]",
        b"null",
        good.replace(b'"steps":[0,1]', b'"steps":[0]'),
        good.replace(b'"rank":0', b'"rank":-1'),
    ]
    damaged += [
        good.replace(b'"steps":[0,1]', b'"steps":[0,99999999999999999999999]'),
        good.replace(b"metrics.step.v1", b"metrics.step.v9"),
    ]
    for value in [*damaged, None]:
        log.append(topics.METRICS, value)
        log.append(topics.LOGS, value)
        log.append(topics.CHECKPOINTS, value)
    log.append(topics.METRICS, good)
    for name in ("metrics", "logs", "ranks"):
        drain(name, clickhouse, log, 5)
    assert steps_of(clickhouse) == [0, 1]
    told = dict(clickhouse.rows("SELECT topic, count() FROM dead_letters WHERE reason != '' GROUP BY topic"))
    assert told[topics.METRICS] == len(damaged) + 1
    assert told[topics.LOGS] == len(damaged) + 1
    assert told[topics.CHECKPOINTS] >= 4


def test_a_value_beyond_its_bound_counts_as_the_bound_and_fits_its_column(clickhouse: ConnectClickHouse) -> None:
    log = MemoryLog()
    big = JobStatus(job_id="big", status_seq=1, state=JobState.RUNNING).model_copy(update={"attempt": 2**40})  # as its model refuses it
    append(log, topics.STATUS, big, "s1")
    append(log, topics.STATUS, JobStatus(job_id="fine", status_seq=1, state=JobState.RUNNING), "s2")
    drain("facts", clickhouse, log)
    assert clickhouse.rows("SELECT job_id, attempt FROM jobs ORDER BY job_id") == [("big", 2**31 - 1), ("fine", 0)]
    assert clickhouse.rows("SELECT offset, job_id FROM dead_letters") == []


def test_a_repeated_commit_is_one_checkpoint(clickhouse: ConnectClickHouse) -> None:
    log = MemoryLog()
    first = CheckpointCompleted(job_id="job", attempt=0, epoch=0, at_ms=NOW, commit=3, step=30, uri="s3://b/k", bytes_total=10, bytes_new=5)
    append(log, topics.CHECKPOINTS, first, "job:commit:3")
    append(log, topics.CHECKPOINTS, first.model_copy(update={"epoch": 1, "attempt": 1, "at_ms": NOW + 5}), "job:commit:3")
    append(log, topics.CONTROL, first, "job:commit:3")
    drain("ranks", clickhouse, log, 1)
    assert clickhouse.rows("SELECT commit, step, epoch, state FROM checkpoints") == [(3, 30, 0, "COMPLETED")]
    assert clickhouse.rows("SELECT count() FROM events") == [(1,)]


def test_a_rebuild_from_the_topics_gives_the_same_tables(clickhouse: ConnectClickHouse) -> None:
    log = three_records()
    for n in range(9):
        append(log, topics.STATUS, JobStatus(job_id=f"j{n % 3}", status_seq=n, state=JobState.RUNNING, step=n), f"s{n}")
        append(log, topics.LOGS, lines(n * 3, 5), f"l{n}")
    log.append(topics.JOBS, b"junk")
    for name in ("facts", "metrics", "logs"):
        with pytest.raises(Killed):
            drain(name, Killing(clickhouse, 4, "inside"), log, 2)
        drain(name, clickhouse, log, 3)
    first = hashes(clickhouse)
    for table in (*TABLES, "positions", "high_water"):
        clickhouse.command(f"TRUNCATE TABLE {table}")
    for name in ("facts", "metrics", "logs"):
        drain(name, clickhouse, log, 100)
    assert hashes(clickhouse) == first
    assert first["step_metrics"][0] == 42


def hashes(clickhouse: ClickHouse) -> dict[str, tuple[Any, ...]]:
    found = {}
    for table in (*TABLES, "jobs", "events"):
        final = "" if table in ("step_metrics", "logs", "jobs", "events") else "FINAL"
        found[table] = clickhouse.rows(f"SELECT count(), sum(cityHash64(tuple(*))) FROM {table} {final}")[0]
    return found


def test_marks_keep_a_bounded_cache_and_ask_for_the_rest(clickhouse: ConnectClickHouse) -> None:
    marks = Marks(clickhouse, "lane", max_cached=3)
    for number in range(1, 11):
        batch = Batch("lane", number, (Range("t", 0, number, number + 1),))
        stream = f"s{number}"
        before = marks.for_batch([stream], number)
        assert before == {stream: 0}
        marks.store(batch, before, {stream: number * 10})
        assert len(marks) <= 3
    assert marks.for_batch(["s1", "s10", "new"], 11) == {"s1": 10, "s10": 100, "new": 0}
    # As of before the batch that wrote them, they are what they were.
    assert Marks(clickhouse, "lane").for_batch(["s1", "s10"], 10) == {"s1": 10, "s10": 0}


def test_a_slow_insert_makes_the_next_batch_gather_longer_but_not_for_ever() -> None:
    pace = Pace(linger_s=0.05, max_linger_s=0.4)
    assert [pace.after(cycle) for cycle in (0.0, 0.1, 5.0)] == [0.05, 0.2, 0.4]


# -- migrations


class Cut:
    """A connection that ends at its nth command."""

    def __init__(self, inner: ClickHouse, at: int) -> None:
        self._inner = inner
        self._left = at

    def command(self, sql: str) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed
        self._inner.command(sql)

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return self._inner.rows(sql, parameters)

    def insert(self, table: str, data: pa.Table, token: str) -> None:
        self._inner.insert(table, data, token)

    def close(self) -> None:
        pass


def test_a_migration_cut_at_any_statement_is_finished_by_the_next_start(tmp_path: Path) -> None:
    made = connect_embedded(tmp_path / "clickhouse", 1024**3, 2)
    try:
        total = sum(len(m.statements) + 1 for m in migrations())
        applied: list[str] = []
        for at in range(total):  # each run gets one statement further than the one before
            try:
                applied += migrate(Cut(made, 2 + at % 4))
            except Killed:
                pass
        applied += migrate(made)
        names = made.rows("SELECT name FROM schema_migrations FINAL ORDER BY number")
        assert [n for (n,) in names] == [m.name for m in migrations()]
        assert migrate(made) == []
        assert read_schemas(made, TABLES).keys() == set(TABLES)
    finally:
        made.close()


def test_a_changed_or_unknown_migration_is_refused(clickhouse: ConnectClickHouse) -> None:
    known = migrations()
    changed = [Migration(m.number, m.name, m.text + ";SELECT 1") if m.number == 2 else m for m in known]
    with pytest.raises(BrokenMigrationError, match="changed after it was applied"):
        migrate(clickhouse, changed)
    with pytest.raises(BrokenMigrationError, match="newer version"):
        migrate(clickhouse, known[:-1])
