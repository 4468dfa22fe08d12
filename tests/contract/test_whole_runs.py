"""Runs of MLflow's API over the real engine: read by keys as the views have them, one query a run, two a search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.support.gateway_world import NOW_MS, World, world_in
from trainhouse.events import Event, JobId, JobState
from trainhouse.events.model.tracking import (
    DatasetUsed,
    InputsLogged,
    ParametersLogged,
    TagsChanged,
    TrackedRunBegun,
    TrackedRunChanged,
)
from trainhouse.events.wire import topics
from trainhouse.gateway.mlflow import schemas
from trainhouse.gateway.mlflow.bodies import Metric
from trainhouse.gateway.mlflow.mlflow_ports import EVERYTHING, Ports
from trainhouse.gateway.mlflow.points import records_of_request
from trainhouse.gateway.mlflow.search import RUN_COLUMNS

TWICE = "of-two-projects"
MLFLOW = "/api/2.0/mlflow"
RUNS = tuple(JobId(f"run-{n}") for n in range(4))
VIEWS = (
    "SELECT job_id, metric, toString(l.value) AS value, step, toUnixTimestamp64Milli(l.time) AS time_ms "
    "FROM metric_latest AS l WHERE job_id = {id:String} AND rank = 0 ORDER BY metric",
    "SELECT job_id, key, value FROM parameters WHERE job_id = {id:String} ORDER BY key",
    "SELECT job_id, key, value FROM tags WHERE job_id = {id:String} ORDER BY key",
    "SELECT job_id, name, digest, source_type, source, context, schema_text, profile FROM inputs WHERE job_id = {id:String} ORDER BY name",
)


class AskedFreshness:
    """Counts the waits; the tables of these tests hold everything."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def reached(self, *names: str) -> None:
        self.asked.append(names)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("runs") / "clickhouse") as made:
        for n, run in enumerate(RUNS):
            begin_run(made, run, n)
        tracked(made, TrackedRunChanged(job_id=RUNS[1], state=JobState.SUCCEEDED, ended_at_ms=NOW_MS + 9, name="later", at_ms=NOW_MS + 9))
        tracked(made, TrackedRunChanged(job_id=RUNS[1], state=JobState.RUNNING, at_ms=NOW_MS + 10))
        tracked(made, TrackedRunChanged(job_id=RUNS[2], deleted=True, at_ms=NOW_MS + 9))
        tracked(
            made,
            TrackedRunChanged(job_id=RUNS[3], deleted=True, at_ms=NOW_MS),
            TrackedRunChanged(job_id=RUNS[3], deleted=False, at_ms=NOW_MS),
        )
        tracked(made, TagsChanged(job_id=RUNS[0], deleted=("gone",), at_ms=NOW_MS))
        tracked(made, TrackedRunChanged(job_id=JobId("never-begun"), state=JobState.FAILED, at_ms=NOW_MS))
        made.submit("job-a", "vision")
        made.submit("job-b", "default", state="SUCCEEDED", finished_at_ms=NOW_MS + 7, attempt=2, epoch=3)
        made.points("job-a", [0, 1, 2])
        # A run that a client logged in one project, and a job of another one that has its id.
        made.submit(TWICE, "speech")
        made.points(TWICE, [0, 1, 2])
        begin_run(made, JobId(TWICE), 9)
        yield made


@pytest.fixture
def freshness(world: World) -> AskedFreshness:
    asked = AskedFreshness()
    cast(Any, world.client.app).state.mlflow = Ports(cast(Any, asked), cast(Any, None))
    return asked


@pytest.fixture
def queries(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    rows = world.gateway.reader.rows

    async def counted(sql: str, values: Any = None) -> Any:
        made.append(sql)
        return await rows(sql, values)

    monkeypatch.setattr(world.gateway.reader, "rows", counted)
    return made


def tracked(world: World, *events: Event) -> None:
    for event in events:
        world.tables.put(topics.TRACKING, [event], NOW_MS)


def begin_run(world: World, run: JobId, n: int) -> None:
    begun = TrackedRunBegun(
        job_id=run, experiment_id="7", experiment="e", project="vision", name=f"n{n}", user="ana", started_at_ms=NOW_MS + n
    )
    later = begun.model_copy(update={"name": "of a repeat", "started_at_ms": NOW_MS + 1000})
    inputs = tuple(DatasetUsed(name=name, digest="d", source_type="s3", source="s3://x", context="train") for name in ("b", "a"))
    tags = TagsChanged(job_id=run, tags={"b": "1", "é": "2", "a": "3", "gone": "x"}, at_ms=NOW_MS)
    parameters = ParametersLogged(job_id=run, parameters={f"p{m}": str(m) for m in range(12)}, at_ms=NOW_MS)
    tracked(world, begun, later, tags, parameters, InputsLogged(job_id=run, datasets=inputs, at_ms=NOW_MS))
    numbers = {"z": 0.1, "a": float("nan"), "inf": float("inf"), "low": float("-inf"), "tiny": 5e-324, "zero": -0.0, "B": -1e300}
    points = [Metric(key=key, value=value, timestamp=NOW_MS + step, step=step) for key, value in numbers.items() for step in range(3)]
    world.tables.put(topics.TRACKED_METRICS, records_of_request(run, points), NOW_MS)


def of_views(world: World, run_id: str) -> dict[str, Any]:
    row = seen(world, f"SELECT {RUN_COLUMNS} FROM experiment_runs WHERE job_id = {{id:String}}", run_id)[0]
    return schemas.run(row, *(seen(world, sql, run_id) for sql in VIEWS))


def seen(world: World, sql: str, run_id: str) -> list[dict[str, Any]]:
    return world.client.portal.call(world.gateway.reader.rows, sql, {"id": run_id})  # type: ignore[union-attr]


@pytest.mark.parametrize("run_id", [*RUNS, "job-a", "job-b"])
def test_a_run_is_as_the_views_have_it(world: World, freshness: AskedFreshness, run_id: str) -> None:
    answer = world.client.get(f"/api/2.0/mlflow/runs/get?run_id={run_id}", headers=world.admin())
    assert answer.status_code == 200 and answer.json()["run"] == of_views(world, run_id)


def test_a_run_is_one_wait_and_one_query(world: World, freshness: AskedFreshness, queries: list[str]) -> None:
    assert world.client.get(f"/api/2.0/mlflow/runs/get?run_id={RUNS[0]}", headers=world.token()).status_code == 200
    assert len(queries) == 1 and freshness.asked == [EVERYTHING]


def test_a_search_is_two_queries_with_runs_as_the_views_have_them(world: World, freshness: AskedFreshness, queries: list[str]) -> None:
    body = {"experiment_ids": ["7"], "run_view_type": "ALL"}
    found = world.client.post("/api/2.0/mlflow/runs/search", json=body, headers=world.token()).json()["runs"]
    assert len(queries) == 2 and len(freshness.asked) == 1
    assert [run for run in found if run["info"]["run_id"] != TWICE] == [of_views(world, run) for run in reversed(RUNS)]


def test_a_run_that_never_began_and_one_of_another_project_are_alike(world: World, freshness: AskedFreshness) -> None:
    for run_id, who in (("never-begun", world.admin()), ("job-b", world.token()), ("nowhere", world.admin())):
        refused = world.client.get(f"/api/2.0/mlflow/runs/get?run_id={run_id}", headers=who)
        assert refused.status_code == 404 and f"there is no run {run_id} that you may see" in refused.text


def test_each_of_two_projects_sees_its_own_run_of_an_id_that_both_have_and_nothing_that_may_be_the_other_s(
    world: World, freshness: AskedFreshness
) -> None:
    for project, name in (("vision", "n9"), ("speech", "gpt")):
        held = world.token(projects=[project])
        answer = world.client.get(f"{MLFLOW}/runs/get?run_id={TWICE}", headers=held)
        assert answer.status_code == 200, answer.text
        run = answer.json()["run"]
        assert run["info"]["run_name"] == name and not run["data"].get("metrics") and not run["data"].get("params"), run
        curve = world.client.get(f"{MLFLOW}/metrics/get-history?run_id={TWICE}&metric_key=loss", headers=held)
        assert curve.json()["metrics"] == []
        point = {"run_id": TWICE, "key": "loss", "value": 1.0, "timestamp": NOW_MS}
        refused = world.client.post(f"{MLFLOW}/runs/log-metric", headers=held, json=point)
        assert refused.status_code == 400 and "of another project" in refused.text
        experiment = run["info"]["experiment_id"]
        body = {"experiment_ids": [experiment], "run_view_type": "ALL"}
        found = world.client.post(f"{MLFLOW}/runs/search", json=body, headers=held).json()["runs"]
        [same] = [each for each in found if each["info"]["run_id"] == TWICE]
        assert not same["data"].get("metrics") and not same["data"].get("params")
    both = world.client.get(f"{MLFLOW}/runs/get?run_id={TWICE}", headers=world.admin()).json()["run"]
    assert both["info"]["run_name"] == "n9" and both["data"]["metrics"]


def test_a_job_does_not_take_the_id_of_a_run_that_was_logged(world: World) -> None:
    body = {"job_id": str(RUNS[0]), "spec": {"name": "x", "runtime": {"command": ["x"]}, "project": "speech"}}
    held = world.admin()
    refused = world.client.post("/v1/training-jobs", json=body, headers=held)
    assert refused.status_code == 409, refused.text
    assert "is the id of a run or model that was logged here" in refused.text
    body["job_id"] = "free-id"
    assert world.client.post("/v1/training-jobs", json=body, headers=held).status_code == 202
