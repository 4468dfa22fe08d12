"""The registry of models on the shared stack: by the command line, over HTTP and by MLflow's own client; what it decided, replayed."""

from __future__ import annotations

import secrets
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.checkpointing.models import stage_chain
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.gateway.auth import tokens

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
PROGRAM = ("python", "-m", "trainhouse.workers.examples.gpt", "--width", "64", "--checkpoint-every", "5", "--steps", "10")
OURS = secrets.token_hex(3)


@pytest.fixture(scope="module")
def job(stack: LiveStack) -> str:
    """A job with two checkpoints."""
    name = f"trained-{OURS}"
    stack.ok("submit", "--no-code", "--wait", "--id", name, "--", *PROGRAM, timeout_s=240)
    return name


@pytest.fixture(scope="module")
def settings(stack: LiveStack) -> dict[str, Any]:
    """The stack's settings."""
    return tomllib.loads((stack.data_dir / "trainhouse.toml").read_text())


def token(settings: dict[str, Any], sub: str, role: str) -> str:
    """A token of the stack's gateway for all projects."""
    key, now_s = Path(settings["gateway"]["key_file"]).read_bytes().strip(), int(time.time())
    return tokens.issue(key, sub, [role], ["*"], now_s=now_s, expires_s=now_s + 3600)


@pytest.fixture
def gateway(settings: dict[str, Any]) -> Iterator[Any]:
    """Opens clients of the stack's gateway, each with a token of its own."""
    opened = []

    def client(sub: str, role: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token(settings, sub, role)}"}
        opened.append(httpx.Client(base_url=settings["gateway"]["url"], headers=headers, timeout=60))
        return opened[-1]

    yield client
    for each in opened:
        each.close()


def test_a_version_is_registered_approved_promoted_and_rolled_back(
    stack: LiveStack, job: str, gateway: Any, settings: dict[str, Any]
) -> None:
    model = f"digits-{OURS}"
    [registered] = stack.run("models", "register", model, f"{job}@1", "--notes", "first", "--json").objects()
    assert (registered["version"], registered["semver"], registered["facts"]["job_id"]) == (1, "1.0.0", job)
    assert registered["facts"]["trained_by"], "the registry asks the status topic who trained it"
    refused = stack.run("models", "promote", model, "1")
    assert refused.code == 3 and "0 of 1 approvals" in refused.err
    own = stack.run("models", "approve", model, "1")
    assert own.code == 3 and "nobody approves their own" in own.err
    submitter, approver = gateway("ada", "submitter"), gateway("bob", "approver")
    assert submitter.post(f"/v1/models/{model}/approve", json={"version": "1"}).status_code == 403
    before = approver.get(f"/v1/models/{model}/versions/1/why").json()
    assert not before["met"] and before["conditions"][0]["name"] == "approvals"
    approved = approver.post(f"/v1/models/{model}/approve", json={"version": "1", "evidence": before["evidence"]})
    assert approved.status_code == 200, approved.text
    stack.ok("models", "promote", model, "1")
    stack.ok("models", "register", model, f"{job}@2")
    at_once = submitter.post(f"/v1/models/{model}/promote", json={"version": "2", "champion": 0})
    assert at_once.status_code == 409 and "is version 1 by now" in at_once.json()["detail"]
    in_need = {"version": "2", "emergency": True, "reason": "down"}
    assert submitter.post(f"/v1/models/{model}/promote", json=in_need).status_code == 403
    emergency = approver.post(f"/v1/models/{model}/promote", json=in_need)
    assert emergency.status_code == 200, emergency.text
    back = stack.ok("models", "rollback", model, "--reason", "complaints")
    assert f"default/{model}@1 (1.0.0) is champion again" in back
    assert submitter.get(f"/v1/models/{model}").json()["champion"]["version"] == 1
    words = [row["type"].split(".")[2] for row in stack.run("models", "history", model, "--json").objects()]
    assert words.count("request-refused") == 3 and words[-2:] == ["rolled-back", "archived"]
    sql = f"SELECT version, stage, emergency FROM model_versions WHERE model = '{model}' ORDER BY version"
    until(lambda: stack.rows(sql) == [_row(1, "champion", 0), _row(2, "archived", 1)], "the tables to have it")
    objects = S3ObjectStore(StoreSettings.model_validate(settings["s3"]))

    def chained() -> bool:
        newest = stage_chain.newest(objects, "default", model)
        return newest is not None and newest.kind == "rolled-back" and newest.champion is not None and newest.champion.version == 1

    until(chained, "the chain in the store")
    kinds = [record.kind for record in stage_chain.history(objects, "default", model)]
    assert kinds == ["rolled-back", "promoted", "registered", "promoted", "registered"]


def test_an_emergency_is_an_alert_until_another_person_reviews_it(stack: LiveStack, job: str, gateway: Any) -> None:
    model = f"urgent-{OURS}"
    stack.ok("models", "register", model, f"{job}@1")
    maker, reviewer = gateway("bob", "approver"), gateway("cem", "approver")
    promoted = maker.post(f"/v1/models/{model}/promote", json={"version": "1", "emergency": True, "reason": "down since noon"})
    assert promoted.status_code == 200, promoted.text

    def alerts() -> list[dict[str, Any]]:
        rows = stack.run("alerts", "--json").objects()
        return [row for row in rows if row["rule"] == "model-emergency" and row["labels"]["model"] == model]

    until(lambda: bool(alerts()), "the alert")
    assert f"trainhouse models review {model} 1" in alerts()[0]["summary"] and "down since noon" in alerts()[0]["summary"]
    [span] = reviewer.get(f"/v1/models/{model}/champions").json()["items"]
    assert (span["version"], span["emergency"], span["by"], span["ended_ms"]) == (1, True, "bob", None)
    assert maker.post(f"/v1/models/{model}/review", json={"version": "1"}).status_code == 409, "not one's own"
    assert reviewer.post(f"/v1/models/{model}/review", json={"version": "1", "reason": "was right"}).status_code == 200
    until(lambda: not alerts(), "the end of the alert")


def test_parts_of_a_version_for_its_page(stack: LiveStack, job: str, gateway: Any) -> None:
    model = f"shown-{OURS}"
    stack.ok("models", "register", model, f"{job}@2", "--notes", "a **note**")
    viewer = gateway("vic", "viewer")
    version = viewer.get(f"/v1/models/{model}/versions/1").json()
    assert version["lineage_id"] == f"model:{model}@1" and version["notes"] == "a **note**" and version["comparisons"] == []
    card = viewer.get(f"/v1/models/{model}/versions/1/card")
    assert card.status_code == 200 and f"trainhouse_version: model:{model}@1" in card.json()["card"], card.text

    def made() -> bool:
        items = viewer.get(f"/v1/training-jobs/{job}/models").json()["items"]
        return any((each["model"], each["version"], each["stage"]) == (model, 1, "staging") for each in items)

    until(made, "the tables to have it")


def _row(version: int, stage: str, emergency: int) -> dict[str, Any]:
    return {"version": version, "stage": stage, "emergency": emergency}


def test_a_gate_from_a_file_and_what_it_lacks(stack: LiveStack, job: str, tmp_path: Path) -> None:
    model = f"gated-{OURS}"
    stack.ok("models", "register", model, job)
    file = tmp_path / "gate.yaml"
    file.write_text("approvals: 0\nsuites:\n- suite: accuracy\n  metrics:\n    top1: {at_least: 0.7}\n")
    assert stack.run("models", "gate", "diff", model, str(file)).code == 1
    stack.ok("models", "gate", "apply", model, str(file), "--reason", "to begin with")
    assert stack.run("models", "gate", "diff", model, str(file)).code == 0
    refused = stack.run("models", "promote", model, "1")
    assert refused.code == 3 and "no result of suite accuracy" in refused.err
    why = stack.run("models", "why", model, "1")
    assert why.code == 1 and "accuracy result" in why.out
    file.write_text("approvals: 3\n")
    assert stack.run("models", "gate", "apply", model, str(file)).code == 2


def test_what_cannot_be_registered_is_refused_with_what_to_do(stack: LiveStack, job: str, gateway: Any) -> None:
    assert stack.run("models", "register", f"none-{OURS}", "no-such-job").code != 0
    refused = gateway("ada", "submitter").post("/v1/models/other/versions?project=vision", json={"job_id": job})
    assert refused.status_code == 409 and "project" in refused.json()["detail"]
    nothing = gateway("ada", "submitter").post("/v1/models/other/versions", json={})
    assert nothing.status_code == 409 and "neither" in nothing.json()["detail"]


def test_mlflows_own_client_registers_searches_and_asks_the_gate(
    stack: LiveStack, job: str, gateway: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", token(settings, "ada", "submitter"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    client, model = mlflow.MlflowClient(settings["gateway"]["url"], settings["gateway"]["url"]), f"mlflow-{OURS}"
    client.create_registered_model(model, tags={"team": "a"}, description="digits")
    with pytest.raises(mlflow.MlflowException, match="exists already"):
        client.create_registered_model(model)
    first = client.create_model_version(model, f"runs:/{job}/checkpoints/1", job, tags={"kind": "first"})
    second = client.create_model_version(model, f"runs:/{job}/checkpoints/2", job)
    assert (first.version, second.version, first.run_id) == ("1", "2", job)
    with pytest.raises(mlflow.MlflowException, match="0 of 1 approvals"):
        client.set_registered_model_alias(model, "champion", "1")
    client.set_registered_model_alias(model, "candidate", "2")
    assert gateway("bob", "approver").post(f"/v1/models/{model}/approve", json={"version": "1"}).status_code == 200
    client.set_registered_model_alias(model, "champion", "1")
    assert client.get_model_version_by_alias(model, "champion").version == "1"
    found = {each.version: list(each.aliases) for each in client.search_model_versions(f"name='{model}'")}
    assert found == {"1": ["champion"], "2": ["candidate"]}, "aliases are in results of searches"
    [listed] = client.search_registered_models(f"name = '{model}'")
    assert dict(listed.aliases) == {"candidate": "2", "champion": "1"} and listed.tags["team"] == "a"
    assert [each.version for each in client.search_model_versions("tag.kind = 'first' and name LIKE 'mlflow-%'") if each.name == model] == [
        "1"
    ]
    client.set_model_version_tag(model, "2", "seen", "yes")
    client.update_model_version(model, "2", "text")
    described = client.get_model_version(model, "2")
    assert described.tags["seen"] == "yes" and described.description == "text" and described.tags["trainhouse.semver"] == "1.0.1"
    with pytest.raises(mlflow.MlflowException, match="archive the version instead"):
        client.delete_registered_model(model)


PROGRAM_OF_MODEL = """
import json
import mlflow

class Scaled(mlflow.pyfunc.PythonModel):
    def load_context(self, context):
        self.factor = json.load(open(context.artifacts["weights"]))["factor"]

    def predict(self, context, model_input: list[float], params=None) -> list[float]:
        return [x * self.factor for x in model_input]

mlflow.models.set_model(Scaled())
"""


def test_mlflows_own_client_logs_a_model_and_loads_it_by_version_and_alias(
    stack: LiveStack, gateway: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", token(settings, "ada", "submitter"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    mlflow.set_tracking_uri(settings["gateway"]["url"])
    mlflow.set_experiment(experiment_id="0")  # other tests of this process may have left that of a project of theirs
    client, model = mlflow.MlflowClient(), f"scaled-{OURS}"
    (tmp_path / "scaled.py").write_text(PROGRAM_OF_MODEL)

    def logged(factor: float) -> Any:
        (tmp_path / "weights.json").write_text(f'{{"factor": {factor}}}')
        weights = {"weights": (tmp_path / "weights.json").as_uri()}
        program, needs = str(tmp_path / "scaled.py"), ["pandas"]
        return mlflow.pyfunc.log_model(
            name="scaled", python_model=program, artifacts=weights, pip_requirements=needs, registered_model_name=model
        )

    def predicted(uri: str) -> list[float]:
        return list(mlflow.pyfunc.load_model(uri).predict([1.0, 2.0]))

    with mlflow.start_run() as run:
        first, second = logged(2.0), logged(3.0)
    assert (first.registered_model_version, second.registered_model_version) == ("1", "2")
    assert predicted(f"models:/{model}/1") == predicted(f"models:/{first.model_id}") == [2.0, 4.0]
    with pytest.raises(mlflow.MlflowException, match="0 of 1 approvals"):
        client.set_registered_model_alias(model, "champion", "1")
    own = gateway("ada", "approver").post(f"/v1/models/{model}/approve", json={"version": "1"})
    assert own.status_code == 409 and "nobody approves their own" in own.text
    approved = gateway("bob", "approver").post(f"/v1/models/{model}/approve", json={"version": "1"})
    assert approved.status_code == 200, "the registry knows who logged it: " + approved.text
    client.set_registered_model_alias(model, "champion", "1")
    client.set_registered_model_alias(model, "next", "2")
    assert predicted(f"models:/{model}@champion") == [2.0, 4.0] and predicted(f"models:/{model}@next") == [3.0, 6.0]
    found = {each.version: list(each.aliases) for each in client.search_model_versions(f"name='{model}'")}
    assert found == {"1": ["champion"], "2": ["next"]}
    assert [each.model_id for each in client.search_logged_models(["0"], filter_string=f"source_run_id = '{run.info.run_id}'")] == [
        second.model_id,
        first.model_id,
    ]
    client.delete_logged_model(first.model_id)
    client.delete_run(run.info.run_id)
    assert predicted(f"models:/{model}@champion") == [2.0, 4.0], "a version outlives what it was made of"
    with pytest.raises(mlflow.MlflowException, match="no logged model"):
        predicted(f"models:/{first.model_id}")
    out = tmp_path / "out"
    stack.ok("models", "fetch", f"{model}@champion", str(out))
    assert (out / "MLmodel").is_file() and f"model:{model}@1" in stack.ok("models", "verify", str(out))
    rows = stack.rows(f"SELECT model_id, deleted, status FROM logged_models WHERE source_run_id = '{run.info.run_id}' ORDER BY created_at")
    assert rows == [
        {"model_id": first.model_id, "deleted": 1, "status": "READY"},
        {"model_id": second.model_id, "deleted": 0, "status": "READY"},
    ]


def test_the_registrys_decisions_are_the_same_when_they_are_computed_again(stack: LiveStack, job: str) -> None:
    assert "the same, byte for byte" in stack.ok("replay", "--verify", "--topic", "trainhouse.registry")
