"""MLflow's own client through a gateway: what it logs can be read by it and by SQL, exactly once, by whoever may.

One gateway is a process of these tests on the shared stack, so that it can be killed.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.checkpointing.artifacts.artifact_sweep import sweep_artifacts
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.object_store import ObjectStat
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.deploy.local.free_ports import free_port
from trainhouse.deploy.local.servers.server_process import die_with_parent
from trainhouse.events.model.artifact_keys import PREFIX, artifacts_prefix
from trainhouse.gateway.auth import tokens

if TYPE_CHECKING:
    from mlflow import MlflowClient

pytestmark = pytest.mark.stack
BATCHES, POINTS = 24, 400
# A stack may be used again, and an experiment's name is its own for ever.
OURS = secrets.token_hex(4)


@dataclass
class OwnGateway:
    """A gateway of the shared stack, or a process of ours beside it."""

    url: str
    key: bytes
    process: subprocess.Popen[bytes] | None = None

    def token(self, *projects: str, role: str = "submitter") -> str:
        return tokens.issue(self.key, "ada", [role], list(projects) or ["*"], now_s=int(time.time()), expires_s=int(time.time()) + 3600)

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False


class OfProject(S3ObjectStore):
    """The store, of which sweeps list the artifacts of these tests' project alone: what others store at this moment stays."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectStat]:
        return super().list(artifacts_prefix(f"artifacts-{OURS}") if prefix == PREFIX else prefix, start_after)


@pytest.fixture(scope="module")
def gateways(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OwnGateway, OwnGateway]]:
    """A gateway to kill, and the stack's own."""
    settings = tomllib.loads((stack.data_dir / "trainhouse.toml").read_text())["gateway"]
    key = Path(settings["key_file"]).read_bytes().strip()
    port = free_port()
    environment = stack.environment | {"TRAINHOUSE_CONFIG": str(stack.data_dir / "trainhouse.toml"), "TRAINHOUSE_GATEWAY_PORT": str(port)}
    command = [sys.executable, "-m", "trainhouse.cli.main", "run", "gateway"]
    with (tmp_path_factory.mktemp("gateway") / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, preexec_fn=die_with_parent())
        yield OwnGateway(f"http://127.0.0.1:{port}", key, process), OwnGateway(settings["url"], key)
        process.kill()
        process.wait()


@pytest.fixture
def mlflow_to(gateways: tuple[OwnGateway, OwnGateway], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The MLflow module, set to the second gateway."""
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", gateways[1].token())
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
    import mlflow

    mlflow.set_tracking_uri(gateways[1].url)
    yield mlflow
    while mlflow.active_run() is not None:
        mlflow.end_run()


def test_a_training_program_that_logs_with_mlflow(mlflow_to: Any, stack: LiveStack, tmp_path: Path) -> None:
    mlflow = mlflow_to
    (tmp_path / "notes.txt").write_text("what was seen")
    mlflow.set_experiment(f"vision/mlflow-client-{OURS}")
    with mlflow.start_run(run_name="first", tags={"team": "blue"}) as run:
        mlflow.log_params({"lr": 0.001, "depth": 12})
        for step in range(3):
            mlflow.log_metrics({"loss": 1.0 / (step + 1), "acc": step / 10}, step=step)
        mlflow.log_metric("odd", math.nan)
        mlflow.log_artifact(str(tmp_path / "notes.txt"), "notes")
        mlflow.log_text("x" * 100_000, "big.txt")
        with pytest.raises(mlflow.MlflowException, match="never change"):
            mlflow.log_param("lr", 0.1)
    client = mlflow.MlflowClient()
    _read_back(client, run.info.run_id, run.info.experiment_id)
    assert mlflow.artifacts.load_text(f"{run.info.artifact_uri}/notes/notes.txt") == "what was seen"
    assert [(f.path, f.is_dir, f.file_size) for f in client.list_artifacts(run.info.run_id)] == [
        ("big.txt", False, 100_000),
        ("notes", True, None),
    ]
    (job,) = stack.rows(f"SELECT name, project, state, source FROM jobs WHERE job_id = '{run.info.run_id}'")
    assert job == {"name": "first", "project": "vision", "state": "SUCCEEDED", "source": "tracked"}
    client.delete_tag(run.info.run_id, "team")
    client.delete_run(run.info.run_id)
    assert client.search_runs([run.info.experiment_id]) == []
    client.restore_run(run.info.run_id)
    assert "team" not in client.search_runs([run.info.experiment_id])[0].data.tags


def test_a_file_that_two_runs_log_is_stored_once_and_goes_with_the_last_of_them(mlflow_to: Any, stack: LiveStack, tmp_path: Path) -> None:
    mlflow, runs = mlflow_to, []
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights.bin").write_bytes(secrets.token_bytes(100_000))
    (tmp_path / "model" / "vocab.txt").write_text(OURS)
    mlflow.set_experiment(f"artifacts-{OURS}/shared")
    for _ in range(2):
        with mlflow.start_run() as run:
            mlflow.log_artifacts(str(tmp_path / "model"), "model")
        runs.append(run.info)
    objects = OfProject(StoreSettings.model_validate(tomllib.loads((stack.data_dir / "trainhouse.toml").read_text())["s3"]))
    prefix = f"{artifacts_prefix(f'artifacts-{OURS}')}objects/"
    sql = f"SELECT uri, count() AS runs FROM artifacts WHERE job_id IN ('{runs[0].run_id}', '{runs[1].run_id}') GROUP BY uri ORDER BY uri"
    rows = until(lambda: [row["runs"] for row in stack.rows(sql)] == [2, 2] and stack.rows(sql), lambda: stack.rows(sql))
    assert [row["uri"] for row in rows] == [objects.uri(stat.key) for stat in objects.list(prefix)]
    fetched = Path(mlflow.artifacts.download_artifacts(run_id=runs[1].run_id, artifact_path="model", dst_path=str(tmp_path / "out")))
    assert (fetched / "weights.bin").read_bytes() == (tmp_path / "model" / "weights.bin").read_bytes()
    client = mlflow.MlflowClient()
    client.delete_run(runs[0].run_id)
    swept = until(lambda: (found := sweep_artifacts(objects, grace_s=0.0)).objects and found, lambda: "the store counts whole seconds")
    assert swept.objects >= 1 and not swept.unclear, "what the deleted run named"
    assert len(list(objects.list(prefix))) == 2 and mlflow.artifacts.load_text(f"{runs[1].artifact_uri}/model/vocab.txt") == OURS
    (weights,) = (stat for stat in objects.list(prefix) if stat.size_bytes == 100_000)
    objects.put(weights.key, bytes(100_000))
    with pytest.raises(mlflow.MlflowException, match="Failed to download"):
        mlflow.artifacts.download_artifacts(run_id=runs[1].run_id, artifact_path="model/weights.bin", dst_path=str(tmp_path / "bad"))
    place = f"{runs[1].artifact_uri.removeprefix('mlflow-artifacts:/')}/model/weights.bin"
    url = f"{mlflow.get_tracking_uri()}/api/2.0/mlflow-artifacts/artifacts/{place}"
    answer = httpx.get(url, headers={"Authorization": f"Bearer {os.environ['MLFLOW_TRACKING_TOKEN']}"}, timeout=480)
    assert answer.status_code == 422 and "has other contents than its hash says" in answer.json()["message"], answer.text


def _read_back(client: MlflowClient, run_id: str, experiment_id: str) -> None:
    found = client.get_run(run_id)
    assert found.info.status == "FINISHED" and found.info.end_time >= found.info.start_time
    assert found.data.params == {"lr": "0.001", "depth": "12"} and found.data.tags["team"] == "blue"
    assert found.data.metrics["loss"] == pytest.approx(1 / 3) and math.isnan(found.data.metrics["odd"])
    assert [(m.step, m.value) for m in client.get_metric_history(run_id, "acc")] == [(0, 0.0), (1, 0.1), (2, 0.2)]
    for text, count in (
        ("metrics.loss < 0.4 and params.depth = '12'", 1),
        ("metrics.loss < 0.1", 0),
        ("tags.team LIKE 'bl%' and attributes.status = 'FINISHED'", 1),
        ("params.lr != '0.001'", 0),
        (f"run_id IN ('{run_id}')", 1),
    ):
        assert len(client.search_runs([experiment_id], text, order_by=["metrics.loss DESC"])) == count, text


def test_searches_come_in_pages_and_in_order(mlflow_to: Any) -> None:
    client = mlflow_to.MlflowClient()
    experiment_id = client.create_experiment(f"vision/pages-{OURS}", tags={"kind": "sweep"})
    ids = [client.create_run(experiment_id, start_time=1_700_000_000_000 + n).info.run_id for n in range(5)]
    for n, run_id in enumerate(ids):
        client.log_metric(run_id, "score", [3, 1, 5, 4, 2][n])
    first = client.search_runs([experiment_id], max_results=3, order_by=["metrics.score DESC"])
    rest = client.search_runs([experiment_id], max_results=3, order_by=["metrics.score DESC"], page_token=first.token)
    assert [r.data.metrics["score"] for r in [*first, *rest]] == [5, 4, 3, 2, 1] and rest.token is None
    assert [r.info.run_id for r in client.search_runs([experiment_id])] == ids[::-1]
    (found,) = client.search_experiments(filter_string=f"tags.kind = 'sweep' and name LIKE 'vision/pages-{OURS[:6]}%'")
    assert found.experiment_id == experiment_id == client.get_experiment_by_name(f"vision/pages-{OURS}").experiment_id


def test_another_projects_runs_do_not_exist(
    mlflow_to: Any, gateways: tuple[OwnGateway, OwnGateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = mlflow_to.MlflowClient()
    experiment_id = client.create_experiment(f"secret/one-{OURS}")
    run_id = client.create_run(experiment_id).info.run_id
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", gateways[1].token("vision"))
    for ask in (
        lambda: client.get_run(run_id),
        lambda: client.log_metric(run_id, "loss", 1.0),
        lambda: client.get_experiment(experiment_id),
        lambda: client.get_run("0" * 32),
    ):
        with pytest.raises(mlflow_to.MlflowException) as refused:
            ask()
        assert refused.value.error_code == "RESOURCE_DOES_NOT_EXIST"
    assert client.search_runs([experiment_id]) == [] and client.get_experiment_by_name(f"secret/one-{OURS}") is None
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", gateways[1].token(role="viewer"))
    with pytest.raises(mlflow_to.MlflowException) as denied:
        client.log_metric(run_id, "loss", 1.0)
    assert denied.value.error_code == "PERMISSION_DENIED"
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "forged")
    with pytest.raises(mlflow_to.MlflowException) as unknown:
        client.get_run(run_id)
    assert unknown.value.error_code == "UNAUTHENTICATED"


def test_a_gateway_killed_amid_batches_loses_and_doubles_nothing(gateways: tuple[OwnGateway, OwnGateway], stack: LiveStack) -> None:
    headers = {"Authorization": f"Bearer {gateways[0].token()}"}
    doomed = gateways[0].process
    assert doomed is not None
    until(gateways[0].answers, "the gateway of this test answers")
    api = "/api/2.0/mlflow/runs"
    made = httpx.post(f"{gateways[1].url}{api}/create", json={"experiment_id": "0", "run_name": "killed"}, headers=headers, timeout=480)
    run_id = made.json()["run"]["info"]["run_id"]
    answered = threading.Semaphore(0)

    def log(batch: int) -> None:
        points = [{"key": f"m{i % 4}", "value": i, "timestamp": 1_700_000_000_000 + i, "step": batch * POINTS + i} for i in range(POINTS)]
        body = {"run_id": run_id, "metrics": points}
        # As a client does that had no answer: the same request, until one gateway says yes; some come twice although they were answered.
        for gateway in (gateways[0], gateways[1], gateways[1]):
            try:
                status = httpx.post(f"{gateway.url}{api}/log-batch", json=body, headers=headers, timeout=480).status_code
            except httpx.HTTPError:
                continue
            answered.release()
            if status == 200 and batch % 3:
                return
        assert batch % 3 == 0, "no gateway took the batch"

    with ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(log, batch) for batch in range(BATCHES)]
        for _ in range(4):
            answered.acquire(timeout=480)
        os.kill(doomed.pid, signal.SIGKILL)
        for each in sent:
            each.result()
    count = f"SELECT count() AS rows, uniqExact(metric, step) AS points FROM step_metrics WHERE job_id = '{run_id}'"
    until(lambda: int(stack.rows(count)[0]["points"]) == BATCHES * POINTS, "every point can be read")
    # Whatever was to come twice has come by now: a later point of the same run is there, and one job's records keep their order.
    last = {"run_id": run_id, "key": "last", "value": 1, "timestamp": 1, "step": 0}
    assert httpx.post(f"{gateways[1].url}{api}/log-metric", json=last, headers=headers, timeout=480).status_code == 200
    until(
        lambda: int(stack.rows(f"SELECT count() AS n FROM step_metrics WHERE job_id = '{run_id}' AND metric = 'last'")[0]["n"]) == 1,
        "the last point can be read",
    )
    assert stack.rows(count) == [{"rows": BATCHES * POINTS + 1, "points": BATCHES * POINTS + 1}]
