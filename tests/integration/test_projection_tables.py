"""The tables of devices, decisions, statuses and lineage in the real embedded engine, through whole lives of their lanes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.memory_source import MemoryLog
from tests.support.tables.projecting import NOW, Killed, Killing, append, drain, engine_in, spec_of
from trainhouse.events.model.base import Event
from trainhouse.events.model.checkpoint import CheckpointCompleted
from trainhouse.events.model.decisions import JobForgotten, JobQueued, TrustChanged
from trainhouse.events.model.evidence import Trust
from trainhouse.events.model.job import JobState, JobStatus, PoolCreated
from trainhouse.events.model.node import AttemptHeartbeat, Device, DeviceHealth, NodeHeartbeat, NodeRegistered, RankHeartbeat, RankState
from trainhouse.events.model.pool import NodeRestricted, Restriction
from trainhouse.events.model.spec import CodeArchive, JobSpec, Runtime
from trainhouse.events.model.tracking import ArtifactLogged
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import Order, envelope_of
from trainhouse.events.wire.journal import NO_HASH, JournalRecord, record_hash
from trainhouse.projections.ingest.catchup import plan
from trainhouse.projections.ingest.retained_from import held_to
from trainhouse.projections.record import Record
from trainhouse.projections.rows import devices
from trainhouse.projections.store.clickhouse import ConnectClickHouse, connect_embedded
from trainhouse.projections.store.migrate import migrate, migrations
from trainhouse.projections.store.table_hashes import table_hashes

pytestmark = pytest.mark.stack
SPEC = JobSpec(project="vision", runtime=Runtime(command=("python", "t.py")), code=CodeArchive(uri="s3://b/c", sha256="a" * 64))


class Journal:
    """Writes the journal of one partition, with what a second owner writes beside it."""

    def __init__(self, log: MemoryLog, partition: int = 0, began_ms: int = NOW) -> None:
        self._log, self._partition, self._seq, self._hash, self._began_ms = log, partition, 0, NO_HASH, began_ms

    def add(self, *decisions: Event, owner: str = "first") -> None:
        self._seq += 1
        value = self._record(owner, decisions).encode()
        self._hash = record_hash(value)
        self._log.append(topics.DECISIONS, value, partition=self._partition, timestamp_ms=NOW)

    def late(self, *decisions: Event) -> None:
        """A record for the seq that was just taken: it does not count."""
        self._log.append(topics.DECISIONS, self._record("second", decisions).encode(), partition=self._partition, timestamp_ms=NOW)

    def _record(self, owner: str, decisions: tuple[Event, ...]) -> JournalRecord:
        return JournalRecord(self._seq, owner, self._began_ms + self._seq, self._seq, (), decisions, 0, 1, 1, self._hash)


def status(job_id: str, seq: int, state: JobState, **more: Any) -> JobStatus:
    return JobStatus(job_id=job_id, status_seq=seq, state=state, updated_at_ms=NOW + seq, **more)


def a_journal() -> MemoryLog:
    log = MemoryLog()
    journal = Journal(log)
    queued = JobQueued(job_id="j", number=1, spec=SPEC, spec_sha256=SPEC.sha256(), submission_id="s", submitted_at_ms=NOW)
    journal.add(queued, status("j", 1, JobState.PENDING))
    journal.late(queued, JobForgotten(job_id="j"), status("j", 2, JobState.FAILED))
    journal.add()
    journal.add(status("j", 2, JobState.RUNNING, epoch=1, step=10))
    journal.add(status("j", 3, JobState.SUCCEEDED, epoch=1, step=20, project="vision"))
    other = Journal(log, partition=1)
    other.add(TrustChanged(node_id="n", trust=Trust(closed_devices=("g1",)), reason="ECC"))
    return log


DECIDED = [
    (0, 1, 0, "trainhouse.decision.job-queued.v1"),
    (0, 1, 1, "trainhouse.job.status.v1"),
    (0, 3, 0, "trainhouse.job.status.v1"),
    (0, 4, 0, "trainhouse.job.status.v1"),
    (1, 1, 0, "trainhouse.decision.trust-changed.v1"),
]


@pytest.mark.parametrize(("at", "how"), [(0, "not"), *((n, how) for n in (2, 3, 4, 6) for how in ("before", "after", "inside"))])
def test_decisions_are_those_of_records_that_count_whatever_is_cut(clickhouse: ConnectClickHouse, at: int, how: str) -> None:
    log = a_journal()
    if at:
        with pytest.raises(Killed):
            drain("decisions", Killing(clickhouse, at, how), log, 2)
    drain("decisions", clickhouse, log, 3)
    assert clickhouse.rows("SELECT partition, seq, ordinal, type FROM decisions ORDER BY ALL") == DECIDED
    history = clickhouse.rows("SELECT status_seq, state, epoch, step FROM job_status_history WHERE job_id = 'j' ORDER BY status_seq")
    assert history == [(1, "PENDING", 0, None), (2, "RUNNING", 1, 10), (3, "SUCCEEDED", 1, 20)]


def test_a_compacted_topic_of_statuses_takes_nothing_from_the_history(clickhouse: ConnectClickHouse) -> None:
    log = a_journal()
    append(log, topics.STATUS, status("j", 3, JobState.SUCCEEDED, epoch=1, step=20, project="vision"), "s3")
    for name in ("facts", "decisions"):
        drain(name, clickhouse, log)
    assert clickhouse.rows("SELECT count(), max(status_seq) FROM job_status_history WHERE job_id = 'j'") == [(3, 3)]
    assert clickhouse.rows("SELECT state FROM jobs WHERE job_id = 'j'") == [("SUCCEEDED",)]


def test_a_job_whose_status_got_a_tombstone_is_the_same_row_in_tables_that_are_built_anew(tmp_path: Path) -> None:
    """The journal has its last status; a job that is not finished is the status topic's alone."""
    running = status("k", 5, JobState.RUNNING, step=3)
    before, after = a_journal(), a_journal()
    append(before, topics.STATUS, status("j", 3, JobState.SUCCEEDED, epoch=1, step=20, project="vision"), "j")
    after.append(topics.STATUS, None, key=b"j")
    hashes = []
    for n, log in enumerate((before, after)):
        append(log, topics.STATUS, running, "k")
        with engine_in(tmp_path / str(n)) as made:
            for name in ("facts", "decisions"):
                drain(name, made, log)
            assert made.rows("SELECT job_id, state, status_seq FROM jobs ORDER BY job_id") == [("j", "SUCCEEDED", 3), ("k", "RUNNING", 5)]
            hashes.append([h for h in table_hashes(made) if h.table in ("jobs_rows", "statuses_rows")])
    assert hashes[0] == hashes[1]


def test_tables_hold_a_topic_as_far_as_its_lane_has_read_and_nothing_while_one_catches_up(clickhouse: ConnectClickHouse) -> None:
    log = a_journal()
    for n in range(3):
        append(log, topics.STATUS, status("j", n, JobState.RUNNING), f"s{n}")
    for name in ("facts", "decisions", "reports"):
        plan(clickhouse, name, spec_of(name).tables)
        drain(name, clickhouse, log)
    held = held_to(clickhouse)
    assert (held(topics.STATUS, 0), held(topics.STATUS, 1), held(topics.TRACES, 0)) == (3, 0, 0)
    clickhouse.command("ALTER TABLE lane_tables DELETE WHERE lane = 'decisions' AND table_name = 'jobs_rows' SETTINGS mutations_sync = 2")
    assert held_to(clickhouse)(topics.STATUS, 0) == 0


def test_a_past_state_is_the_same_before_and_after_the_engine_merges(clickhouse: ConnectClickHouse) -> None:
    log = MemoryLog()
    clickhouse.command("SYSTEM STOP MERGES job_states_rows")
    for seq, state in enumerate((JobState.PENDING, JobState.RUNNING, JobState.RUNNING, JobState.RUNNING)):
        append(log, topics.STATUS, status("j", 1000 * seq, state, step=seq, reason=f"r{seq}"), f"s{seq}")
        drain("facts", clickhouse, log, 1)
    then = f"SELECT state, reason, toUnixTimestamp64Milli(since) FROM job_status_at(at = fromUnixTimestamp64Milli({NOW + 2500}))"
    apart = clickhouse.rows(then)
    clickhouse.command("SYSTEM START MERGES job_states_rows")
    clickhouse.command("OPTIMIZE TABLE job_states_rows FINAL")
    assert apart == clickhouse.rows(then) == [("RUNNING", "r1", NOW + 1000)]


def test_a_journal_whose_beginning_is_gone_begins_with_what_is_there(clickhouse: ConnectClickHouse) -> None:
    log = a_journal()
    log.records = [r for r in log.records if not (r.partition == 0 and r.offset < 2)]
    drain("decisions", clickhouse, log)
    assert clickhouse.rows("SELECT partition, seq, ordinal, type FROM decisions ORDER BY ALL") == DECIDED[2:]


def test_a_damaged_journal_record_is_told_and_stops_nothing(clickhouse: ConnectClickHouse) -> None:
    log = a_journal()
    for value in (b"{", b'{"seq": 5}', b'{"seq": 6, "now_ms": 1, "decisions": [{"type": "trainhouse.no.such.v1", "data": {}}]}', None):
        log.append(topics.DECISIONS, value, partition=1)
    drain("decisions", clickhouse, log, 1)
    assert clickhouse.rows("SELECT count() FROM decisions") == [(len(DECIDED),)]
    assert clickhouse.rows("SELECT topic, count() FROM dead_letters GROUP BY topic") == [(topics.DECISIONS, 2)]


def test_devices_are_shown_by_state_with_their_health(clickhouse: ConnectClickHouse) -> None:
    log = a_journal()
    hardware = tuple(Device(device_id=f"g{n}", index=n, type="H100", memory_bytes=80) for n in range(4))
    of: dict[str, Any] = {"node_id": "n", "boot_id": "b", "incarnation": "i", "pool": "p"}
    ends: dict[str, Any] = {"address": "a", "rendezvous_ports": (1,)}
    append(log, topics.CONTROL, NodeRegistered(devices=hardware, **of, **ends), "r1")
    held = AttemptHeartbeat(job_id="j", attempt=0, epoch=1, ranks=(RankHeartbeat(rank=0, device_id="g0", pid=1, state=RankState.RUNNING),))
    for n in range(7):
        health = tuple(DeviceHealth(device_id=d.device_id, utilization_pct=10.0 * n, power_w=100.0) for d in hardware[:3])
        at_ms = NOW + 10_000 * n
        event = NodeHeartbeat(sequence=n, at_ms=at_ms, interval_s=1.0, attempts=(held,), devices=health, **of)
        for _ in range(2):
            append(log, topics.HEARTBEATS, event, f"h{n}")
    for name in ("reports", "beats", "decisions"):
        drain(name, clickhouse, log)
    found = dict(clickhouse.rows("SELECT device_id, (state, closed, job_id, utilization_pct) FROM devices"))
    assert found == {
        "g0": ("HELD", "", "j", 60.0),
        "g1": ("CLOSED", "DEVICE: ECC", "", 60.0),
        "g2": ("FREE", "", "", 60.0),
        "g3": ("FREE", "", "", None),
    }
    minutes = clickhouse.rows(
        "SELECT job_id, utilization_pct, max_utilization_pct, power_w FROM device_minutes WHERE device_id = 'g0' ORDER BY minute"
    )
    assert minutes == [("j", 25.0, 50.0, 100.0), ("j", 60.0, 60.0, 100.0)]
    closed = NodeRestricted(node_id="n", pool="p", restriction=Restriction.CORDONED, reason="fan", at_ms=NOW)
    append(log, topics.VERDICTS, closed, "c")
    drain("facts", clickhouse, log)
    assert clickhouse.rows("SELECT state, closed FROM devices WHERE device_id = 'g2'") == [("CLOSED", "CORDONED: fan")]


def test_closed_devices_follow_a_pool_to_a_partition_whose_journal_is_younger(clickhouse: ConnectClickHouse) -> None:
    log = MemoryLog()
    old, young = Journal(log), Journal(log, 1, NOW + 1_000)
    for _ in range(5):
        old.add(TrustChanged(node_id="n", trust=Trust(closed_devices=("g1",)), reason="ECC"))
    young.add(TrustChanged(node_id="n", trust=Trust(), reason="it was opened"))
    drain("decisions", clickhouse, log)
    assert clickhouse.rows("SELECT device_ids, reason FROM closed_devices_rows FINAL") == [([], "it was opened")]


def test_a_pool_keeps_the_time_of_its_creation_when_it_moves(clickhouse: ConnectClickHouse) -> None:
    log, moved_ms = MemoryLog(), NOW + 5_000_000
    Journal(log).add(PoolCreated.model_validate({"pool": "moved", "partition": 0}))
    for partition, at_ms in ((0, NOW + 2), (1, moved_ms)):
        created = PoolCreated.model_validate({"pool": "moved", "partition": partition})
        log.append(topics.POOLS, encode(envelope_of(created, id=f"p{partition}", source="test", now_ms=at_ms)), timestamp_ms=at_ms)
    drain("facts", clickhouse, log)
    shown = "SELECT partition, toUnixTimestamp64Milli(created_at) FROM pools WHERE pool = 'moved'"
    assert clickhouse.rows(shown) == [(1, moved_ms)], "of the topic alone the newest record stays"
    drain("decisions", clickhouse, log)
    assert clickhouse.rows(shown) == [(1, NOW + 1)]


def test_closed_devices_of_before_have_the_version_that_their_records_give_now(tmp_path: Path) -> None:
    made = connect_embedded(tmp_path / "clickhouse", 1024**3, 2)
    try:
        files = migrations()
        (of_closed,) = (m for m in files if m.name == "closed_devices")
        migrate(made, [m for m in files if m.number < of_closed.number])
        columns = "node_id, version, at, device_ids, reason, source_topic, source_partition, source_offset"
        known = (("n", 9_000, 3, NOW), ("m", 7, 5_000, NOW + 1))
        for node, seq, ordinal, at in known:
            made.command(
                f"INSERT INTO closed_devices_rows ({columns}) "
                f"VALUES ('{node}', {seq * 2**20 + ordinal}, fromUnixTimestamp64Milli({at}), ['g1'], 'ECC', 't', 0, 4)"
            )
        for _ in range(2):  # a migration that was cut is applied again from its start
            for statement in of_closed.statements:
                made.command(statement)
        event = TrustChanged(node_id="n", trust=Trust(closed_devices=("g1",)), reason="ECC")
        record = Record(topics.DECISIONS, 0, 4, NOW, b"", b"")
        for node, seq, ordinal, at in known:
            envelope = envelope_of(event, id="e", source="t", now_ms=at, order=Order(0, seq, ordinal))
            (row,) = devices.rows(envelope, record)
            told = made.rows(f"SELECT version, device_ids, source_offset FROM closed_devices_rows FINAL WHERE node_id = '{node}'")
            assert told == [(row.values["version"], ["g1"], 4)]
    finally:
        made.close()


def test_edges_and_artifacts_are_there_once_with_their_project(clickhouse: ConnectClickHouse) -> None:
    log = a_journal()
    append(log, topics.STATUS, status("j", 3, JobState.SUCCEEDED, epoch=1, step=20, project="vision"), "s")
    saved = CheckpointCompleted(job_id="j", attempt=0, epoch=1, at_ms=NOW, commit=7, step=9, uri="s3://b/k", bytes_total=1, bytes_new=1)
    for topic in (topics.CHECKPOINTS, topics.CONTROL, topics.CHECKPOINTS):
        append(log, topic, saved, "c")
    for n, deleted in enumerate((False, False, True)):
        stored = ArtifactLogged(
            job_id="j", path=f"m{n // 2}.pt", uri=f"s3://b/{n}", sha256="a" * 64, size_bytes=n, deleted=deleted, at_ms=NOW
        )
        append(log, topics.TRACKING, stored, f"a{n}")
    for name in ("facts", "ranks", "decisions"):
        drain(name, clickhouse, log)
    found = clickhouse.rows(
        "SELECT from_id, to_id, kind, project FROM lineage_edges WHERE NOT startsWith(from_id, 'environment:') ORDER BY ALL"
    )
    assert found[:2] == [("attempt:j/1", "checkpoint:j@7", "saved", "vision"), (f"code:{'a' * 64}", "job:j", "code", "vision")]
    assert [(f[1], f[2]) for f in found[2:]] == [(f"artifact:s3://b/{n}", "wrote") for n in range(3)]
    assert clickhouse.rows("SELECT path, uri, size_bytes FROM artifacts") == [("m0.pt", "s3://b/1", 1)]
