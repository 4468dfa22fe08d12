"""Models that MLflow's own client logs, registers and loads, over the real engine, the registry's machine and a store in memory."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.gateway_world import ListBus, World, world_in
from tests.support.http_door import door
from tests.support.registry_book import Book
from tests.support.registry_requests import observed
from trainhouse.checkpointing.artifacts.artifact_sweep import sweep_artifacts
from trainhouse.client.models.model_store import ObjectModelStore
from trainhouse.events import Event, ModelApproved, ModelRegistered, RequestedBy
from trainhouse.events.model.asked import AskedVia
from trainhouse.events.model.tracking import LoggedModelChanged, TrackedRunBegun
from trainhouse.events.wire.topics import TRACKED_METRICS, TRACKING
from trainhouse.gateway.bus import Bus, Sent
from trainhouse.gateway.mlflow.mlflow_ports import Ports
from trainhouse.gateway.models.model_book import ModelRefusedError

PROGRAM = """
import json
import mlflow

class Scaled(mlflow.pyfunc.PythonModel):
    def load_context(self, context):
        self.factor = json.load(open(context.artifacts["weights"]))["factor"]

    def predict(self, context, model_input, params=None):
        return model_input["x"] * self.factor

mlflow.models.set_model(Scaled())
"""
API = "/api/2.0/mlflow"


class ProjectingBus(ListBus):
    """What is sent is in the tables at once."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    async def send(self, topic: str, event: Event, event_id: str, *, key: str | None = None) -> Sent:
        if topic in (TRACKING, TRACKED_METRICS):
            self.world.tables.put(topic, [event])
        return await super().send(topic, event, event_id, key=key)


class StoreBook(Book):
    """Looks for contents in the store, as the registry's process does."""

    def __init__(self, objects: MemoryObjectStore, bus: ListBus) -> None:
        super().__init__()
        self.store, self.listed = ObjectModelStore(cast(Any, objects)), bus

    async def ask(self, bus: Bus, event: Any, event_id: str) -> Any:
        if not isinstance(event, ModelRegistered):
            return await super().ask(bus, event, event_id)
        self.registry.ask(event, event_id)
        facts = self.store.facts(event)
        who = {str(each.job_id): each.user for each in self.listed.of(TrackedRunBegun)}
        who |= {str(each.model_id): each.user for each in self.listed.of(LoggedModelChanged)}
        facts = facts.model_copy(update={"trained_by": who.get(str(facts.job_id), "")})
        decided = self.take(observed(event_id, facts, project=event.project, name=event.name))[0]
        if decided.event_type.endswith("request-refused.v1"):
            raise ModelRefusedError(decided)
        return decided


class Fresh:
    """The tables hold everything."""

    async def reached(self, *names: str) -> None:
        pass


@dataclass
class Logging:
    """MLflow's client at a gateway."""

    world: World
    objects: MemoryObjectStore
    book: StoreBook
    url: str
    mlflow: Any

    def client(self) -> Any:
        return self.mlflow.MlflowClient(self.url, self.url)

    def log(self, folder: Path, factor: float, **more: Any) -> Any:
        """Logs a model that multiplies."""
        (folder / "scaled.py").write_text(PROGRAM)
        (folder / "weights.json").write_text(f'{{"factor": {factor}}}')
        weights = {"weights": (folder / "weights.json").as_uri()}
        return self.mlflow.pyfunc.log_model(
            name="scaled", python_model=str(folder / "scaled.py"), artifacts=weights, pip_requirements=["pandas"], **more
        )

    def predicted(self, uri: str) -> list[float]:
        import pandas as pd

        return [float(value) for value in self.mlflow.pyfunc.load_model(uri).predict(pd.DataFrame({"x": [1.0, 2.0]}))]

    def approve(self, name: str, version: str) -> None:
        by = RequestedBy(name="bob", via=AskedVia.GATEWAY, role="approver")
        self.book.take(ModelApproved(project="vision", name=name, version=version, user="bob", requested_by=by))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("models") / "clickhouse") as made:
        yield made


@pytest.fixture
def logging(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Logging]:
    import mlflow

    bus, objects = ProjectingBus(world), MemoryObjectStore()
    monkeypatch.setattr(world.gateway, "bus", bus)
    book = StoreBook(objects, bus)
    monkeypatch.setattr(world.gateway, "models", book)
    monkeypatch.setattr(cast(Any, world.client.app).state, "mlflow", Ports(cast(Any, Fresh()), cast(Any, objects)), raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    as_user(world, monkeypatch)
    with door(world.client) as url:
        mlflow.set_tracking_uri(url)
        mlflow.set_experiment(f"vision/{secrets.token_hex(4)}")
        yield Logging(world, objects, book, url, mlflow)
        while mlflow.active_run() is not None:
            mlflow.end_run()


def as_user(world: World, monkeypatch: pytest.MonkeyPatch, sub: str = "ana", role: str = "submitter", project: str = "vision") -> None:
    """From here on the client speaks for this person."""
    token = world.token(sub, role, [project])["Authorization"].removeprefix("Bearer ")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", token)


def test_a_model_is_logged_registered_promoted_by_the_gate_and_loaded(logging: Logging, tmp_path: Path) -> None:
    mlflow, client = logging.mlflow, logging.client()
    with mlflow.start_run() as run:
        mlflow.log_param("lr", 0.1)
        mlflow.log_metric("loss", 0.5)
        first = logging.log(tmp_path, 2.0, registered_model_name="scaled")
        second = logging.log(tmp_path, 3.0, registered_model_name="scaled", tags={"kind": "late"})
    assert (first.registered_model_version, second.registered_model_version) == ("1", "2")
    assert logging.predicted("models:/scaled/1") == [2.0, 4.0] and logging.predicted("models:/scaled/latest") == [3.0, 6.0]
    assert logging.predicted(f"models:/{first.model_id}") == [2.0, 4.0]
    version = client.get_model_version("scaled", "2")
    assert (version.run_id, version.source) == (run.info.run_id, f"models:/{second.model_id}")
    assert version.tags["kind"] == "late" and version.tags["trainhouse.semver"] == "1.0.1"
    with pytest.raises(mlflow.MlflowException, match="0 of 1 approvals"):
        client.set_registered_model_alias("scaled", "champion", "1")
    logging.approve("scaled", "1")
    client.set_registered_model_alias("scaled", "champion", "1")
    client.set_registered_model_alias("scaled", "next", "2")
    assert logging.predicted("models:/scaled@champion") == [2.0, 4.0] and logging.predicted("models:/scaled@next") == [3.0, 6.0]
    assert {each.version: list(each.aliases) for each in client.search_model_versions("name='scaled'")} == {
        "1": ["champion"],
        "2": ["next"],
    }
    logged = client.get_logged_model(second.model_id)
    assert logged.params == {"lr": "0.1"} and '"version": "2"' in logged.tags["mlflow.modelVersions"]
    shown = client.get_run(run.info.run_id)
    assert {each.model_id for each in shown.outputs.model_outputs} == {first.model_id, second.model_id}


def test_a_version_outlives_the_logged_model_and_its_run(logging: Logging, tmp_path: Path) -> None:
    client = logging.client()
    with logging.mlflow.start_run() as run:
        kept = logging.log(tmp_path, 5.0, registered_model_name="outlived")
        gone = logging.log(tmp_path, 7.0)
    for each in (kept, gone):
        client.delete_logged_model(each.model_id)
    client.delete_run(run.info.run_id)
    assert sweep_artifacts(logging.objects, grace_s=-1.0).objects > 0
    assert not list(logging.objects.list("project-artifacts/vision/run-files/"))
    assert logging.predicted("models:/outlived/1") == [5.0, 10.0]
    for each in (kept, gone):
        with pytest.raises(logging.mlflow.MlflowException, match="no logged model"):
            logging.predicted(f"models:/{each.model_id}")
    assert client._tracking_client.store.get_logged_model(kept.model_id, allow_deleted=True).model_id == kept.model_id


def test_logged_models_are_searched_tagged_and_listed(logging: Logging, tmp_path: Path) -> None:
    mlflow, client = logging.mlflow, logging.client()
    experiment_id = mlflow.get_experiment_by_name(mlflow.set_experiment(f"vision/{secrets.token_hex(4)}").name).experiment_id
    outside = mlflow.initialize_logged_model(name="outside", params={f"p{n}": str(n) for n in range(150)}, model_type="agent")
    assert not outside.source_run_id and len(client.get_logged_model(outside.model_id).params) == 150
    with mlflow.start_run() as run:
        logged = logging.log(tmp_path, 2.0, params={"depth": 3}, tags={"team": "blue"})
        client.log_inputs(run.info.run_id, models=[mlflow.entities.LoggedModelInput(outside.model_id)])
    assert [each.model_id for each in client.get_run(run.info.run_id).inputs.model_inputs] == [outside.model_id]

    def found(text: str, **more: Any) -> list[str]:
        return [each.name for each in client.search_logged_models([experiment_id], filter_string=text, **more)]

    assert found("") == ["scaled", "outside"]
    assert found("", order_by=[{"field_name": "creation_timestamp", "ascending": True}]) == ["outside", "scaled"]
    for text in (
        "name = 'scaled'",
        "params.depth = '3'",
        "tags.team LIKE 'bl%'",
        "status = 'READY'",
        f"source_run_id = '{run.info.run_id}'",
    ):
        assert found(text) == ["scaled"], text
    assert found("model_type = 'agent' and params.p149 = '149'") == ["outside"] and found("params.depth = '4'") == []
    page = client.search_logged_models([experiment_id], max_results=1)
    rest = client.search_logged_models([experiment_id], max_results=1, page_token=page.token)
    assert [each.name for each in [*page, *rest]] == ["scaled", "outside"] and rest.token is None
    with pytest.raises(mlflow.MlflowException, match="nothing to compare"):
        found("metrics.loss < 1")
    client.delete_logged_model_tag(logged.model_id, "team")
    assert "team" not in client.get_logged_model(logged.model_id).tags
    with pytest.raises(mlflow.MlflowException, match="never change"):
        client.log_model_params(logged.model_id, {"depth": "4"})
    listed = {each.path for each in client.list_logged_model_artifacts(logged.model_id)}
    assert {"MLmodel", "scaled.py", "artifacts"} <= listed
    pending = client.get_logged_model(outside.model_id)
    assert pending.status.name == "PENDING"
    with pytest.raises(mlflow.MlflowException, match="is PENDING"):
        mlflow.register_model(f"models:/{outside.model_id}", "never")
    assert mlflow.finalize_logged_model(outside.model_id, "FAILED").status.name == "FAILED"


def test_other_sources_and_what_becomes_no_version(logging: Logging, tmp_path: Path) -> None:
    mlflow, client = logging.mlflow, logging.client()
    (tmp_path / "scaled.py").write_text(PROGRAM)
    (tmp_path / "weights.json").write_text('{"factor": 4}')
    weights = {"weights": (tmp_path / "weights.json").as_uri()}
    mlflow.pyfunc.save_model(
        str(tmp_path / "saved"), python_model=str(tmp_path / "scaled.py"), artifacts=weights, pip_requirements=["pandas"]
    )
    with mlflow.start_run() as run:
        mlflow.log_artifacts(str(tmp_path / "saved"), "model")
        mlflow.log_text("x", "plain/notes.txt")
    made = mlflow.register_model(f"runs:/{run.info.run_id}/model", "of-run")
    assert made.run_id == run.info.run_id and logging.predicted("models:/of-run/1") == [4.0, 8.0]
    copied = client.copy_model_version("models:/of-run/1", "copied")
    assert copied.version == "1" and logging.predicted("models:/copied/1") == [4.0, 8.0]
    with pytest.raises(mlflow.MlflowException, match=r"is version 1 .* already"):
        client.create_model_version("copied", "models:/of-run/1")
    root = f"mlflow-artifacts:/{run.info.experiment_id}/{run.info.run_id}/artifacts"
    with pytest.raises(mlflow.MlflowException, match="has no file plain/MLmodel"):
        client.create_model_version("copied", f"{root}/plain")
    for source, why in ((f"runs:/{run.info.run_id}/typo", "has no file typo/MLmodel"), ("models:/of-run@champion", "models:/NAME/3")):
        with pytest.raises(mlflow.MlflowException, match=why):
            client.create_model_version("copied", source, run.info.run_id)
    assert [tag for tag in client.get_model_version("copied", "1").tags if tag.startswith("trainhouse.")] == [
        "trainhouse.semver",
        "trainhouse.content",
    ]
    with pytest.raises(mlflow.MlflowException, match="set by the platform alone"):
        client.set_model_version_tag("copied", "1", "trainhouse.semver", "9.0.0")

    class Local(mlflow.pyfunc.PythonModel):  # type: ignore[misc, name-defined]  # no types there
        def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
            return model_input

    with pytest.raises(mlflow.MlflowException, match=r"python_model\.pkl is a pickle, which runs code.*path of a program"):
        mlflow.pyfunc.log_model(name="local", python_model=Local(), pip_requirements=["pandas"], registered_model_name="pickled")
    assert client.search_model_versions("name='pickled'") == []


def test_another_projects_logged_models_and_versions_do_not_exist(
    logging: Logging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow, client, world = logging.mlflow, logging.client(), logging.world
    with mlflow.start_run() as run:
        logged = logging.log(tmp_path, 2.0, registered_model_name="secret")
    path = f"{API}/logged-models/{logged.model_id}"
    files = "/api/2.0/mlflow-artifacts/artifacts/models/vision/secret/1/MLmodel"
    assert world.client.get(files, headers=world.token(role="viewer")).status_code == 200
    other, viewer = world.token("eve", projects=["speech"]), world.token("vic", "viewer")
    asked: list[tuple[str, str, Any]] = [
        ("GET", path, None),
        ("GET", f"{path}?allow_deleted=true", None),
        ("PATCH", path, {"status": "LOGGED_MODEL_UPLOAD_FAILED"}),
        ("PATCH", f"{path}/tags", {"tags": [{"key": "a", "value": "b"}]}),
        ("DELETE", f"{path}/tags/mlflow.modelVersions", None),
        ("POST", f"{path}/params", {"params": [{"key": "a", "value": "b"}]}),
        ("GET", f"{path}/artifacts/directories", None),
        ("DELETE", path, None),
        ("GET", f"{API}/runs/get?run_id={logged.model_id}", None),
        ("POST", f"{API}/runs/outputs", {"run_id": run.info.run_id, "models": [{"model_id": logged.model_id}]}),
        ("GET", files, None),
        ("GET", "/api/2.0/mlflow-artifacts/artifacts?path=models/vision/secret/1", None),
        ("GET", f"/api/2.0/mlflow-artifacts/artifacts/{run.info.experiment_id}/{logged.model_id}/artifacts/MLmodel", None),
    ]
    for method, where, body in asked:
        answer = world.client.request(method, where, json=body, headers=other)
        assert answer.status_code == 404, (method, where, answer.text)
        if method != "GET":
            refused = world.client.request(method, where, json=body, headers=viewer)
            assert refused.status_code == 403, (method, where, refused.text)
    found = world.client.post(f"{API}/logged-models/search", json={"experiment_ids": [run.info.experiment_id]}, headers=other)
    assert found.json() == {"models": []}
    as_user(world, monkeypatch, "eve", project="speech")
    with pytest.raises(mlflow.MlflowException, match="no logged model"):
        mlflow.register_model(f"models:/{logged.model_id}", "stolen")
    as_user(world, monkeypatch, project="vision")
    assert logging.predicted("models:/secret/1") == [2.0, 4.0] and client.get_logged_model(logged.model_id).status.name == "READY"


def test_a_model_of_a_run_of_another_project_and_a_version_of_another_projects_model_are_refused(logging: Logging, tmp_path: Path) -> None:
    world, both = logging.world, logging.world.token("ana", projects=["vision", "speech", "default"])
    ids = [
        world.client.post(f"{API}/experiments/create", json={"name": f"{project}/{secrets.token_hex(4)}"}, headers=both).json()[
            "experiment_id"
        ]
        for project in ("vision", "speech")
    ]
    run = world.client.post(f"{API}/runs/create", json={"experiment_id": ids[0]}, headers=both).json()["run"]["info"]["run_id"]
    made = world.client.post(f"{API}/logged-models", json={"experiment_id": ids[1], "source_run_id": run}, headers=both)
    assert made.status_code == 400 and "of another project" in made.text
    with logging.mlflow.start_run():
        logged = logging.log(tmp_path, 2.0)
    world.client.post(f"{API}/registered-models/create", json={"name": "of-default"}, headers=both)
    body = {"name": "of-default", "source": f"models:/{logged.model_id}", "model_id": logged.model_id}
    refused = world.client.post(f"{API}/model-versions/create", json=body, headers=both)
    assert refused.status_code == 400 and "use a token of project vision alone" in refused.text


def test_no_job_takes_the_id_of_a_logged_model(logging: Logging) -> None:
    body = {"job_id": "m-" + "ab" * 16, "spec": {"name": "x", "runtime": {"command": ["x"]}, "project": "vision"}}
    refused = logging.world.client.post("/v1/training-jobs", json=body, headers=logging.world.admin())
    assert refused.status_code == 409 and "choose another one" in refused.text
