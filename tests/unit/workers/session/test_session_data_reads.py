"""Reports of what steps read: before each save, by the attempt that goes on, of finished steps alone."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.published_shards import written
from tests.support.waiting import until
from tests.unit.workers.session.test_session_boundary import SavedInMemory, session_of
from trainhouse.events.model.data_read import DataRead
from trainhouse.events.model.ids import AttemptNumber, Epoch, JobId, NodeId
from trainhouse.workers import Session
from trainhouse.workers.agent.core.spool import cut_spool
from trainhouse.workers.agent.core.telemetry import RankIdentity
from trainhouse.workers.data.sharded_dataset import ShardedDataset
from trainhouse.workers.data.step_reads import Stretch
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging.sink import Nowhere, open_sink
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.tracked_state import Tracked
from trainhouse.workers.session.steps import data_reads
from trainhouse.workers.session.steps.data_reads import DataReads
from trainhouse.workers.spool import SpoolError, SpoolWriter

SIZES, BATCH = (5, 1, 29, 2), 4


class KeptState(SavedInMemory):
    """A saver that keeps what it saved of this rank, as JSON would."""

    def __init__(self, state: dict[str, Any] | None = None, step: int = 0) -> None:
        super().__init__(step)
        self.state = state

    def restore(self, tracked: Tracked) -> int:
        if self.state is not None and tracked.loader is not None and tracked.reads is not None:
            tracked.loader.load_state_dict(self.state["loader"])
            tracked.reads.load_state_dict(self.state["data_reads"])
        return self.restored

    def save(self, tracked: Tracked, step: int, *_: Any) -> bool:
        own = tracked.of_this_rank()
        self.state, self.restored = json.loads(json.dumps({name: own[name] for name in ("loader", "data_reads")})), step
        return True

    def settle(self) -> Any:
        return None


def attempt(folder: Path, epoch: int, saver: KeptState, dataset: Any, steps: int, left_at: int | None = None) -> dict[int, list[int]]:
    """One attempt of the job; returns the samples of each step, also of the one in which it was left."""
    folder.mkdir()
    context = Context(job_id=JobId("j"), attempt=epoch - 1, epoch=epoch, seed=3, spool=folder / "spool.jsonl")
    session = Session(context, Gang(context), open_sink(context), saver)
    loader = session.loader(dataset, batch=BATCH, decode=lambda sample: int(sample["cls"]), collate=list)
    session.track(model=torch.nn.Linear(1, 1), loader=loader)
    used = {}
    for step in session.steps(steps, save_every_steps=7):
        used[step] = next(loader)
        if step == left_at:
            break
    session.close()
    return used


def reports(folder: Path, epoch: int) -> list[DataRead]:
    """What an agent would publish of the attempt's spool."""
    rank = RankIdentity(JobId("j"), AttemptNumber(max(0, epoch - 1)), Epoch(epoch), NodeId("n1"), "p", 0)
    events = [rank.record_of(found, 1) for found in cut_spool((folder / "spool.jsonl").read_bytes(), 0).events if found.name == "DataRead"]
    assert all(events)
    return [event for found in events if found and isinstance(event := found[1], DataRead)]


def history(told: list[DataRead]) -> dict[int, tuple[int, int]]:
    """Begin and number of positions of each step, by what the newest attempt knows."""
    found: dict[int, tuple[int, int]] = {}
    for event in told:
        for run in event.runs:
            for k in range(run.steps):
                found[run.first_step + k] = (run.first_position + k * run.per_step, run.per_step)
    return found


def shards_by_step(told: list[DataRead], shards: ShardedDataset) -> dict[int, set[int]]:
    """Numbers of the shards of each step; of a stretch the last report counts."""
    numbers = {shard.sha256: number for number, shard in enumerate(shards.shards)}
    newest = {}
    for event in told:
        for read in event.stretch.shards if event.stretch else ():
            assert event.stretch is not None
            newest[event.stretch.first_step, read.shard] = read
    found: dict[int, set[int]] = {}
    for (_, shard), read in newest.items():
        for first, count in zip(read.first_steps, read.steps, strict=True):
            for step in range(first, first + count):
                found.setdefault(step, set()).add(numbers[str(shard)])
    return found


def test_the_attempt_that_goes_on_reports_the_history_of_its_checkpoint_and_its_own(tmp_path: Path) -> None:
    dataset = written(tmp_path / "shards", SIZES)
    saver = KeptState()
    before = attempt(tmp_path / "1", 1, saver, dataset, 40, left_at=19)
    assert saver.restored == 14
    after = attempt(tmp_path / "2", 2, KeptState(saver.state, 14), dataset, 30)
    assert min(after) == 14
    first, second = reports(tmp_path / "1", 1), reports(tmp_path / "2", 2)
    assert {event.began_step for event in first} == {0} and {event.began_step for event in second} == {14}
    assert history(first) == {step: (step * BATCH, BATCH) for step in range(19)}  # step 19 was not finished
    assert history(second) == {step: (step * BATCH, BATCH) for step in range(30)}  # its own, and those of the checkpoint
    assert {run.epoch for event in second for run in event.runs if run.first_step < 14} == {1}
    # The shards lie in the order of their files' names.
    shard_of = dict(zip((int(dataset[n]["cls"]) for n in range(len(dataset))), np.repeat(range(len(SIZES)), dataset.sizes), strict=True))
    used = {step: before[step] for step in range(14)} | after
    assert shards_by_step(second, dataset) == {step: {int(shard_of[n]) for n in used[step]} for step in range(30)}
    assert shards_by_step(first, dataset) == {step: {int(shard_of[n]) for n in before[step]} for step in range(19)}
    newest = {(e.stretch.first_step, str(read.shard)): read.samples for e in second if e.stretch for read in e.stretch.shards}
    totals: Counter[str] = Counter()
    for (_, shard), count in newest.items():
        totals[shard] += count
    samples = Counter(int(shard_of[n]) for numbers in used.values() for n in numbers)
    assert {shard.sha256: samples[number] for number, shard in enumerate(dataset.shards)} == dict(totals)
    assert all(event.tracked and event.parts[0].samples == sum(SIZES) and event.seed == "3" for event in second)


def test_the_first_save_of_a_run_is_reported_before_it_and_a_long_run_in_one(tmp_path: Path) -> None:
    saver = KeptState()
    folder = tmp_path / "2"
    folder.mkdir()
    session = session_of(folder, saver)
    loader = session.loader(list(range(10)), batch=4, collate=list)
    session.track(model=torch.nn.Linear(1, 1), loader=loader)
    for step in session.steps(100):
        next(loader)
        if step == 49:
            session.save()
        if step == 50:
            assert [run.steps for event in reports(folder, 0) for run in event.runs] == [50]
    session.close()
    assert [(run.first_step, run.steps, run.first_position) for run in reports(folder, 0)[-1].runs] == [(0, 100, 0)]
    assert saver.state is not None and len(json.dumps(saver.state["data_reads"])) < 300


def test_another_jobs_history_is_not_taken_over_and_other_ranks_report_nothing(tmp_path: Path) -> None:
    saver = KeptState()
    attempt(tmp_path / "1", 1, saver, written(tmp_path / "shards", SIZES), 7)
    assert saver.state is not None
    saver.state["data_reads"]["job"] = "other"
    attempt(tmp_path / "2", 1, KeptState(saver.state, 7), written(tmp_path / "shards", SIZES), 9)
    assert min(history(reports(tmp_path / "2", 1))) == 7
    context = Context(rank=1, world_size=2, job_id=JobId("j"))
    assert DataReads(context, Nowhere()).state_dict() == {"scope": "first"}


def session_with_reads(folder: Path, dataset: Any) -> tuple[Session, Any]:
    folder.mkdir()
    context = Context(job_id=JobId("j"), attempt=0, epoch=1, seed=3, spool=folder / "spool.jsonl")
    session = Session(context, Gang(context), open_sink(context), KeptState())
    loader = session.loader(dataset, batch=BATCH, decode=lambda sample: int(sample["cls"]), collate=list)
    session.track(model=torch.nn.Linear(1, 1), loader=loader)
    return session, loader


def test_shards_that_a_full_disk_kept_out_of_the_spool_are_reported_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = written(tmp_path / "shards", SIZES)
    failed = []
    write = SpoolWriter.event

    def fails_once(self: SpoolWriter, name: str, fields: Any, event_id: str | None = None) -> None:
        if name == "DataRead" and fields.get("stretch") and not failed:
            failed.append(fields["stretch"]["end_step"])
            raise SpoolError("no space left on device")
        write(self, name, fields, event_id)

    monkeypatch.setattr(SpoolWriter, "event", fails_once)
    session, loader = session_with_reads(tmp_path / "1", dataset)
    for step in session.steps(40, save_every_steps=7):
        next(loader)
        if step == 20:
            until(lambda: failed, "the failure")
    session.close()
    assert sorted(shards_by_step(reports(tmp_path / "1", 1), dataset)) == list(range(40))


def test_steps_whose_shards_are_not_counted_at_the_end_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = written(tmp_path / "shards", SIZES)
    counting, goes_on, add = threading.Event(), threading.Event(), Stretch.add

    def slow(*args: Any) -> None:
        counting.set()
        goes_on.wait()
        add(*args)

    monkeypatch.setattr(Stretch, "add", slow)
    monkeypatch.setattr(data_reads, "LAST_WAIT_S", 0.01)
    session, loader = session_with_reads(tmp_path / "1", dataset)
    for _ in session.steps(20, save_every_steps=7):
        next(loader)
    counting.wait()
    session.close()
    goes_on.set()
    assert "shards that steps 0 to 19 read were not all counted" in capsys.readouterr().err
    assert sorted(history(reports(tmp_path / "1", 1))) == list(range(20))
