"""The views of what steps read, on the real engine: each step of the surviving history once, what was thrown away beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.tables.alert_tables import tables_in
from trainhouse.events import CheckpointCompleted, DataPart, DataRead, ReadRun, ReadStretch, ShardRead, SkippedData
from trainhouse.events.wire import topics

NOW_MS = 1_790_000_000_000
VERSION = f"chats@sha256:{'c' * 64}"
A, B = "a" * 64, "b" * 64


def read(epoch: int, began: int, *, at_ms: int = NOW_MS, **found: Any) -> DataRead:
    about: Mapping[str, Any] = {
        "loader": 0,
        "tracked": True,
        "samples": 100,
        "seed": "7",
        "order": '{"seed": 7}',
        "parts": (DataPart(version=VERSION, split="train", samples=100),),
        "rank": 0,
        "node_id": "n1",
    }
    return DataRead.model_validate(
        {**about, "job_id": "gpt-1", "epoch": epoch, "attempt": epoch - 1, "began_step": began, "at_ms": at_ms} | found
    )


def run(epoch: int, first: int, steps: int, begin: int, per_step: int = 8, padded: bool = False) -> ReadRun:
    return ReadRun(epoch=epoch, first_step=first, steps=steps, first_position=begin, per_step=per_step, padded=padded)


def stretch(epoch: int, first: int, end: int, *shards: tuple[str, int, list[tuple[int, int]]]) -> ReadStretch:
    found = tuple(
        ShardRead(shard=shard, samples=samples, first_steps=tuple(f for f, _ in runs), steps=tuple(n for _, n in runs))
        for shard, samples, runs in shards
    )
    return ReadStretch(epoch=epoch, first_step=first, end_step=end, shards=found)


def saved(commit: int, epoch: int, step: int) -> CheckpointCompleted:
    fields = {"uri": f"s3://b/jobs/gpt-1/commits/{commit}", "bytes_total": 1, "bytes_new": 1, "at_ms": NOW_MS + commit}
    return CheckpointCompleted.model_validate(
        fields | {"job_id": "gpt-1", "attempt": epoch - 1, "epoch": epoch, "commit": commit, "step": step}
    )


def test_after_a_resume_each_step_has_what_counts_and_what_was_thrown_away(tmp_path: Path) -> None:
    """Attempt 0 did 30 steps and saved 10 and 20; attempt 1 began at 20 with another batch, and did 10."""
    reports = [
        read(1, 0),
        read(1, 0, runs=(run(1, 0, 10, 0),), stretch=stretch(1, 0, 10, (A, 60, [(0, 8)]), (B, 20, [(0, 1), (7, 3)]))),
        read(1, 0, runs=(run(1, 0, 30, 0),)),
        read(1, 0, stretch=stretch(1, 10, 20, (A, 80, [(10, 10)]))),
        read(1, 0, stretch=stretch(1, 20, 30, (B, 80, [(20, 4), (25, 5)]))),
        read(2, 20, runs=(run(1, 0, 20, 0),)),
        read(2, 20, stretch=stretch(1, 10, 20, (A, 80, [(10, 10)]))),
        read(2, 20, runs=(run(2, 20, 10, 160, 4),), stretch=stretch(2, 20, 30, (B, 40, [(20, 10)]))),
    ]
    with tables_in(tmp_path / "clickhouse") as tables:
        tables.put(topics.CHECKPOINTS, [saved(1, 1, 10), saved(2, 1, 20), saved(3, 2, 30)])
        for each in (*reports, *reversed(reports)):  # in any order, and again
            tables.put(topics.ENVIRONMENTS, [each])
        runs = tables.ask("SELECT * FROM data_positions WHERE job_id = 'gpt-1' ORDER BY superseded, first_step", {})
        step = {
            n: tables.ask(f"SELECT * FROM step_data(job_id = 'gpt-1', step = {n}) ORDER BY superseded", {})
            for n in (0, 7, 19, 24, 25, 29, 30)
        }
        shards = tables.ask(f"SELECT * FROM shard_reads WHERE shard = '{B}' ORDER BY epoch, superseded", {})
        [of_a] = tables.ask(f"SELECT * FROM shard_reads WHERE shard = '{A}'", {})
        assert tables.ask("SELECT count() AS n FROM events WHERE type LIKE '%data-read%'", {}) == [{"n": 0}]
    assert [
        (r["attempt"], r["first_step"], r["last_step"], r["first_position"], r["end_position"], r["superseded"], r["first_pass"])
        for r in runs
    ] == [
        (0, 0, 19, 0, 160, 0, 0),
        (1, 20, 29, 160, 200, 0, 1),
        (0, 20, 29, 160, 240, 1, 1),
    ]
    assert (runs[0]["version"], runs[0]["split"], runs[0]["seed"], runs[0]["samples_per_step"], runs[0]["weight"]) == (
        VERSION,
        "train",
        "7",
        8,
        1,
    )
    assert [(s["first_position"], s["end_position"], s["data_pass"], s["position"]) for s in step[0]] == [(0, 8, 0, 0)]
    assert (step[0][0]["shards"], step[7][0]["shards"], step[19][0]["shards"]) == ([A, B], [A, B], [A])
    assert [(s["attempt"], s["superseded"], s["first_position"], s["shards"]) for s in step[24]] == [(1, 0, 176, [B]), (0, 1, 192, [])]
    assert [(s["attempt"], s["superseded"], s["shards"]) for s in step[25]] == [(1, 0, [B]), (0, 1, [B])]
    assert step[29][0]["position"] == 96 and step[30] == []
    assert [
        (s["epoch"], s["superseded"], s["first_step"], s["last_step"], s["steps"], s["samples"], s["first_checkpoint"]) for s in shards
    ] == [
        (1, 0, 0, 9, 4, 20, "checkpoint:gpt-1@1"),
        (1, 1, 20, 29, 9, 80, ""),
        (2, 0, 20, 29, 10, 40, "checkpoint:gpt-1@3"),
    ]
    assert shards[0]["step_ranges"] == [[0, 0], [7, 9]] and shards[1]["step_ranges"] == [[20, 23], [25, 29]]
    assert (of_a["job_id"], of_a["attempt"], of_a["step_ranges"], of_a["samples"]) == ("gpt-1", 0, [[0, 7], [10, 19]], 140)
    assert (of_a["version"], of_a["split"], of_a["tracked"]) == (VERSION, "train", 1)


def test_a_stretch_that_was_cut_by_what_survivors_saved_has_the_count_of_the_checkpoint(tmp_path: Path) -> None:
    """Attempt 0 reported steps 0 to 9 and was lost; the others saved step 8, from where attempt 1 went on: it reports 0 to 7 again."""
    with tables_in(tmp_path / "clickhouse") as tables:
        tables.put(topics.ENVIRONMENTS, [read(1, 0, runs=(run(1, 0, 10, 0),), stretch=stretch(1, 0, 10, (A, 80, [(0, 10)])))])
        tables.put(topics.ENVIRONMENTS, [read(2, 8, runs=(run(1, 0, 8, 0),))])
        [before, lost] = tables.ask("SELECT * FROM shard_reads ORDER BY superseded", {})
        tables.put(topics.ENVIRONMENTS, [read(2, 8, stretch=stretch(1, 0, 8, (A, 64, [(0, 8)])))])
        [row] = tables.ask("SELECT * FROM shard_reads", {})
    assert (before["steps"], before["samples"], lost["steps"], lost["samples"]) == (8, None, 2, None)
    assert (row["steps"], row["samples"], row["superseded"]) == (8, 64, 0)


def test_a_padded_batch_and_a_mixture(tmp_path: Path) -> None:
    parts = (DataPart(version=VERSION, split="train", samples=60, weight=3), DataPart(samples=40, weight=1))
    with tables_in(tmp_path / "clickhouse") as tables:
        tables.put(topics.ENVIRONMENTS, [read(1, 0, runs=(run(1, 12, 1, 96, padded=True),))])
        [padded] = tables.ask("SELECT * FROM step_data(job_id = 'gpt-1', step = 12)", {})
        tables.put(topics.ENVIRONMENTS, [read(1, 0, loader=1, samples=0, parts=parts, runs=(run(1, 0, 5, 0),))])
        mixed = tables.ask("SELECT version, weight, first_position, first_pass FROM data_positions WHERE loader = 1 ORDER BY weight", {})
    assert (padded["data_pass"], padded["position"], padded["padded"]) == (0, 96, 1)
    assert [tuple(row.values()) for row in mixed] == [("", 1, 0, 0), (VERSION, 3, 0, 0)]


def test_what_later_attempts_leave_out_has_a_row_with_its_reason(tmp_path: Path) -> None:
    """Attempt 0 saved step 10 and diverged in step 13; attempt 1 began at 10 without the data of steps 8 to 13, attempt 2 at 20."""
    about = {"loader": 0, "epoch": 1, "first_step": 8, "end_step": 14, "first_position": 64, "end_position": 112}
    skip = SkippedData.model_validate(about | {"reason": "the loss was nan"})
    reports = [
        read(1, 0, runs=(run(1, 0, 14, 0),)),
        read(2, 10, runs=(run(1, 0, 10, 0),)),
        read(2, 10, skipped=(skip,)),
        read(2, 10, runs=(run(2, 10, 15, 112),)),
        read(3, 20, skipped=(skip,)),
    ]
    with tables_in(tmp_path / "clickhouse") as tables:
        for each in (*reports, *reversed(reports)):
            tables.put(topics.ENVIRONMENTS, [each])
        query = """SELECT attempt, first_step, last_step, first_position, end_position, superseded, skipped, skip_reason FROM data_positions
            WHERE job_id = 'gpt-1' ORDER BY skipped, epoch, first_step"""
        runs = [tuple(row.values()) for row in tables.ask(query, {})]
        step = tables.ask("SELECT attempt, superseded, first_position FROM step_data(job_id = 'gpt-1', step = 13) ORDER BY superseded", {})
    assert runs == [
        (0, 0, 9, 0, 80, 0, 0, ""),
        (0, 10, 13, 80, 112, 1, 0, ""),
        (1, 10, 19, 112, 192, 0, 0, ""),
        (1, 20, 24, 192, 232, 1, 0, ""),
        (0, 10, 13, 80, 112, 1, 1, "the loss was nan"),
    ], "steps 8 and 9 were in the checkpoint: their data were used"
    assert [tuple(row.values()) for row in step] == [(1, 0, 136), (0, 1, 104)]
