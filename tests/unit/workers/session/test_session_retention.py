"""What a spec's `checkpoint` keeps of the checkpoints of a session: the newest, and the best by what the session logs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tests.support.core_world import spec as spec_of
from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.chain.commits import head, read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.chain.references import BEST, references
from trainhouse.checkpointing.chain.retention import RetentionPolicy
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.errors import ObjectStoreUnavailableError
from trainhouse.events.model.spec import CheckpointPolicy, JobSpec
from trainhouse.workers.session import InvalidUseError
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import CommitSaver, Unsaved, retention_of
from trainhouse.workers.session.session import Session
from trainhouse.workers.session.steps.progress import MOST_MEASURED, Progress


def train(folder: Path, store: MemoryObjectStore, metrics: list[dict[str, Any]], **policy: object) -> None:
    """A session that saves each step, with the metrics of each."""
    context = Context(
        job_id="j", spool=folder / "spool.jsonl", request=folder / "request.json", policy=CheckpointPolicy(every_steps=1, **policy)
    )
    saver = CommitSaver(Checkpointer(CheckpointerSettings("j", 0, 0, "spec"), store), retention_of(context.policy), None)
    session = Session(context, Gang(context), open_sink(context), saver)
    session.track(model=torch.nn.Linear(1, 1))
    for step in session.steps(len(metrics)):
        session.log(**metrics[step])
    session.close()


def left(store: MemoryObjectStore) -> dict[int, dict[str, float]]:
    """Metrics of the checkpoints that are there, by step."""
    entries = [read_entry(store, "j", n) for n in range(head(store, "j") + 1)]
    return {entry.step: dict(entry.metrics) for entry in entries if isinstance(entry, Manifest)}


def test_the_best_stay_beside_the_newest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = MemoryObjectStore()
    values = [{"loss": 9 - n, "acc": acc} for n, acc in enumerate([0.1, 0.9, 0.2, 0.8, 0.3, 0.4])]
    train(tmp_path, store, values, keep_last=1, keep_best=2, metric="acc", mode="max")
    assert left(store) == {step: {"loss": 10 - step, "acc": values[step - 1]["acc"]} for step in (2, 4, 6)}
    assert "keep_best" not in capsys.readouterr().err


def best(folder: Path, store: MemoryObjectStore, epoch: int, values: list[float], by: Any = None, **policy: object) -> list[bool]:
    """A session that saves its best steps alone and keeps one checkpoint beside; which of them it saved."""
    context = Context(job_id="j", spool=folder / "spool.jsonl", policy=CheckpointPolicy(keep_last=1, min_interval_s=1000, **policy))
    saver = CommitSaver(Checkpointer(CheckpointerSettings("j", epoch, epoch, "spec"), store), retention_of(context.policy), None)
    session = Session(context, Gang(context), open_sink(context), saver)
    begun = session.track(model=torch.nn.Linear(1, 1))
    saved = [session.save_if_best("validation/acc", values[step - begun], mode=by) for step in session.steps(begun + len(values))]
    session.close()
    return saved


def tagged(store: MemoryObjectStore) -> tuple[int, float]:
    """Step and metric of the checkpoint with the tag `best`."""
    (commit,) = (commit for commit, names in references(store, "j").by_commit.items() if BEST in names)
    entry = read_entry(store, "j", commit)
    assert isinstance(entry, Manifest)
    return entry.step, entry.metrics["validation/acc"]


def test_the_best_so_far_is_saved_and_tagged_and_stays_the_best_after_a_restart(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    assert best(tmp_path, store, 0, [0.3, 0.2, math.nan, 0.5, 0.5, 0.4], "max") == [True, False, False, True, False, False]
    assert tagged(store) == (4, 0.5) and set(left(store)) == {4, 6}
    assert best(tmp_path, store, 1, [0.4, math.inf, 0.45], "max") == [False] * 3
    assert tagged(store) == (4, 0.5) and set(left(store)) == {4, 9}
    assert best(tmp_path, store, 2, [0.6, 0.55], keep_best=1, metric="validation/acc", mode="max") == [True, False]
    assert tagged(store) == (10, 0.6) and set(left(store)) == {10, 11}


def test_the_direction_of_another_metric_of_the_spec_is_not_taken(tmp_path: Path) -> None:
    """Here the spec's is for `loss`, and this value's own direction is the default."""
    store = MemoryObjectStore()
    assert best(tmp_path, store, 0, [0.3, 0.5, 0.2], keep_best=1, metric="loss", mode="max") == [True, False, True]
    assert tagged(store) == (3, 0.2)


def test_a_best_state_that_could_not_be_saved_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Full(MemoryObjectStore):
        full = False

        def put(self, key: str, body: Any) -> None:
            if self.full and "/chunks/" in key:
                raise ObjectStoreUnavailableError("the store is full")
            super().put(key, body)

    store = Full()
    store.full = True
    context = Context(job_id="j", spool=tmp_path / "spool.jsonl", policy=CheckpointPolicy(min_interval_s=1000))
    saver = CommitSaver(Checkpointer(CheckpointerSettings("j", 0, 0, "spec"), store), retention_of(context.policy), None)
    session = Session(context, Gang(context), open_sink(context), saver)
    session.track(model=torch.nn.Linear(1, 1))
    saved = []
    for step in session.steps(4):
        store.full = step < 2
        if step == 1:
            session.save()  # which waits for the one before
        else:
            saved.append(session.save_if_best("validation/acc", [1.0, 0.0, 2.0, 2.5][step]))
    session.close()
    assert saved == [True, True, False]
    assert tagged(store) == (3, 2.0) and "the store is full" in capsys.readouterr().err


def test_a_job_has_one_best_checkpoint(tmp_path: Path) -> None:
    context = Context(spool=tmp_path / "spool.jsonl")
    session = Session(context, Gang(context), open_sink(context), Unsaved())
    assert not session.save_if_best("a", 1.0), "nothing is saved outside of Trainhouse"
    for metric, mode in (("b", None), ("a", "max")):
        with pytest.raises(InvalidUseError, match="a job has one best checkpoint, and it is by"):
            session.save_if_best(metric, 1.0, mode=mode)  # type: ignore[arg-type]


def test_by_default_the_best_has_the_least_loss(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    train(tmp_path, store, [{"loss": loss} for loss in (3.0, 1.0, math.inf, 2.0, 4.0, 5.0)], keep_last=1, keep_best=1)
    assert set(left(store)) == {2, 6}


def test_a_metric_that_is_never_logged_is_named_once_and_the_newest_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = MemoryObjectStore()
    train(tmp_path, store, [{"loss": 1.0}] * 5, keep_last=2, keep_best=2, metric="bleu")
    assert set(left(store)) == {4, 5}
    told = capsys.readouterr().err
    assert told.count("'bleu'") == 1 and "checkpoint.metric" in told and "session.log" in told


def test_a_metric_that_is_logged_now_and_then_counts_from_then_on(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    train(tmp_path, store, [{"loss": 1.0}, {"loss": 1.0, "acc": torch.tensor(0.5)}, {"loss": 1.0}], keep_last=3)
    assert left(store) == {1: {"loss": 1.0}, 2: {"loss": 1.0, "acc": 0.5}, 3: {"loss": 1.0, "acc": 0.5}}


def test_what_a_checkpoint_takes_of_the_metrics_is_finite_new_and_bounded() -> None:
    progress = Progress(0, lambda fields: None)
    progress.latest.update({"a": 1.0, "b": math.nan, "loss": 3.0} | {f"m{n}": 0.0 for n in range(2 * MOST_MEASURED)})
    progress.fresh.update({"loss": 2.0, "c": math.inf})
    measured = progress.measured()
    assert measured["loss"] == 2.0 and measured["a"] == 1.0 and len(measured) == MOST_MEASURED
    assert "b" not in measured and "c" not in measured


def test_specs_of_before_are_what_they_were() -> None:
    before = spec_of(name="j", checkpoint={"keep_last": 2})
    assert set(before.model_dump()["checkpoint"]) == {"every_steps", "every_s", "min_interval_s", "max_interval_s", "keep_last"}
    now = spec_of(name="j", checkpoint={"keep_last": 2, "keep_best": 1, "metric": "val/acc", "mode": "max"})
    assert JobSpec.model_validate_json(now.model_dump_json()) == now and now.sha256() != before.sha256()
    assert retention_of(now.checkpoint) == RetentionPolicy(2, 1, "val/acc", "max")
    assert retention_of(before.checkpoint) == RetentionPolicy(2, 0, "loss", "min")


@pytest.mark.parametrize(
    "policy", [{"metric": "acc"}, {"mode": "max"}, {"keep_best": 0}, {"keep_best": 1, "metric": ""}, {"keep_best": 1, "mode": "best"}]
)
def test_a_policy_that_says_half_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CheckpointPolicy.model_validate(policy)
