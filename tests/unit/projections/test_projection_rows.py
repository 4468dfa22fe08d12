"""The rows functions: pure, from an event to rows, and the same for the same record."""

from __future__ import annotations

from typing import Any

import pytest

from trainhouse.events.model.attempt import AttemptStarted, AttemptStopped, LaunchFailed, ProgressReported, RankExited
from trainhouse.events.model.base import Event
from trainhouse.events.model.checkpoint import CheckpointCompleted, CheckpointDeleted, CheckpointPruned, CheckpointRestored
from trainhouse.events.model.dead_letter import DeadLetter
from trainhouse.events.model.gang import GangAllocated, GangReleased, NodePlacement
from trainhouse.events.model.job import JobRejected, JobState, JobStatus, JobSubmitted
from trainhouse.events.model.media import MediaRecorded
from trainhouse.events.model.node import AttemptHeartbeat, NodeHeartbeat, NodeLost, NodeRegistered, RankHeartbeat, RankState
from trainhouse.events.model.spec import Gang, JobSpec, Runtime
from trainhouse.events.wire import topics
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.rank_end import report_text
from trainhouse.projections.ingest.lanes import BEATS, FACTS, LANES
from trainhouse.projections.record import MAX_TIME_MS, Record, RowsFunction, clamp_ms, copy_version
from trainhouse.projections.rows import attempts, checkpoints, jobs, nodes, ranks
from trainhouse.projections.rows.dead_letters import HEAD_BYTES, letter_row, unreadable_row
from trainhouse.projections.rows.lines import event_lines
from trainhouse.projections.rows.lines.summary import MAX_CHARS, summarize
from trainhouse.projections.store.tables import TABLES

NOW = 1_800_000_000_000
SPEC = JobSpec(name="gpt", user="ada", gang=Gang(ranks=3), runtime=Runtime(command=("python", "train.py")))
ALLOCATED = GangAllocated(
    job_id="j",
    attempt=1,
    epoch=2,
    pool="default",
    spec=SPEC,
    spec_sha256="0" * 64,
    placements=(
        NodePlacement(node_id="n1", boot_id="b", address="127.0.0.1", first_rank=0, devices=("d0", "d1")),
        NodePlacement(node_id="n2", boot_id="b", address="127.0.0.2", first_rank=2, devices=("d0",)),
    ),
    master_address="127.0.0.1",
    master_port=1234,
)
OF_ATTEMPT: dict[str, Any] = {"job_id": "j", "attempt": 1, "epoch": 2, "node_id": "n1", "pool": "default"}


def rows_of(
    function: RowsFunction, event: Event, *, topic: str = topics.CONTROL, key: str = "j", offset: int = 7
) -> list[tuple[str, dict[str, Any]]]:
    envelope = envelope_of(event, id="e1", source="test", now_ms=NOW)
    record = Record(topic, 0, offset, NOW, key.encode(), b"{}")
    once, again = list(function(envelope, record)), list(function(envelope, record))
    assert once == again
    return [(r.table, r.values) for r in once]


def test_a_status_is_a_row_of_jobs_and_a_transition() -> None:
    event = JobStatus(job_id="j", status_seq=4, state=JobState.RUNNING, step=9, loss=1.5, allocation=ALLOCATED.placements)
    (jobs_table, job), (transitions, change) = rows_of(jobs.rows, event, topic=topics.STATUS)
    assert (jobs_table, job["job_key"], job["version"], job["step"], job["node_ids"]) == ("jobs_rows", "j", 5, 9, ["n1", "n2"])
    assert (transitions, change["status_seq"], change["state"], change["at"]) == ("statuses_rows", 4, "RUNNING", NOW)


@pytest.mark.parametrize(
    "event",
    [
        JobRejected(job_id="j", submission_id="s", reason="taken", rejected_at_ms=NOW),
        JobStatus(job_id="j", status_seq=99, state=JobState.REJECTED, submission_id="s", reason="taken"),
    ],
)
def test_a_rejection_keyed_by_its_event_never_beats_a_status(event: Event) -> None:
    (rejected, refusal), (table, job) = rows_of(jobs.rows, event, topic=topics.STATUS, key="s")
    assert (rejected, refusal["submission_id"], refusal["reason"]) == ("rejections_rows", "s", "taken")
    assert (table, job["job_key"], job["version"], job["state"]) == ("jobs_rows", "j", 0, "REJECTED")


def test_a_rejection_by_the_scheduler_is_a_status() -> None:
    event = JobStatus(job_id="j", status_seq=3, state=JobState.REJECTED, reason="no such pool")
    assert [(t, v.get("version")) for t, v in rows_of(jobs.rows, event, topic=topics.STATUS)] == [("jobs_rows", 4), ("statuses_rows", None)]


def test_a_rejection_without_a_job_id_is_known_by_its_submission() -> None:
    event = JobRejected(job_id=None, submission_id="s", reason="no JSON", rejected_at_ms=NOW)
    assert [v.get("job_key", v["submission_id"]) for _, v in rows_of(jobs.rows, event, key="s")] == ["s", "s"]


def test_an_allocation_is_a_fact_a_node_and_a_place_a_rank() -> None:
    facts = [v for _, v in rows_of(attempts.rows, ALLOCATED)]
    assert [(f["node_id"], f["first_rank"], f["device_ids"], f["world_size"]) for f in facts] == [
        ("n1", 0, ["d0", "d1"], 3),
        ("n2", 2, ["d0"], 3),
    ]
    places = [v for _, v in rows_of(ranks.rows, ALLOCATED)]
    assert [(p["rank"], p["node_id"], p["device_id"]) for p in places] == [(0, "n1", "d0"), (1, "n1", "d1"), (2, "n2", "d0")]


def test_reports_of_an_attempt_are_facts() -> None:
    reports: list[Event] = [
        AttemptStarted(**OF_ATTEMPT, started_at_ms=5, warm=True),
        LaunchFailed(**OF_ATTEMPT, reason="no such script", retryable=False),
        RankExited(**OF_ATTEMPT, rank=1, exit_code=3, reason="boom", exited_at_ms=6),
        AttemptStopped(**OF_ATTEMPT, boot_id="b", stopped_at_ms=7),
        GangReleased(job_id="j", attempt=1, epoch=2, pool="default", node_ids=("n1", "n2"), reason="rank failed"),
    ]
    facts = [v for event in reports for _, v in rows_of(attempts.rows, event)]
    assert [(f["fact"], f["node_id"], f["rank"]) for f in facts] == [
        ("started", "n1", -1),
        ("launch_failed", "n1", -1),
        ("exited", "n1", 1),
        ("stopped", "n1", -1),
        ("released", "n1", -1),
        ("released", "n2", -1),
    ]
    assert [f["at"] for f in facts[:4]] == [5, NOW, 6, 7]


def test_a_heartbeat_is_a_beat_of_each_rank_and_of_its_node() -> None:
    beats = tuple(
        RankHeartbeat(rank=r, device_id=f"d{r}", pid=10 + r, state=s) for r, s in enumerate((RankState.RUNNING, RankState.EXITED))
    )
    event = NodeHeartbeat(
        node_id="n1",
        boot_id="b",
        incarnation="i",
        pool="default",
        sequence=1,
        at_ms=NOW + 3,
        interval_s=1.0,
        attempts=(AttemptHeartbeat(job_id="j", attempt=1, epoch=2, ranks=beats),),
        spool_lag_bytes=12,
    )
    assert [(v["rank"], v["state"], v["pid"], v["version"]) for _, v in rows_of(ranks.rows, event)] == [
        (0, "RUNNING", 10, NOW + 3),
        (1, "EXITED", 11, NOW + 3),
    ]
    [(table, beat)] = rows_of(nodes.rows, event)
    assert (table, beat["fact"], beat["ranks_running"], beat["spool_lag_bytes"]) == ("node_facts", "beat", 1, 12)


def test_registration_and_loss_are_facts_of_a_node() -> None:
    registered = NodeRegistered(
        node_id="n1",
        boot_id="b",
        incarnation="i",
        pool="default",
        address="127.0.0.1",
        devices=({"device_id": "d0", "index": 0, "type": "cpu"},),
        rendezvous_ports=(1,),
        labels={"rack": "r1"},
    )
    lost = NodeLost(node_id="n1", boot_id="b", incarnation="i", pool="default", silent_s=9.0, evidence="silence", at_ms=NOW + 1)
    facts = [v for event in (registered, lost) for _, v in rows_of(nodes.rows, event)]
    assert [(f["fact"], f["at"], f["reason"]) for f in facts] == [("registered", NOW, ""), ("lost", NOW + 1, "silence")]
    assert (facts[0]["device_type"], facts[0]["devices"], facts[0]["labels"]) == ("cpu", 1, {"rack": "r1"})


def test_a_commit_has_one_identity_whoever_tells_of_it() -> None:
    def completed(epoch: int) -> CheckpointCompleted:
        return CheckpointCompleted(job_id="j", attempt=0, epoch=epoch, at_ms=NOW, commit=3, step=30, uri="u", bytes_total=1, bytes_new=1)

    identity = ("job_id", "commit", "fact", "occurrence")
    [(_, first)] = rows_of(checkpoints.rows, completed(0), topic=topics.CHECKPOINTS, offset=1)
    [(_, again)] = rows_of(checkpoints.rows, completed(1), topic=topics.CHECKPOINTS, offset=2)
    [(_, copied)] = rows_of(checkpoints.rows, completed(0), topic=topics.CONTROL, offset=0)
    assert [first[k] for k in identity] == [again[k] for k in identity] == [copied[k] for k in identity]
    assert first["version"] > again["version"] > copied["version"]


def test_restores_and_prunes_are_facts_of_their_commits() -> None:
    common: dict[str, Any] = {"job_id": "j", "attempt": 1, "epoch": 2, "at_ms": NOW}
    restored = CheckpointRestored(**common, commit=3, step=30, uri="u", damaged=("4: bad hash",))
    [(_, row)] = rows_of(checkpoints.rows, restored)
    assert (row["fact"], row["occurrence"], row["reason"]) == ("restored", "2", "4: bad hash")
    assert [v["commit"] for _, v in rows_of(checkpoints.rows, CheckpointPruned(**common, commits=(1, 2)))] == [1, 2]
    deleted = CheckpointDeleted(**common, commit=2, step=20, user="ada")
    assert checkpoints.rows in FACTS[topics.TRACKING], "an operator's word: no node signs it"
    [(_, row)] = rows_of(checkpoints.rows, deleted, topic=topics.TRACKING)
    assert (row["fact"], row["commit"], row["step"], row["reason"], row["occurrence"]) == ("deleted", 2, 20, "ada", "")
    assert summarize(deleted) == "checkpoint 2 of step 20 deleted by ada"


def test_a_story_leaves_out_what_repeats_with_every_step() -> None:
    progress = ProgressReported(**OF_ATTEMPT, rank=0, step=1, at_ms=NOW)
    path = "images/x+step+1+timestamp+1795251600000+0-0.png"
    about = {"job_id": "j", "attempt": 1, "epoch": 2, "rank": 0, "path": path, "uri": f"s3://b/artifacts/j/{'0' * 64}", "at_ms": NOW}
    media = MediaRecorded.model_validate(about | {"sha256": "0" * 64, "size_bytes": 3})
    for event in (progress, media, JobStatus(job_id="j", status_seq=0, state=JobState.RUNNING)):
        assert rows_of(event_lines.rows, event) == []
    [(table, line)] = rows_of(event_lines.rows, JobSubmitted(job_id="j", spec=SPEC), topic=topics.JOBS)
    assert (table, line["job_id"], line["event_id"]) == ("events_rows", "j", "e1")
    assert line["summary"] == "submitted by ada for default: gpt, 3 ranks in pool default, priority 50"


def test_the_copy_on_the_home_topic_stays() -> None:
    versions = [
        copy_version(Record(topic, 0, offset, 0, None, None))
        for topic, offset in ((topics.JOBS, 9), (topics.CONTROL, 1), (topics.POOLS, 0))
    ]
    assert versions == sorted(versions, reverse=True)
    assert all(0 < v < 2**64 for v in versions)


@pytest.mark.parametrize(
    "event", [ALLOCATED, RankExited(**OF_ATTEMPT, rank=0, exit_code=None, signal=9, exited_at_ms=1, reason="x\n" * 900)]
)
def test_a_summary_is_one_bounded_line(event: Event) -> None:
    line = summarize(event)
    assert line
    assert "\n" not in line
    assert len(line) <= MAX_CHARS


def test_the_summary_of_a_ranks_end_has_the_exception_and_not_the_traceback() -> None:
    text = report_text(
        0, "exited with code 1", "", "Traceback (most recent call last):\n" + '  File "x", line 1\n' * 60 + "ValueError: bad", ""
    )
    event = RankExited(**OF_ATTEMPT, rank=0, exit_code=1, exited_at_ms=1, reason=text)
    assert summarize(event).endswith("with exit code 1: ValueError: bad")


def test_a_dead_letter_keeps_where_it_came_from_and_a_bounded_head() -> None:
    letter = DeadLetter(topic="t", partition=3, offset=14, reason="no JSON", job_id="j", event_id="e")
    record = Record(topics.DEAD_LETTERS, 0, 5, NOW, letter.key, b"\xff" * 100_000, tuple(letter.headers()))
    values = letter_row(record).values
    assert (values["topic"], values["partition"], values["offset"], values["job_id"], values["seen_by"]) == ("t", 3, 14, "j", "intake")
    assert len(values["head"]) <= HEAD_BYTES
    own = unreadable_row(Record("t", 3, 14, NOW, None, None), "x" * 10_000).values
    assert own["version"] < values["version"]
    assert len(own["reason"]) <= 2048


def test_times_fit_their_columns_whatever_a_clock_says() -> None:
    assert [clamp_ms(t) for t in (None, -5, 12, 10**30)] == [0, 0, 12, MAX_TIME_MS]


def test_every_topic_has_one_lane_and_every_lane_knows_its_topics() -> None:
    named = [t for lane in LANES for t in lane.topics if lane.name != "reports"]  # which reads the journal too, for its inputs
    assert len(named) == len(set(named))
    assert set(named) <= {t.name for t in topics.TOPICS}
    assert set(FACTS) | set(BEATS) <= set(named)
    assert len(set(TABLES)) == len(TABLES)
