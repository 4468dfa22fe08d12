"""Which content a source of MLflow's becomes, whose word its trainer is, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import io
from typing import Any, cast

import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.checkpointing.models.version_content import read_content
from trainhouse.gateway.mlflow.errors import MlflowError, missing
from trainhouse.gateway.mlflow.version_sources import fields_of_source
from trainhouse.scheduler.core.registry.registry_state import ModelEntry

LOGGED = "m-" + "ab" * 16
MODEL = ModelEntry(project="vision", name="resnet")


class Desk:
    """Runs, logged models and files of a project, in memory."""

    def __init__(self) -> None:
        self.objects = MemoryObjectStore()
        self.ports = self.reader = self
        self.runs: dict[str, dict[str, Any]] = {}
        self.models: dict[str, dict[str, Any]] = {}
        self.files: dict[str, list[dict[str, Any]]] = {}

    def log(self, keeper: str, path: str, content: bytes = b"flavors: {}\n") -> None:
        sha256 = hashlib.sha256(content).hexdigest()
        ArtifactStore(self.objects, "vision").put_run_file(keeper, path, io.BytesIO(content), sha256, len(content))
        self.files.setdefault(keeper, []).append({"path": path, "sha256": sha256, "size_bytes": len(content)})

    async def fresh(self, *_: str) -> None:
        pass

    async def run(self, run_id: str) -> dict[str, Any]:
        if run_id not in self.runs:
            raise missing(f"run {run_id}")
        return self.runs[run_id]

    async def logged_model(self, model_id: str) -> dict[str, Any]:
        return self.models[model_id]

    async def rows(self, _: str, values: dict[str, str]) -> list[dict[str, Any]]:
        return self.files.get(values["id"], [])

    def fields(self, source: str, run_id: str | None = None) -> dict[str, Any]:
        return asyncio.run(fields_of_source(cast(Any, self), MODEL, source, run_id, None))


@pytest.fixture
def desk() -> Desk:
    made = Desk()
    made.runs = {"gpt": {"job_id": "gpt", "project": "vision", "user": "bob", "is_mixed": False}}
    made.models[LOGGED] = {"job_id": LOGGED, "project": "vision", "user": "ana", "status": "READY", "source_run_id": "gpt"}
    made.log(LOGGED, "MLmodel")
    return made


@pytest.mark.parametrize(
    ("about", "trained_in"),
    [
        ({"user": "ana"}, "gpt"),
        ({"user": "bob"}, LOGGED),
        ({"user": "ana", "is_mixed": True}, LOGGED),
        ({"user": "ana", "project": "speech"}, LOGGED),
        (None, LOGGED),
    ],
)
def test_the_run_that_a_client_names_trained_a_model_only_where_both_are_one_users(
    desk: Desk, about: dict[str, Any] | None, trained_in: str
) -> None:
    desk.runs = {"gpt": desk.runs["gpt"] | about} if about is not None else {}
    found = desk.fields(f"models:/{LOGGED}")
    assert found["tags"] == {"trainhouse.logged_model": LOGGED}
    assert read_content(desk.objects, "vision", found["content"]).job_id == trained_in


@pytest.mark.parametrize(
    "source", ["runs:/gpt/model", "runs:/gpt/model/", "runs:/gpt/checkpoints/3/model", "mlflow-artifacts:/7/gpt/artifacts/model"]
)
def test_files_below_a_path_become_a_version(desk: Desk, source: str) -> None:
    desk.log("gpt", "checkpoints/3/model/MLmodel" if "checkpoints" in source else "model/MLmodel")
    found = read_content(desk.objects, "vision", desk.fields(source)["content"])
    assert [file.path for file in found.files] == ["MLmodel"] and found.job_id == "gpt"


@pytest.mark.parametrize("source", ["runs:/gpt/typo", "runs:/gpt/model/x/", "runs:/gpt/checkpoints/3/x", "runs:/gpt/checkpoints/x"])
def test_a_path_without_a_model_does_not_become_the_newest_checkpoint(desk: Desk, source: str) -> None:
    desk.log("gpt", "model/MLmodel")
    with pytest.raises(MlflowError, match=r"gpt has no file .*/MLmodel, which says how a model is loaded"):
        desk.fields(source)


@pytest.mark.parametrize("source", ["runs:/gpt/../model", "runs:/gpt//model", "runs:/gpt/a//b"])
def test_a_path_that_leads_nowhere_is_refused(desk: Desk, source: str) -> None:
    desk.log("gpt", "model/MLmodel")
    with pytest.raises(MlflowError, match="is no path of an artifact"):
        desk.fields(source)


@pytest.mark.parametrize(
    ("source", "commit"), [("runs:/gpt", None), ("runs:/gpt/", None), ("runs:/gpt/checkpoints/3", 3), ("runs:/gpt/checkpoints/3/", 3)]
)
def test_a_run_without_a_path_is_its_checkpoint(desk: Desk, source: str, commit: int | None) -> None:
    assert desk.fields(source) == {"job_id": "gpt", "commit": commit}


@pytest.mark.parametrize("source", ["models:/resnet@champion", "models:/resnet/latest", "models:/resnet"])
def test_a_version_is_named_by_its_number(desk: Desk, source: str) -> None:
    with pytest.raises(MlflowError, match="models:/NAME/3"):
        desk.fields(source, run_id="gpt")


@pytest.mark.parametrize("source", ["runs:/a b", "runs:/", "runs:/gpt/a\nb"])
def test_what_is_no_address_of_a_run_does_not_become_the_checkpoint_of_another(desk: Desk, source: str) -> None:
    with pytest.raises(MlflowError, match="a version is a logged model"):
        desk.fields(source, run_id="gpt")
