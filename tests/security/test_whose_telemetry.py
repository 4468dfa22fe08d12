"""Points, lines, checkpoints and environments in another node's name: no table shows them, and they hide nothing that is true."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest

from tests.security.test_whose_heartbeats import keyed, known
from tests.security.test_whose_nodes import A, B
from tests.support.fakes.memory_source import MemoryLog, MemorySource
from tests.support.tables.projecting import alike_however_cut, engine_in, spec_of
from trainhouse.events import (
    CheckpointCompleted,
    CheckpointStarted,
    Envelope,
    Event,
    LogLines,
    NodeHeartbeat,
    RankExited,
    StepMetrics,
    encode,
    envelope_of,
)
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.model.tracking import EnvironmentCaptured, TagsChanged
from trainhouse.events.security.grants import WRITE, allowed
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS
from trainhouse.events.wire.journal import NO_HASH, JournaledInput, JournalRecord
from trainhouse.projections.ingest.builders.heartbeat_rows import HeartbeatsBuilder
from trainhouse.projections.ingest.builders.report_rows import ReportsBuilder
from trainhouse.projections.ingest.catchup import plan
from trainhouse.projections.ingest.lane import Lane, Pace
from trainhouse.projections.ingest.lanes import TABLES_OF_RANKS
from trainhouse.projections.ingest.node_keys import NodeKeys
from trainhouse.projections.ingest.placements import Attempt, Placements
from trainhouse.projections.ingest.senders import Claim, Senders
from trainhouse.projections.record import Record, Row
from trainhouse.projections.store.clickhouse import ConnectClickHouse, connect_embedded
from trainhouse.projections.store.migrate import migrate, migrations
from trainhouse.projections.store.positions import Batch, Positions, Range
from trainhouse.projections.store.schema import read_schemas
from trainhouse.projections.store.table_hashes import TableHash, table_hashes
from trainhouse.projections.store.tables import TABLES
from trainhouse.workers.agent.ship.outbox import SIGNED

AT_MS = 100
LANES = ("metrics", "logs", "ranks")
# Job j began on node a and goes on on node b; job k runs on node b.
GIVEN = ((Attempt("j", 1, 0), "a"), (Attempt("j", 2, 1), "b"), (Attempt("k", 1, 0), "b"))
LETTERS = "SELECT reason FROM dead_letters_rows FINAL ORDER BY offset"


def placements(given: Sequence[tuple[Attempt, str]] = GIVEN) -> Placements:
    return Placements(lambda jobs: [pair for pair in given if pair[0].job_id in jobs])


def of(node_id: str = "a", job_id: str = "j", epoch: int = 1, attempt: int = 0) -> dict[str, Any]:
    return {"job_id": job_id, "epoch": epoch, "attempt": attempt, "rank": 0, "node_id": node_id}


def points(start: int, value: float, whose: dict[str, Any], end: int | None = None) -> StepMetrics:
    file = {"start": start, "end": start + 1 if end is None else end, "offsets": (start,)}
    return StepMetrics.model_validate(whose | file | {"steps": (start,), "times_ms": (start,), "metrics": {"loss": (value,)}})


def lines(start: int, text: str, whose: dict[str, Any]) -> LogLines:
    file = {"start": start, "end": start + 1, "offsets": (start,), "stream": "stdout", "read_at_ms": 1}
    return LogLines.model_validate(whose | file | {"lines": (text,)})


def checkpoint(commit: int, epoch: int = 1, attempt: int = 0, job_id: str = "j") -> CheckpointCompleted:
    saved = {"commit": commit, "step": commit, "uri": "s3://x", "bytes_total": 1, "bytes_new": 1, "world_size": 1, "at_ms": 1}
    return CheckpointCompleted.model_validate({"job_id": job_id, "attempt": attempt, "epoch": epoch} | saved)


def environment(whose: dict[str, Any], host: str) -> EnvironmentCaptured:
    return EnvironmentCaptured.model_validate(whose | {"host": host, "at_ms": 1})


class Bus:
    """Topics that anybody may write to."""

    def __init__(self) -> None:
        self.log = MemoryLog()

    def say(self, topic: str, event: Event, key: SigningKey | None, at_ms: int = AT_MS, signed_for: str = "") -> None:
        end = self.log.ends.get((topic, 0), 0)
        value = encode(envelope_of(event, id=f"{topic}-{end}", source="s", now_ms=at_ms))
        signature = () if key is None else (key.header(signed_for or topic, value),)
        self.log.append(topic, value, timestamp_ms=at_ms, headers=(*HEADERS, *signature))


def project(clickhouse: Any, bus: Bus, at_once: int = 100, keys: NodeKeys | None = None, given: Placements | None = None) -> None:
    """What the lanes make of it."""
    senders = Senders(keys or known(keyed("a", A), keyed("b", B), required=True), given or placements())
    for name in LANES:
        spec = spec_of(name)
        own = MemoryLog()
        own.records, own.ends = [r for r in bus.log.records if r.topic in spec.topics], bus.log.ends
        source = MemorySource(own, at_once)
        lane = Lane(name, source, clickhouse, spec.builder(read_schemas(clickhouse, TABLES), NodeKeys(), senders), Pace(0, 0))
        lane.recover()
        while (records := source.poll(0)) and lane.ready(records, Flag()):
            lane.ingest(records)
        lane.settle()
    senders.close()


def mixed() -> Bus:
    """What node a says of its job, and what a thief says who has node b's key, or none."""
    bus = Bus()
    own = of()
    # The thief's first: an end that is far away would hide all that comes after.
    for key, whose in ((B, own), (B, of("b")), (None, own), (B, of("b", "gone"))):
        bus.say(topics.METRICS, points(0, 666.0, whose, end=2**40), key)
        bus.say(topics.LOGS, lines(0, "forged", whose), key)
        bus.say(topics.ENVIRONMENTS, environment(whose, "forged"), key)
    bus.say(topics.METRICS, points(0, 666.0, own, end=2**40), A, signed_for=topics.CONTROL)
    bus.say(topics.METRICS, points(0, 666.0, of(attempt=7), end=2**40), A)
    for key in (SigningKey.made(), None):
        bus.say(topics.CHECKPOINTS, checkpoint(9), key)
    bus.say(topics.CHECKPOINTS, checkpoint(9, job_id="k"), A)
    for n in range(3):
        bus.say(topics.METRICS, points(n, float(n), own), A)
        bus.say(topics.LOGS, lines(n, f"line {n}", own), A)
    bus.say(topics.ENVIRONMENTS, environment(own, "own"), A)
    bus.say(topics.CHECKPOINTS, checkpoint(1), A)
    # The attempt after it tells again of what it began from, in the numbers of the attempt that made it.
    bus.say(topics.CHECKPOINTS, checkpoint(2), B)
    return bus


def shown(clickhouse: ConnectClickHouse) -> list[TableHash]:
    assert clickhouse.rows("SELECT value FROM step_metrics ORDER BY step") == [(0.0,), (1.0,), (2.0,)]
    assert clickhouse.rows("SELECT sum(points) FROM step_metrics_1s_rows") == [(3,)]
    assert clickhouse.rows("SELECT line FROM logs ORDER BY offset") == [("line 0",), ("line 1",), ("line 2",)]
    assert clickhouse.rows("SELECT host FROM job_environments_rows FINAL") == [("own",)]
    assert clickhouse.rows("SELECT job_id, commit FROM checkpoint_facts FINAL ORDER BY commit") == [("j", 1), ("j", 2)]
    assert clickhouse.rows("SELECT count() FROM dead_letters_rows FINAL") == [(4 * 3 + 2 + 3,)]
    return table_hashes(clickhouse)


def test_what_no_node_of_the_attempt_signed_is_in_no_table_and_hides_nothing(tmp_path: Path) -> None:
    bus = mixed()
    alike_however_cut(tmp_path, lambda clickhouse, at_once: project(clickhouse, bus, at_once), shown, (2, 3, 5, 9), "after", (4, 3))


def test_a_dead_letter_says_what_is_wrong_with_the_record(tmp_path: Path) -> None:
    bus = Bus()
    for key, whose in ((None, of()), (B, of()), (B, of("b")), (A, of(epoch=5))):
        bus.say(topics.METRICS, points(0, 1.0, whose), key)
    bus.say(topics.METRICS, points(0, 1.0, of()), A, signed_for=topics.LOGS)
    with engine_in(tmp_path / "clickhouse") as clickhouse:
        project(clickhouse, bus)
        assert [reason for (reason,) in clickhouse.rows(LETTERS)] == [
            "node a signs what it says, and this is not signed",
            "the signature is not that of node a: another key made it",
            "attempt 0 of job j (epoch 1) was never given node b",
            "attempt 0 of job j (epoch 5) was never given node a",
            "the signature is not that of node a: it does not hold",
        ]
        assert clickhouse.rows("SELECT DISTINCT job_id FROM dead_letters_rows FINAL") == [("j",)]


def test_events_of_other_topics_make_no_row_on_those_of_ranks(tmp_path: Path) -> None:
    bus = Bus()
    tags = TagsChanged.model_validate({"job_id": "j", "tags": {"forged": "yes"}, "at_ms": 1})
    for topic in (topics.ENVIRONMENTS, topics.CHECKPOINTS):
        bus.say(topic, tags, A)
    bus.say(topics.ENVIRONMENTS, checkpoint(1), A)
    with engine_in(tmp_path / "clickhouse") as clickhouse:
        project(clickhouse, bus)
        assert clickhouse.rows("SELECT count() FROM tags_rows") == clickhouse.rows("SELECT count() FROM checkpoint_facts") == [(0,)]
        assert clickhouse.rows("SELECT count() FROM dead_letters_rows FINAL") == [(3,)]


def test_a_key_that_was_forgotten_counts_for_what_the_brokers_took_before(tmp_path: Path) -> None:
    keys = known(keyed("a", A, 10), keyed("a", None, 50), keyed("a", B, 60), required=True)
    bus = Bus()
    bus.say(topics.METRICS, points(0, 0.0, of()), A, at_ms=49)
    bus.say(topics.METRICS, points(1, 666.0, of()), A, at_ms=61)
    bus.say(topics.METRICS, points(2, 2.0, of()), B, at_ms=61)
    with engine_in(tmp_path / "clickhouse") as clickhouse:
        project(clickhouse, bus, keys=keys)
        assert clickhouse.rows("SELECT value FROM step_metrics ORDER BY step") == [(0.0,), (2.0,)]


def test_where_signatures_are_not_required_the_unsigned_counts_and_what_is_signed_is_judged(tmp_path: Path) -> None:
    bus = Bus()
    bus.say(topics.METRICS, points(0, 0.0, of()), None)
    bus.say(topics.METRICS, points(1, 666.0, of()), B)
    bus.say(
        topics.CHECKPOINTS,
        CheckpointStarted.model_validate({"job_id": "j", "attempt": 0, "epoch": 1, "step": 1, "reason": "interval", "at_ms": 1}),
        None,
    )
    with engine_in(tmp_path / "clickhouse") as clickhouse:
        project(clickhouse, bus, keys=known(keyed("a", A), keyed("b", B)))
        assert clickhouse.rows("SELECT value FROM step_metrics") == [(0.0,)]
        assert clickhouse.rows("SELECT fact FROM checkpoint_facts FINAL") == [("started",)]


def test_what_clients_log_has_a_topic_that_agents_do_not_write(tmp_path: Path) -> None:
    bus = Bus()
    bus.say(topics.METRICS, points(0, 0.0, of()), A)
    bus.say(topics.TRACKED_METRICS, points(0, 7.0, of("mlflow", "run")), None)
    with engine_in(tmp_path / "clickhouse") as clickhouse:
        project(clickhouse, bus)
        assert clickhouse.rows("SELECT job_id, source_topic FROM step_metrics ORDER BY job_id") == [
            ("j", topics.METRICS),
            ("run", topics.TRACKED_METRICS),
        ]
    for topic in (topics.TRACKED_METRICS, topics.TRACKING):
        assert not allowed("agent", "TOPIC", topic, WRITE) and allowed("gateway", "TOPIC", topic, WRITE)


def test_points_of_two_topics_at_one_offset_are_not_taken_for_each_other_when_a_batch_is_made_whole(tmp_path: Path) -> None:
    """A replay that finds rows missing deletes those of its offsets: of its topic alone."""
    bus = Bus()
    for n in range(4):
        bus.say(topics.METRICS, points(n, float(n), of()), A)
        bus.say(topics.TRACKED_METRICS, points(n, float(n), of("mlflow", "run")), None)

    def all_there(clickhouse: ConnectClickHouse) -> list[TableHash]:
        assert clickhouse.rows("SELECT job_id, count() FROM step_metrics GROUP BY job_id ORDER BY job_id") == [("j", 4), ("run", 4)]
        return table_hashes(clickhouse)

    alike_however_cut(tmp_path, lambda clickhouse, at_once: project(clickhouse, bus, at_once), all_there, (2, 6, 10), "inside", (3, 1))


def test_agents_sign_all_that_they_write() -> None:
    agents = {t.name for t in topics.TOPICS if allowed("agent", "TOPIC", t.name, WRITE)}
    assert agents == SIGNED


class Journal:
    """The scheduler's journal, and the table that the lane of decisions makes of it, later."""

    def __init__(self) -> None:
        self.given: list[tuple[Attempt, str]] = []
        self.passed: int | None = 0
        self.asked = 0
        self.placements = Placements(self._rows, lambda: {("d", 0): 5}, lambda: None if self.passed is None else {("d", 0): self.passed})

    def _rows(self, jobs: Collection[str]) -> list[tuple[Attempt, str]]:
        self.asked += 1
        return [pair for pair in self.given if pair[0].job_id in jobs]


@pytest.mark.parametrize("passed", [0, 4, None])
def test_an_attempt_that_the_table_has_not_yet_is_waited_for(passed: int | None) -> None:
    journal, done = Journal(), Flag()
    journal.passed = passed

    def wait() -> None:
        assert journal.placements.known([Attempt("j", 1, 0)], Flag())
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not done.wait(0.1)
    journal.given.append((Attempt("j", 1, 0), "a"))
    assert done.wait(60)
    thread.join()
    assert journal.placements.nodes(Attempt("j", 1, 0)) == {"a"}


def test_an_attempt_that_was_never_allocated_is_waited_for_until_the_table_has_the_journal() -> None:
    journal = Journal()
    journal.passed = 5
    assert journal.placements.known([Attempt("x", 1, 0)], Flag()) and not journal.placements.nodes(Attempt("x", 1, 0))
    journal.passed = 4
    stop = Flag()
    stop.set()
    assert not journal.placements.known([Attempt("x", 1, 0)], stop), "a process that ends waits for nothing"


def test_what_is_known_is_not_asked_again_but_for_attempts_that_came_later() -> None:
    journal = Journal()
    journal.passed = 5
    journal.given += [(Attempt("j", 1, 0), "a")]
    for _ in range(3):
        assert journal.placements.known([Attempt("j", 1, 0)], Flag())
    assert journal.asked == 1
    journal.given += [(Attempt("j", 2, 1), "b")]
    assert journal.placements.nodes_since(Attempt("j", 1, 0)) == {"a"}
    assert journal.placements.known([Attempt("j", 1, 0)], Flag(), later=True)
    assert journal.placements.nodes_since(Attempt("j", 1, 0)) == {"a", "b"} and journal.placements.nodes_since(Attempt("j", 2, 1)) == {"b"}


class Asked(Placements):
    """Keeps what was asked of the table."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

        def rows(jobs: Collection[str]) -> list[tuple[Attempt, str]]:
            self.jobs += jobs
            return [pair for pair in GIVEN if pair[0].job_id in jobs]

        super().__init__(rows)


def test_what_no_nodes_key_signed_asks_nothing_of_the_table_and_long_names_are_no_ids(tmp_path: Path) -> None:
    """Names of jobs that nobody signed stayed in memory, each up to a megabyte."""
    bus, asked = Bus(), Asked()
    long = "j" * 200_000
    for key, whose in ((None, of(job_id="none")), (SigningKey.made(), of(job_id="strange")), (B, of(job_id="anothers"))):
        bus.say(topics.METRICS, points(0, 666.0, whose), key)
    for job_id in (long, "x\n", ""):
        event = points(0, 666.0, of()).model_copy(update={"job_id": job_id})
        bus.say(topics.METRICS, event, A)
    bus.say(topics.METRICS, points(0, 0.0, of()), A)
    with engine_in(tmp_path / "clickhouse") as clickhouse:
        project(clickhouse, bus, given=asked)
        assert set(asked.jobs) == {"j"} and all(len(name) < 200 for name in asked._jobs)
        assert clickhouse.rows("SELECT value FROM step_metrics") == [(0.0,)]
        assert clickhouse.rows("SELECT count(), max(length(job_id)) FROM dead_letters_rows FINAL WHERE length(reason) < 300") == [(6, 8)]


def test_an_environment_names_its_node_and_a_checkpoint_an_attempt_that_there_was(tmp_path: Path) -> None:
    bus = Bus()
    nameless = environment(of(), "forged").model_copy(update={"node_id": None})
    bus.say(topics.ENVIRONMENTS, nameless, B)
    bus.say(topics.ENVIRONMENTS, nameless, A)
    bus.say(topics.CHECKPOINTS, checkpoint(9).model_copy(update={"attempt": 77}), B)
    bus.say(topics.CHECKPOINTS, checkpoint(9).model_copy(update={"epoch": 0}), B)
    bus.say(topics.CHECKPOINTS, checkpoint(1), B)
    with engine_in(tmp_path / "clickhouse") as clickhouse:
        project(clickhouse, bus)
        assert clickhouse.rows("SELECT count() FROM job_environments_rows") == [(0,)]
        assert clickhouse.rows("SELECT commit FROM checkpoint_facts FINAL") == [(1,)]


def beat_of(node_id: str, *attempts: tuple[str, int, int]) -> NodeHeartbeat:
    told = [{"job_id": j, "epoch": e, "attempt": a, "ranks": []} for j, e, a in attempts]
    about = {"node_id": node_id, "boot_id": "b", "incarnation": "i", "pool": "default", "sequence": 1, "at_ms": 2**40, "interval_s": 1.0}
    return NodeHeartbeat.model_validate(about | {"attempts": told})


def test_a_heartbeat_shows_no_attempt_that_its_node_was_not_given() -> None:
    """A beat with a time far ahead hid all that the attempt's own node said."""
    bus = Bus()
    bus.say(topics.HEARTBEATS, beat_of("b", ("j", 1, 0), ("j", 2, 1), ("gone", 1, 0)), B)
    keys = known(keyed("a", A), keyed("b", B), required=True)
    builder = HeartbeatsBuilder({}, {}, keys, Senders(keys, placements()))
    (record,) = bus.log.records
    for waited in (True, False):
        if waited:
            assert builder.ready([record], Flag())
        (envelope,) = builder.envelopes(record)
        beat = envelope.event
        assert isinstance(beat, NodeHeartbeat) and [(a.job_id, a.epoch) for a in beat.attempts] == [("j", 2)]


def test_what_a_node_reports_of_an_attempt_that_it_was_not_given_makes_no_row() -> None:
    """The scheduler passes over it, and its journal has it among what it took."""
    exited = {"job_id": "j", "attempt": 0, "epoch": 1, "pool": "default", "rank": 0, "exit_code": 137, "exited_at_ms": 1}
    told = [RankExited.model_validate(exited | {"node_id": node_id, "reason": node_id}) for node_id in ("b", "a", "zz")]
    inputs = tuple(JournaledInput(n, envelope_of(e, id=f"e{n}", source="s", now_ms=1)) for n, e in enumerate(told))
    record = JournalRecord(1, "o", 1, 2, inputs, (), 0, 7, 5, NO_HASH)
    seen: list[str] = []

    def rows(envelope: Envelope, record: Record) -> list[Row]:
        assert isinstance(envelope.event, RankExited)
        seen.append(envelope.event.node_id)
        return []

    for required, counts in ((True, ["a"]), (False, ["b", "a", "zz"])):
        seen.clear()
        builder = ReportsBuilder({topics.CONTROL: [rows]}, {}, Senders(known(required=required), placements()))
        records = [Record(topics.DECISIONS, 0, 0, 1, None, record.encode())]
        assert builder.ready(records, Flag())
        builder.build(records, dict.fromkeys(builder.streams(records), 0))
        assert seen == counts


def test_keys_that_cannot_be_read_now_are_waited_for() -> None:
    """A record that a new key signed was refused for good, when the brokers were slow for some seconds."""

    class Late(NodeKeys):
        asked = 0

        def current(self, stop: threading.Event) -> bool:
            self.asked += 1
            self.note(keyed("a", A))
            return not stop.is_set()

    keys, bus, stop = Late(required=True), Bus(), Flag()
    senders = Senders(keys, placements())
    bus.say(topics.METRICS, points(0, 0.0, of()), A)
    claims = [Claim(bus.log.records[0], Attempt("j", 1, 0), "a")]
    assert senders.known(claims, stop) and keys.asked == 1
    assert senders.refusals(claims) == [""]
    stop.set()
    assert not senders.known(claims, stop)


def test_the_lane_waits_while_the_brokers_do_not_say_where_the_journal_ends() -> None:
    answers = iter([BusUnavailableError("away"), BusUnavailableError("away"), {}])

    def ends() -> dict[tuple[str, int], int]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    given = Placements(lambda _: GIVEN[:1], ends)
    assert given.known([Attempt("j", 1, 0)], Flag(), later=True)
    assert next(answers, None) is None


def test_a_key_is_noted_without_a_moment_in_which_there_is_none() -> None:
    """Other threads look at the list while it grows."""
    keys = known(keyed("a", A, 10))
    before = keys._keys["a"]["default"]
    keys.note(keyed("a", B, 20))
    assert before == [(10, A.public_key)], "replaced, not changed"
    for at_ms in range(30, 90):
        keys.note(keyed("a", B, at_ms))
    assert len(keys._keys["a"]["default"]) == 2, "a node that says its key again adds nothing"
    keys.note(keyed("a", A, 15), 40)
    assert keys.keys_of("a", 41) == {A.public_key} and keys.keys_of("a", 25) == {A.public_key, B.public_key}


def test_an_update_goes_on_where_the_lane_of_facts_stood_and_refuses_nothing_that_is_in_the_tables(tmp_path: Path) -> None:
    files = migrations()
    clickhouse = connect_embedded(tmp_path / "clickhouse", 1024**3, 2)
    try:
        migrate(clickhouse, [m for m in files if m.number < 48])
        facts = Positions(clickhouse, "facts")
        facts.begin(Batch("facts", 7, (Range(topics.CHECKPOINTS, 0, 5, 9), Range(topics.STATUS, 0, 1, 2))))
        facts.complete(Batch("facts", 7, (Range(topics.CHECKPOINTS, 0, 5, 9), Range(topics.STATUS, 0, 1, 2))))
        facts.begin(Batch("facts", 8, (Range(topics.CHECKPOINTS, 1, 3, 4),)))  # cut: these rows may be missing
        for missing in ([m.name for m in files if m.number >= 48], []):
            assert migrate(clickhouse, files) == missing
            standing = Positions(clickhouse, "ranks").load()
            assert standing.next_offsets == {(topics.CHECKPOINTS, 0): 9, (topics.CHECKPOINTS, 1): 3} and standing.pending is None
        assert plan(clickhouse, "ranks", TABLES_OF_RANKS) == []
    finally:
        clickhouse.close()
