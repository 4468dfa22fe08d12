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
from trainhouse.checkpointing.chain.retention import RetentionPolicy
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.events.model.spec import CheckpointPolicy, JobSpec
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import CommitSaver, retention_of
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
