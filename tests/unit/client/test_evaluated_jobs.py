"""Results that jobs left of versions: found by the job's own name, whole, and kept as long as the version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.client.models.model_store import ObjectModelStore
from trainhouse.scheduler.core.registry.evaluation_jobs import EvaluatedJob
from trainhouse.scheduler.stream.model_interfaces import ContentRefusedError
from trainhouse.workers.evaluation.result import RESULT_NAME, EvaluationResult, Metric

CONTENT = "a" * 64
JOB = EvaluatedJob("vision", "resnet", CONTENT, "accuracy", "evaluate-resnet-1-x", "ada", 5)
RESULT = EvaluationResult(
    suite="accuracy",
    kind="classification",
    version=CONTENT,
    dataset="digits@sha256:" + "c" * 64,
    split="test",
    seed=1,
    batch_size=8,
    device_kind="cpu",
    samples=100,
    confidence=0.95,
    metrics={"accuracy": Metric(value=0.75, low=0.7, high=0.8, samples=100, higher_is_better=True)},
    code="b" * 64,
)


@pytest.fixture
def objects() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def store(objects: MemoryObjectStore) -> ObjectModelStore:
    return ObjectModelStore(objects)  # type: ignore[arg-type]


@pytest.fixture
def put(objects: MemoryObjectStore, tmp_path: Path) -> Callable[..., str]:
    """Stores a result as a job's artifact; returns its hash."""

    def stored(body: bytes = RESULT.canonical_json(), by: str = f"job.{JOB.job_id}", name: str = RESULT_NAME) -> str:
        folder = tmp_path / by / str(len(body))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
        return ArtifactStore(objects, "vision").put("evaluation-accuracy", "evaluation", folder, by).sha256()

    return stored


def test_a_result_of_the_job_is_what_the_registry_takes_and_is_kept_for_the_version(
    store: ObjectModelStore, objects: MemoryObjectStore, put: Callable[..., str]
) -> None:
    sha256 = put()
    found = store.evaluated(JOB)
    assert (found.content, found.suite, found.job_id, found.user) == (CONTENT, "accuracy", JOB.job_id, "ada")
    assert found.document == RESULT.sha256 and found.metrics["accuracy"].value == 0.75 and found.evaluated_at_ms == 5
    assert f"model.{CONTENT}" in ArtifactStore(objects, "vision").kept_by(sha256)
    assert store.evaluated(JOB) == found, "it may be asked again"


def test_what_another_job_or_a_person_stored_under_the_name_is_none(store: ObjectModelStore, put: Callable[..., str]) -> None:
    put(by="user")
    put(by="job.evaluate-resnet-1-y")
    with pytest.raises(ContentRefusedError, match="stored no artifact evaluation-accuracy"):
        store.evaluated(JOB)
    with pytest.raises(ContentRefusedError, match="stored no artifact evaluation-speed"):
        store.evaluated(replace(JOB, suite="speed"))


def test_two_results_in_the_name_of_the_job_are_none(store: ObjectModelStore, put: Callable[..., str]) -> None:
    put()
    put(RESULT.model_copy(update={"samples": 1000}).canonical_json())
    with pytest.raises(ContentRefusedError, match="2 versions of evaluation-accuracy are named by job evaluate-resnet-1-x"):
        store.evaluated(JOB)


@pytest.mark.parametrize(
    ("body", "name", "message"),
    [
        (b"{}", RESULT_NAME, "Field required"),
        (RESULT.canonical_json(), "other.json", "has no result.json"),
        (RESULT.canonical_json().replace(b"  ", b" "), RESULT_NAME, "not written as a result is"),
        (RESULT.canonical_json().replace(b"0.75", b"NaN"), RESULT_NAME, "evaluation-accuracy"),
    ],
)
def test_what_is_no_result_is_refused(store: ObjectModelStore, put: Callable[..., str], body: bytes, name: str, message: str) -> None:
    put(body, name=name)
    with pytest.raises(ContentRefusedError, match=message):
        store.evaluated(JOB)
