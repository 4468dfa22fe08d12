"""New tables read history while the others serve, and a rebuild gives the same tables: in the real embedded engine over a log in memory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event as Flag

import pyarrow as pa
import pytest

from tests.support.fakes.memory_source import MemoryHistory, MemoryLog, MemorySource
from tests.support.tables.projecting import NOW, Killed, Killing, append, engine_in, lines, metrics, of_lane, spec_of
from tests.support.tables.senders import senders_of
from trainhouse.events.model.job import JobState, JobStatus
from trainhouse.events.model.node import Device, DeviceHealth, NodeHeartbeat, NodeRegistered
from trainhouse.events.wire import topics
from trainhouse.projections.errors import ProjectionError
from trainhouse.projections.ingest.builders import second_rollup
from trainhouse.projections.ingest.catchup import CatchUpLane, OnlyTables, plan
from trainhouse.projections.ingest.lane import Lane, Pace
from trainhouse.projections.ingest.lane_threads import LaneThreads
from trainhouse.projections.ingest.lanes import LANES
from trainhouse.projections.ingest.node_keys import NodeKeys
from trainhouse.projections.rebuild import fill_lane, swap
from trainhouse.projections.settings import ProjectorSettings
from trainhouse.projections.store.clickhouse import ClickHouse, ConnectClickHouse, connect_embedded
from trainhouse.projections.store.migrate import migrate, migrations
from trainhouse.projections.store.schema import read_schemas
from trainhouse.projections.store.table_hashes import TableHash, differences, table_hashes
from trainhouse.projections.store.tables import TABLES

pytestmark = pytest.mark.stack


class Kept(ConnectClickHouse):
    """A connection that outlives the lanes that close it."""

    def close(self) -> None:
        pass


@pytest.fixture
def clickhouse(tmp_path: Path) -> Iterator[ConnectClickHouse]:
    with engine_in(tmp_path / "clickhouse") as made:
        yield Kept(made._client)


def tell(log: MemoryLog, begin: int, end: int) -> None:
    """What a fleet says in some minutes."""
    devices = tuple(Device(device_id=f"g{n}", index=n, type="H100") for n in range(2))
    for n in range(begin, end):
        append(
            log, topics.STATUS, JobStatus(job_id=f"j{n % 3}", status_seq=n, state=JobState.RUNNING, step=n, updated_at_ms=NOW + n), f"s{n}"
        )
        of = {"node_id": f"n{n % 2}", "boot_id": "b", "incarnation": "i", "pool": "p"}
        registered = NodeRegistered(address="a", devices=devices, rendezvous_ports=(1,), **of)  # type: ignore[arg-type]
        append(log, topics.CONTROL, registered, f"r{n}")
        health = tuple(DeviceHealth(device_id=d.device_id, utilization_pct=float(n)) for d in devices)
        beat = NodeHeartbeat(sequence=n, at_ms=NOW + n * 10_000, interval_s=1.0, devices=health, **of)  # type: ignore[arg-type]
        append(log, topics.HEARTBEATS, beat, f"h{n}")
        append(log, topics.METRICS, metrics(n * 5, 5), f"m{n}")
        append(log, topics.LOGS, lines(n * 5, 5), f"l{n}")


def live(clickhouse: ClickHouse, log: MemoryLog, name: str, tables: Iterable[str] | None = None, records: int = 1000) -> None:
    """One life of a lane, as the version of the program that knows `tables` has it (None: ours); ends after some records."""
    spec = spec_of(name)
    builder = spec.builder(read_schemas(clickhouse, TABLES), NodeKeys(), senders_of())
    known = spec.tables if tables is None else frozenset(tables)
    open_ones = plan(clickhouse, name, known)
    lane = Lane(name, MemorySource(of_lane(log, spec), 3), clickhouse, OnlyTables(builder, known), Pace(0, 0))
    histories = [MemoryHistory(of_lane(log, spec), missing.ends, 4) for missing in open_ones]
    catch_ups = [CatchUpLane(missing, history, clickhouse, builder) for missing, history in zip(open_ones, histories, strict=True)]
    lane.recover()
    for catch_up in catch_ups:
        catch_up.recover()
    while lane.records < records and (found := lane._source.poll(0)):
        lane.ingest(found)
    lane.settle()
    for catch_up in catch_ups:
        catch_up.run(Flag())


def rebuilt(folder: Path, log: MemoryLog) -> list[TableHash]:
    with engine_in(folder) as made:
        schemas = read_schemas(made, TABLES)
        for spec in LANES:
            mine = of_lane(log, spec)
            source = MemoryHistory(mine, {p: e for p, e in mine.ends.items() if p[0] in spec.topics}, 50)
            fill_lane(
                Lane(spec.name, source, Kept(made._client), spec.builder(schemas, NodeKeys(), senders_of()), Pace(0, 0)), source, Flag()
            )
        return table_hashes(made)


OLD = {"facts": {"jobs_rows"}, "reports": {"node_facts"}, "beats": {"node_facts"}, "metrics": set[str](), "logs": {"logs"}}


def test_new_tables_catch_up_exactly_and_give_what_a_rebuild_gives(tmp_path: Path) -> None:
    log = MemoryLog()
    tell(log, 0, 8)
    with engine_in(tmp_path / "live") as made:
        clickhouse = Kept(made._client)
        for name, tables in OLD.items():
            live(clickhouse, log, name, tables, records=4)
            # The old version is cut in the middle of a batch.
            with pytest.raises(Killed):
                live(Killing(clickhouse, 2, "inside"), log, name, tables)
        assert clickhouse.rows("SELECT count() FROM step_metrics") == [(0,)]
        assert clickhouse.rows("SELECT count() FROM device_minutes_rows") == [(0,)]
        tell(log, 8, 12)
        cut = 0
        for name in OLD:  # the new version, cut while it catches up, and once more
            for at in (3, 6):
                try:
                    live(Killing(clickhouse, at, "after"), log, name)
                except Killed:
                    cut += 1
            live(clickhouse, log, name)
        assert cut >= 4
        whole = {(lane, table) for lane, table in clickhouse.rows("SELECT lane, table_name FROM lane_tables FINAL")}
        assert {("metrics", "step_metrics"), ("reports", "device_facts"), ("beats", "device_minutes_rows")} <= whole
        tell(log, 12, 14)
        for name in OLD:
            assert plan(clickhouse, name, spec_of(name).tables) == []
            live(clickhouse, log, name)
        grown = table_hashes(clickhouse)
    fresh = rebuilt(tmp_path / "fresh", log)
    assert differences(grown, fresh) == []
    rows = {h.table: h.rows for h in fresh}
    assert (rows["step_metrics"], rows["logs"], rows["statuses_rows"], rows["device_facts"]) == (140, 70, 14, 8)


class Replaying(Kept):
    """A connection whose replay, before it makes rollups anew, gives another lane some time to insert points."""

    points_are_in, is_over = Flag(), Flag()

    def command(self, sql: str) -> None:
        filling = sql.lstrip().startswith("INSERT INTO step_metrics_1s_rows")
        if filling:
            self.points_are_in.wait(1)
        super().command(sql)
        if filling:
            self.is_over.set()


class Ingesting(Kept):
    """A connection that has a batch's points in, and not yet their seconds, while that replay makes rollups anew, if it can."""

    def insert(self, table: str, data: pa.Table, token: str) -> None:
        super().insert(table, data, token)
        if table == "step_metrics":
            Replaying.points_are_in.set()
            Replaying.is_over.wait(60)


def test_nobody_ingests_points_of_an_hour_that_a_replay_makes_anew(clickhouse: ConnectClickHouse, tmp_path: Path) -> None:
    log = MemoryLog()
    tell(log, 0, 8)
    live(clickhouse, log, "metrics", (), records=4)
    spec = spec_of("metrics")
    builders = [spec.builder(read_schemas(clickhouse, TABLES), NodeKeys(), senders_of()) for _ in range(2)]
    (missing,) = plan(clickhouse, "metrics", spec.tables)
    history = MemoryHistory(of_lane(log, spec), missing.ends, 2)
    cut = CatchUpLane(missing, history, Killing(clickhouse, 2, "after"), builders[0])
    cut.recover()
    with pytest.raises(Killed):
        cut.run(Flag())
    other, stop = connect_embedded(tmp_path / "clickhouse", 1024**3, 2), Flag()
    threads = LaneThreads(stop)
    try:
        lane = Lane("metrics", MemorySource(of_lane(log, spec), 100), Ingesting(other._client), builders[1], Pace(0, 0))
        threads.add(lane)
        threads.add(CatchUpLane(missing, history, Replaying(clickhouse._client), builders[0]))
        threads.start()
        until_s = time.monotonic() + 120
        while (plan(clickhouse, "metrics", spec.tables) or not lane.records) and not stop.is_set() and time.monotonic() < until_s:
            stop.wait(0.05)
    finally:
        threads.join()
        other.close()
    assert not threads.failures and Replaying.is_over.is_set()
    counted = [clickhouse.rows(f"SELECT sum(points) FROM step_metrics_{level}")[0][0] for level in ("1s", "1m", "1h")]
    assert clickhouse.rows("SELECT count() FROM step_metrics") == [(80,)]
    assert counted == [80, 80, 80]


def test_what_a_lane_never_wrote_before_catches_up_after_an_update(tmp_path: Path) -> None:
    """The tables of migrations 1 to 9 had all that their lanes had read; none that came later had anything."""
    clickhouse = Kept(connect_embedded(tmp_path / "clickhouse", 1024**3, 2)._client)
    known = migrations()
    migrate(clickhouse, known[:9])
    then = {str(name) for (name,) in clickhouse.rows("SELECT name FROM system.tables WHERE database = currentDatabase()")}
    columns = "(lane, topic, partition, batch, from_offset, to_offset, done, version)"
    for lane in ("facts", "beats", "metrics", "logs"):
        clickhouse.command(f"INSERT INTO positions {columns} VALUES ('{lane}', 't', 0, 1, 0, 7, 1, 3)")
    migrate(clickhouse, known)
    # What feeds these came later than the tables of migration 9; the migrations that made them say so.
    empty_so_far = {second_rollup.TABLE, "dataset_drift_rows", "artifact_versions_rows", "documents_rows"}
    empty_so_far |= {"model_facts", "model_windows_rows", "model_outcomes_rows", "model_references_rows", "model_drift_rows"}
    empty_so_far |= {"logged_models_rows", "run_models_rows", "study_facts", "studies_rows", "study_statuses_rows"}
    for spec in LANES:
        late = spec.tables - then - empty_so_far
        found = plan(clickhouse, spec.name, spec.tables)
        if spec.name in ("decisions", "reports", "ranks"):  # lanes of later than those positions
            assert found == []
        else:
            assert [c.tables for c in found] == ([late] if late else []), spec.name
    clickhouse._client.close()


def test_a_lane_that_begins_has_all_tables_from_its_beginning(clickhouse: ConnectClickHouse) -> None:
    assert plan(clickhouse, "facts", {"jobs_rows", "logs"}) == []
    assert plan(clickhouse, "facts", {"jobs_rows", "logs"}) == []
    assert clickhouse.rows("SELECT table_name FROM lane_tables FINAL ORDER BY 1") == [("jobs_rows",), ("logs",)]


def test_a_hash_sees_a_row_more_or_less_and_not_how_rows_came(clickhouse: ConnectClickHouse) -> None:
    insert = "INSERT INTO statuses_rows (job_id, status_seq, at, state, source_offset) VALUES"
    clickhouse.command(f"{insert} ('a', 1, 1, 'RUNNING', 7), ('b', 1, 1, 'RUNNING', 8)")
    first = table_hashes(clickhouse)
    clickhouse.command(f"{insert} ('a', 1, 1, 'RUNNING', 99)")
    assert differences(first, table_hashes(clickhouse)) == []
    clickhouse.command(f"{insert} ('a', 2, 1, 'RUNNING', 99)")
    assert differences(first, table_hashes(clickhouse)) == ["statuses_rows"]


def test_a_hash_does_not_see_to_which_request_a_decision_belongs_since_rows_of_before_lack_it(clickhouse: ConnectClickHouse) -> None:
    insert = "INSERT INTO decisions_rows (partition, seq, ordinal, at, type, request_id) VALUES"
    clickhouse.command(f"{insert} (0, 1, 0, 1, 'trainhouse.decision.token-seen.v1', '')")
    before = table_hashes(clickhouse)
    clickhouse.command(f"{insert} (0, 1, 0, 1, 'trainhouse.decision.token-seen.v1', 'asked')")
    assert differences(before, table_hashes(clickhouse)) == []


def test_a_swap_keeps_the_old_folder(tmp_path: Path) -> None:
    settings = ProjectorSettings(data_dir=tmp_path / "clickhouse")
    for folder, name in ((settings.data_dir, "old"), (tmp_path / "new", "new")):
        made = connect_embedded(folder, settings.memory_bytes, settings.merge_threads)
        made.command(f"CREATE TABLE {name} (a UInt8) ENGINE = MergeTree ORDER BY a")
        made.close()
    old = swap(settings, tmp_path / "new")
    assert old is not None and old.is_dir()
    made = connect_embedded(settings.data_dir, settings.memory_bytes, settings.merge_threads)
    assert made.rows("SELECT name FROM system.tables WHERE database = currentDatabase()") == [("new",)]
    made.close()
    with pytest.raises(ProjectionError, match="run the rebuild first"):
        swap(settings, tmp_path / "new")
