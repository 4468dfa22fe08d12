"""A real embedded ClickHouse with a small history whose every figure can be worked out by hand, for tests of the report.

Times are seconds from the beginning of the week, MONDAY. Nodes n1 and n2 have four devices each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.tables.migrated import connect_migrated
from tests.support.tables.projecting import builders
from trainhouse.events.model.alert import AlertFired, AlertResolved, Severity
from trainhouse.events.model.attempt import AttemptStarted, AttemptStopped, RankExited
from trainhouse.events.model.base import Event
from trainhouse.events.model.checkpoint import CheckpointCompleted, CheckpointFailed, CheckpointRestored
from trainhouse.events.model.gang import GangAllocated, NodePlacement
from trainhouse.events.model.job import JobState, JobStatus
from trainhouse.events.model.node import AttemptHeartbeat, NodeHeartbeat, NodeLost, NodeProbed, NodeRegistered, RankHeartbeat, RankState
from trainhouse.events.model.pool import NodeRestricted
from trainhouse.events.model.spec import Gang, JobSpec, Runtime
from trainhouse.events.model.telemetry import StepMetrics
from trainhouse.events.model.verdict import FailureBlamed
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.projections.record import Record
from trainhouse.projections.store.schema import read_schemas
from trainhouse.projections.store.tables import TABLES

MONDAY = 1_799_625_600_000
WEEK_S = 7 * 86_400
SPEC = JobSpec(name="x", user="ada", gang=Gang(ranks=1), runtime=Runtime(command=("true",)))


def ms(at_s: float) -> int:
    return MONDAY + round(at_s * 1000)


class History:
    """Events as they would stand on the topics. Each method adds some."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._seq: dict[str, int] = defaultdict(int)

    def add(self, topic: str, event: Event, at_s: float) -> None:
        number = len(self.records)
        envelope = envelope_of(event, id=f"e{number}", source="test", now_ms=ms(at_s))
        self.records.append(Record(topic, 0, number, ms(at_s), envelope.subject.encode(), encode(envelope)))

    def node(self, node_id: str, devices: int = 4, pool: str = "p") -> None:
        listed = tuple({"device_id": f"d{i}", "index": i, "type": "H100"} for i in range(devices))
        about = {"node_id": node_id, "boot_id": "b", "incarnation": "i", "pool": pool, "address": "a", "rendezvous_ports": (1,)}
        self.add(topics.CONTROL, NodeRegistered.model_validate(about | {"devices": listed}), -WEEK_S)

    def given(self, job_id: str, epoch: int, at_s: float, node_id: str, devices: int, pool: str = "p") -> None:
        """A gang gets its devices, all on one node."""
        place = NodePlacement(node_id=node_id, boot_id="b", address="a", first_rank=0, devices=tuple(f"d{i}" for i in range(devices)))
        fields: dict[str, Any] = {"spec": SPEC, "spec_sha256": "0" * 64, "placements": (place,), "master_address": "a", "master_port": 1}
        self.add(topics.ALLOCATIONS, GangAllocated(**_of(job_id, epoch, pool), **fields), at_s)
        self.add(topics.CONTROL, AttemptStarted(**_of(job_id, epoch, pool), node_id=node_id, started_at_ms=ms(at_s), warm=True), at_s)

    def freed(self, job_id: str, epoch: int, at_s: float, node_id: str, pool: str = "p") -> None:
        stopped = AttemptStopped(**_of(job_id, epoch, pool), node_id=node_id, boot_id="b", stopped_at_ms=ms(at_s))
        self.add(topics.CONTROL, stopped, at_s)

    def exited(self, job_id: str, epoch: int, at_s: float, node_id: str, code: int) -> None:
        ended = RankExited(**_of(job_id, epoch), node_id=node_id, rank=0, exit_code=code, exited_at_ms=ms(at_s))
        self.add(topics.CONTROL, ended, at_s)

    def steps(self, job_id: str, epoch: int, first: int, count: int, at_s: float, every_s: float = 10) -> None:
        """Steps first, first + 1, … logged at at_s, at_s + every_s, …, by rank 0."""
        numbers = range(count)
        metrics = StepMetrics(
            **{k: v for k, v in _of(job_id, epoch).items() if k != "pool"},
            rank=0,
            node_id="n",
            start=0,
            end=count,
            steps=tuple(first + n for n in numbers),
            times_ms=tuple(ms(at_s + n * every_s) for n in numbers),
            offsets=tuple(numbers),
            metrics={"loss": tuple(1.0 for _ in numbers), "lr": tuple(0.1 for _ in numbers)},
        )
        self.add(topics.METRICS, metrics, at_s)

    def blamed(self, job_id: str, epoch: int, at_s: float, category: str, rule: str, **more: Any) -> None:
        """The attempt failed at `at_s`; the verdict comes a second later."""
        about = {"category": category, "rule": rule, "summary": f"{rule} it was", "at_ms": ms(at_s + 1), "failed_at_ms": ms(at_s)}
        self.add(topics.VERDICTS, FailureBlamed.model_validate(_of(job_id, epoch, more.pop("pool", "p")) | about | more), at_s + 1)

    def status(self, job_id: str, state: JobState, at_s: float, epoch: int = 1, **more: Any) -> None:
        self._seq[job_id] += 1
        about = {"job_id": job_id, "status_seq": self._seq[job_id], "state": state, "attempt": epoch - 1, "epoch": epoch, "pool": "p"}
        self.add(topics.STATUS, JobStatus.model_validate(about | {"updated_at_ms": ms(at_s), "name": f"job {job_id}"} | more), at_s)

    def waited(self, job_id: str, epoch: int, at_s: float, data_wait_s: float, save_stall_s: float, ranks: int) -> None:
        """The newest heartbeat of an attempt: each rank's totals."""
        beats = tuple(
            RankHeartbeat(rank=r, device_id=f"d{r}", pid=1, state=RankState.RUNNING, data_wait_s=data_wait_s, save_stall_s=save_stall_s)
            for r in range(ranks)
        )
        attempt = AttemptHeartbeat(job_id=job_id, attempt=epoch - 1, epoch=epoch, ranks=beats)
        about = {"node_id": "n2", "boot_id": "b", "incarnation": "i", "pool": "p", "sequence": 1, "at_ms": ms(at_s), "interval_s": 1.0}
        self.add(topics.HEARTBEATS, NodeHeartbeat.model_validate(about | {"attempts": (attempt,)}), at_s)

    def saved(self, job_id: str, epoch: int, at_s: float, commit: int, step: int) -> None:
        about: dict[str, Any] = {"commit": commit, "step": step, "uri": "u", "bytes_total": 100, "bytes_new": 50}
        done = CheckpointCompleted(**_saved_by(job_id, epoch, at_s), **about, stage_s=0.5, upload_s=2.0)
        self.add(topics.CHECKPOINTS, done, at_s)

    def save_failed(self, job_id: str, epoch: int, at_s: float, step: int, reason: str) -> None:
        self.add(topics.CHECKPOINTS, CheckpointFailed(**_saved_by(job_id, epoch, at_s), step=step, reason=reason), at_s)

    def restored(self, job_id: str, epoch: int, at_s: float, commit: int, step: int, damaged: tuple[str, ...] = ()) -> None:
        about: dict[str, Any] = {"commit": commit, "step": step, "uri": "u", "damaged": damaged, "restore_s": 1.5}
        self.add(topics.CHECKPOINTS, CheckpointRestored(**_saved_by(job_id, epoch, at_s), **about), at_s)

    def lost(self, node_id: str, at_s: float) -> None:
        about = {"node_id": node_id, "boot_id": "b", "incarnation": "i", "pool": "p", "silent_s": 15.0, "evidence": "no heartbeat"}
        self.add(topics.VERDICTS, NodeLost.model_validate(about | {"at_ms": ms(at_s)}), at_s)

    def restricted(self, node_id: str, at_s: float, restriction: str) -> None:
        about = {"node_id": node_id, "pool": "p", "restriction": restriction, "reason": "too often", "at_ms": ms(at_s)}
        self.add(topics.VERDICTS, NodeRestricted.model_validate(about), at_s)

    def probed(self, node_id: str, at_s: float, probe: int, passed: bool) -> None:
        check = {"name": "memory", "passed": passed, "found": "as expected" if passed else "bits differ"}
        about = {"node_id": node_id, "boot_id": "b", "pool": "p", "probe": probe, "passed": passed, "checks": (check,), "at_ms": ms(at_s)}
        self.add(topics.VERDICTS, NodeProbed.model_validate(about), at_s)

    def alert(self, rule: str, key: str, fired_s: float, resolved_s: float | None) -> None:
        about: dict[str, Any] = {"rule": rule, "key": key, "severity": Severity.WARNING, "summary": "it is long", "since_ms": ms(fired_s)}
        about["labels"] = {"pool": "p"}
        self.add(topics.ALERTS, AlertFired(**about, at_ms=ms(fired_s), value=9, limit=5), fired_s)
        if resolved_s is not None:
            self.add(topics.ALERTS, AlertResolved(**about, at_ms=ms(resolved_s)), resolved_s)


def _of(job_id: str, epoch: int, pool: str = "p") -> dict[str, Any]:
    return {"job_id": job_id, "attempt": epoch - 1, "epoch": epoch, "pool": pool}


def _saved_by(job_id: str, epoch: int, at_s: float) -> dict[str, Any]:
    return {"job_id": job_id, "attempt": epoch - 1, "epoch": epoch, "at_ms": ms(at_s)}


class Database:
    """The tables, asked as the report asks."""

    def __init__(self, folder: Path) -> None:
        self.clickhouse = connect_migrated(folder, 1024**3, 2)

    def fill(self, history: History) -> None:
        """What the projector would write."""
        schemas = read_schemas(self.clickhouse, TABLES)
        for topic, builder in builders(schemas).items():
            mine = [r for r in history.records if r.topic == topic]
            if not mine:
                continue
            built = builder.build(mine, dict.fromkeys(builder.streams(mine), 0))
            assert not built.unreadable, built.tables["dead_letters_rows"].to_pylist()
            for name, rows in built.tables.items():
                self._insert(name, rows)

    def ask(self, sql: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        result = self.clickhouse._client.query(sql, parameters=dict(parameters))
        return [dict(zip(result.column_names, row, strict=True)) for row in result.result_rows]

    def _insert(self, name: str, rows: pa.Table) -> None:
        self.clickhouse.insert(name, rows, f"{name}-{rows.num_rows}-{id(rows)}")


@contextmanager
def database(folder: Path) -> Iterator[Database]:
    """An empty one of the newest schema, closed afterwards: only one may be open in a process."""
    made = Database(folder)
    try:
        yield made
    finally:
        made.clickhouse.close()


def known_week() -> History:
    """See the comments: device-seconds, and what each attempt's time went to."""
    history = History()
    history.node("n1")
    history.node("n2")
    # a: 4 devices. 0-100 starting (first step logged at 110, one step is 10 s), steps 0-5 kept to 160, 6-9 lost to 200, freed at 220.
    history.given("a", 1, 0, "n1", 4)
    history.steps("a", 1, 0, 10, 110)
    history.saved("a", 1, 170, 1, 6)
    history.save_failed("a", 1, 190, 9, "no space left")
    history.blamed("a", 1, 215, "NODE", "ecc", node_id="n1")
    history.freed("a", 1, 220, "n1")
    # again: 230-250 starting, steps 6-15 to 350, freed at 360.
    history.given("a", 2, 230, "n1", 4)
    history.restored("a", 2, 245, 1, 6, ("2: bad hash",))
    history.steps("a", 2, 6, 10, 260)
    history.freed("a", 2, 360, "n1")
    history.status("a", JobState.SUCCEEDED, 360, 2, team="red", finished_at_ms=ms(360))
    # b: 2 devices for 100 s, no steps, its own fault, FAILED for good.
    history.given("b", 1, 1000, "n2", 2)
    history.blamed("b", 1, 1090, "USER_CODE", "python-exception", mine=True)
    history.freed("b", 1, 1100, "n2")
    history.status("b", JobState.FAILED, 1101, team="blue", finished_at_ms=ms(1101))
    # c: 1 device, logs no steps; 105 s, fails at 2000, RUNNING again at 2030; then 100 s.
    history.given("c", 1, 1900, "n2", 1)
    history.status("c", JobState.RUNNING, 1910, team="blue")
    history.blamed("c", 1, 2000, "UNKNOWN", "none")
    history.freed("c", 1, 2005, "n2")
    history.given("c", 2, 2010, "n2", 1)
    history.status("c", JobState.RUNNING, 2030, 2, team="blue")
    history.status("c", JobState.RUNNING, 2050, 2, team="blue")
    history.freed("c", 2, 2110, "n2")
    history.status("c", JobState.SUCCEEDED, 2111, 2, team="blue", finished_at_ms=ms(2111))
    # d: 2 devices, runs still: steps 0-10 from 3000 to 3110; its two ranks waited 11 s for data and 5.5 s for saves each.
    history.given("d", 1, 3000, "n2", 2)
    history.steps("d", 1, 0, 11, 3010)
    history.waited("d", 1, 3110, 11.0, 5.5, 2)
    history.status("d", JobState.RUNNING, 3010, team="blue")
    # h: 1 device over the beginning of the week: from -50 to 60, steps to 50.
    history.given("h", 1, -50, "n2", 1)
    history.steps("h", 1, 0, 10, -40)
    history.freed("h", 1, 60, "n2")
    history.status("h", JobState.SUCCEEDED, 61, team="red", finished_at_ms=ms(61))
    # i: 1 device for 20 s; a rank fails and nobody says why.
    history.given("i", 1, 5000, "n2", 1)
    history.exited("i", 1, 5010, "n2", 1)
    history.freed("i", 1, 5020, "n2")
    # e: the week before. Steps 0-9 kept (saved at 10), fails at -880, first step again at -850.
    history.given("e", 1, -1000, "n2", 1)
    history.steps("e", 1, 0, 10, -980)
    history.blamed("e", 1, -880, "NETWORK", "link-down", node_id="n2")
    history.freed("e", 1, -880, "n2")
    history.given("e", 2, -870, "n2", 1)
    history.steps("e", 2, 10, 10, -850)
    history.freed("e", 2, -750, "n2")
    history.status("e", JobState.SUCCEEDED, -750, 2, team="red", finished_at_ms=ms(-750))
    # n1: blamed once (a), lost, in quarantine, a self test failed and one passed.
    history.lost("n1", 300)
    history.restricted("n1", 400, "QUARANTINED")
    history.probed("n1", 500, 1, False)
    history.probed("n1", 700, 2, True)
    history.restricted("n1", 701, "NONE")
    # Two alerts fired, one is over; a third fires after the week.
    history.alert("queue-lag", "p", 100, 200)
    history.alert("queue-lag", "q", 5000, None)
    history.alert("queue-lag", "r", WEEK_S + 5, None)
    return history
