"""What a job logs by itself, what it logs by MLflow's client onto itself, and TensorBoard's files, all as rows beside each other."""

from __future__ import annotations

import json
import time
import tomllib
from pathlib import Path

import pytest

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.client.tensorboard import TensorBoardImport, send_to
from trainhouse.events.settings import KafkaSettings

pytestmark = pytest.mark.stack

PROGRAM = """
import mlflow
from trainhouse.workers import Session

with Session.start() as session, mlflow.start_run() as run:
    mlflow.log_param("from_mlflow", 7)
    for step in session.steps(3):
        session.log(loss=1.0 / (step + 1))
        mlflow.log_metric("by_mlflow", step / 2, step=step)
    print("run", run.info.run_id)
"""


def test_a_job_logs_itself_and_by_mlflow_onto_itself(stack: LiveStack, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    gateway = tomllib.loads((stack.data_dir / "trainhouse.toml").read_text())["gateway"]
    token = Path(gateway["token_file"]).read_text().strip()
    spec = {"name": "itself", "project": "vision", "hyperparameters": {"lr": 0.5}, "secrets": ["MLFLOW_TRACKING_TOKEN"]}
    stack.ok("secrets", "set", "vision/MLFLOW_TRACKING_TOKEN", stdin=token)
    (tmp_path / "job.yaml").write_text(json.dumps(spec | {"runtime": {"command": ["python", "train.py"]}}))
    job_id = json.loads(stack.ok("submit", "job.yaml", "--wait", "--json", cwd=tmp_path).splitlines()[0])["job_id"]
    (environment,) = until(lambda: stack.rows(f"SELECT * FROM job_environments WHERE job_id = '{job_id}'"), "its environment can be read")
    assert environment["packages"]["numpy"] and environment["torch_version"] and environment["command"][-1].endswith("train.py")
    assert len(environment["environment_id"]) == 64 and environment["node_id"] and environment["cpus"] > 0
    # A job that takes a while also has figures of its process and machine.
    own = "NOT startsWith(metric, 'system/')"
    metrics = f"SELECT DISTINCT metric FROM step_metrics WHERE job_id = '{job_id}' AND {own} ORDER BY metric"
    until(lambda: [r["metric"] for r in stack.rows(metrics)] == ["by_mlflow", "loss"], lambda: stack.rows(metrics))
    parameters = f"SELECT key, value FROM parameters WHERE job_id = '{job_id}' ORDER BY key"
    both = [{"key": "from_mlflow", "value": "7"}, {"key": "lr", "value": "0.5"}]
    until(lambda: stack.rows(parameters) == both, lambda: stack.rows(parameters))
    end = f"SELECT state, source FROM jobs WHERE job_id = '{job_id}'"
    until(lambda: stack.rows(end) == [{"state": "SUCCEEDED", "source": "scheduled"}], lambda: stack.rows(end))


def test_tensorboards_files_are_taken_in_once(stack: LiveStack, tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter  # type: ignore[attr-defined]

    with SummaryWriter(str(tmp_path / "runs")) as writer:
        for step in range(200):
            writer.add_scalar("loss", 1.0 / (step + 1), step)
    name = f"board-{time.time_ns()}"  # a stack may be used again
    first = json.loads(stack.ok("import", "tensorboard", "runs", "--name", name, "--project", "vision/board", "--json", cwd=tmp_path))
    kafka = KafkaSettings.model_validate(tomllib.loads((stack.data_dir / "trainhouse.toml").read_text())["kafka"])
    second = TensorBoardImport((tmp_path / "runs").resolve(), "vision/board", name, "ada", send_to(kafka)).read()
    assert first == {"runs": sorted(second.runs), "points": 200, "passed_over": 0} and second.points == 200
    (run_id,) = first["runs"]
    count = f"SELECT count() AS n, uniqExact(step) AS steps FROM step_metrics WHERE job_id = '{run_id}'"
    until(lambda: stack.rows(count)[0]["steps"] == 200, lambda: stack.rows(count))
    # The second reading's end is the last that was told; all before it is in when it is.
    until(lambda: stack.rows(f"SELECT state FROM jobs WHERE job_id = '{run_id}'") == [{"state": "SUCCEEDED"}], "its end can be read")
    assert stack.rows(count) == [{"n": 200, "steps": 200}]
    assert stack.rows(f"SELECT name, project, source FROM jobs WHERE job_id = '{run_id}'") == [
        {"name": name, "project": "vision", "source": "tracked"}
    ]
