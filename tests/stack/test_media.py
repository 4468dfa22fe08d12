"""Images, tables and the like on a whole stack: a program in a confined rank logs them, a kill leaves each whole or not at all, and pages,
SQL and MLflow's client find them; and those that MLflow's client logs itself."""

from __future__ import annotations

import io
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image as Pillow

from tests.support.stack.live_agent import agents
from tests.support.stack.live_stack import LiveStack
from tests.support.stack.paced_jobs import Pool
from trainhouse.deploy.local.layout import read_toml
from trainhouse.events import JobState
from trainhouse.gateway.auth import tokens

pytestmark = pytest.mark.stack

# The first attempt dies between a content and its event; the second one logs the same steps again.
LOGS = """\
import os, signal
import torch
from trainhouse.workers import Audio, Histogram, Image, Session, Table, Text

class Dying:
    def __init__(self, sink):
        self.sink = sink
    def event(self, name, fields, event_id=None):
        if "+step+2+" in fields["path"]:
            os.kill(os.getpid(), signal.SIGKILL)
        self.sink.event(name, fields, event_id)

session = Session.start()
session.track(model=torch.nn.Linear(2, 2))
first = session._context.epoch == 1
if first:
    session._media._sink = Dying(session._sink)
for step in session.steps(4):
    grey, table = torch.full((3, 8, 8), step / 4), Table(["step", "said"], [[step, "x"]])
    session.log({"eval/samples": [Image(grey), Image(grey)], "answers": table})
    session.log(weights=Histogram(torch.arange(100.0) + step), said=Text(f"step {step}"), tone=Audio(torch.zeros(800), 8000))
    session.log(loss=1.0 / (step + 1))
    if first and step == 2:
        signal.pause()
"""


@pytest.fixture(scope="module")
def pool(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool of one node of one slot."""
    name, folder = f"media-{secrets.token_hex(3)}", tmp_path_factory.mktemp("media")
    stack.ok("pool", "create", name)
    with agents(stack, name, folder, f"{name}-a", SLOTS="1") as made:
        yield Pool(name, made.node_ids, stack, stack.client(), folder, [])


@pytest.fixture
def gateway(stack: LiveStack) -> Iterator[httpx.Client]:
    settings = read_toml(stack.data_dir / "trainhouse.toml")["gateway"]
    key = Path(str(settings["key_file"])).read_bytes().strip()
    token = tokens.issue(key, "ada", ["submitter"], ["*"], now_s=int(time.time()), expires_s=int(time.time()) + 3600)
    with httpx.Client(base_url=str(settings["url"]), headers={"Authorization": f"Bearer {token}"}, timeout=480) as made:
        yield made


@pytest.fixture
def mlflow_here(gateway: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", gateway.headers["Authorization"].removeprefix("Bearer "))
    import mlflow

    mlflow.set_tracking_uri(str(gateway.base_url).rstrip("/"))
    return mlflow


def test_what_a_rank_logs_is_whole_or_not_there_and_found_by_pages_sql_and_mlflow(
    pool: Pool, gateway: httpx.Client, mlflow_here: Any
) -> None:
    job = pool.submit("media", LOGS, 1, checkpoint={"every_steps": 1}, limits={"restarts": 3})
    done = job.until(lambda status: status.state.final)
    assert done.state is JobState.SUCCEEDED and done.attempt == 1, (done, pool.stack.ok("logs", job.id))
    sql = f"SELECT kind, key, step, number, path FROM media WHERE job_id = '{job.id}' ORDER BY kind, key, step, at"
    rows = pool.once(sql, lambda found: sum(row["step"] == 3 for row in found) == 6)
    last = [(row["kind"], row["key"], row["number"]) for row in rows if row["step"] == 3]
    assert last == [
        ("audio", "tone", 0),
        ("histogram", "weights", 0),
        ("image", "eval/samples", 0),
        ("image", "eval/samples", 1),
        ("table", "answers", 0),
        ("text", "said", 0),
    ]
    place = f"/v1/training-jobs/{job.id}/media"
    keys = gateway.get(place).json()["items"]
    assert {one["key"]: one["steps"] for one in keys} == {
        key: [0, 1, 2, 3] for key in ("eval/samples", "answers", "weights", "said", "tone")
    }
    shown = gateway.get(f"{place}/items", params={"kind": "image", "key": "eval/samples", "step": 2}).json()["items"]
    assert [one["number"] for one in shown] == [0, 1], "once, though two attempts were at it"
    for one in shown:
        content = gateway.get(f"{place}/content", params={"path": one["path"]}).content
        assert np.asarray(Pillow.open(io.BytesIO(content))).tolist() == np.full((8, 8, 3), 128).tolist()
    found = gateway.get(f"{place}/histograms", params={"key": "weights"}).json()["items"]
    assert [(one["step"], one["edges"][0], sum(one["counts"])) for one in found] == [(n, float(n), 100.0) for n in range(4)]
    client = mlflow_here.MlflowClient()
    tables = [file.path for file in client.list_artifacts(job.id, "tables")]
    assert any(path.startswith("tables/answers+step+3+") for path in tables)
    uri = client.get_run(job.id).info.artifact_uri
    table = next(path for path in tables if "+step+3+" in path)
    assert mlflow_here.artifacts.load_dict(f"{uri}/{table}") == {"columns": ["step", "said"], "data": [[3, "x"]]}


def test_what_mlflows_client_logs_is_on_the_page_of_its_run(stack: LiveStack, gateway: httpx.Client, mlflow_here: Any) -> None:
    mlflow = mlflow_here
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1, 1), dpi=40)
    figure.add_subplot().plot([1, 2])
    mlflow.set_experiment(f"vision/media-{secrets.token_hex(4)}")
    with mlflow.start_run() as run:
        for step in (1, 2):
            mlflow.log_image(np.full((4, 4, 3), step, np.uint8), key="eval/samples", step=step)
        mlflow.log_table({"q": ["a", "b"], "score": [0.5, 1.0]}, "eval/answers.json")
        mlflow.log_text("words", "notes.txt")
        mlflow.log_figure(figure, "plots/roc.png")
    run_id, place = run.info.run_id, f"/v1/training-jobs/{run.info.run_id}/media"
    found = {one["key"]: (one["kind"], one["steps"]) for one in gateway.get(place).json()["items"]}
    assert found == {
        "eval/samples": ("image", [1, 2]),
        "eval/answers.json": ("table", []),
        "notes.txt": ("text", []),
        "plots/roc.png": ("image", []),
    }
    (one,) = gateway.get(f"{place}/items", params={"kind": "image", "key": "eval/samples"}).json()["items"]
    assert np.asarray(Pillow.open(io.BytesIO(gateway.get(f"{place}/content", params={"path": one["path"]}).content))).max() == 2
    table = gateway.get(f"{place}/table", params={"path": "eval/answers.json"}).json()
    assert (table["columns"], table["rows"]) == (["q", "score"], [["a", 0.5], ["b", 1.0]])
    assert gateway.get(f"{place}/text", params={"path": "notes.txt"}).json()["text"] == "words"
    assert gateway.get(f"{place}/content", params={"path": "plots/roc.png"}).headers["content-type"] == "image/png"
    assert mlflow.load_table("eval/answers.json", run_ids=[run_id])["q"].tolist() == ["a", "b"]
    assert [file.path for file in mlflow.MlflowClient().list_artifacts(run_id)] == ["eval", "images", "notes.txt", "plots"]
