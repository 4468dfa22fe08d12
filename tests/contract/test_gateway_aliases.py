"""The API in other services' words, over real tables: each alias does what the route does that it stands for."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.support.gateway_world import KEY, NOW_MS, SPEC, World
from tests.support.served_gateway import served
from tests.support.study_book import StudyBook
from tests.support.study_story import SPEC as STUDY
from trainhouse.events import JobSubmitted, StudyCreated
from trainhouse.events.model.checkpoint import CheckpointCompleted
from trainhouse.events.wire import topics
from trainhouse.gateway.settings import GatewaySettings

RUNS, JOBS = "/training-runs", "/v1/training-jobs"
JOB = "aliased-1"
SPECS = SPEC | {
    "gang": 8,
    "resources": {"device_type": "H100"},
    "code": {"uri": "s3://code/gpt.tar", "sha256": "a" * 64},
    "data": {"dataset": "corpus@1.2.0"},
}
FEW = {"command": ["python", "train.py"], "project": "vision"}


@pytest.fixture(scope="module")
def world(gateway_world: World) -> World:
    gateway_world.submit(JOB, "vision")
    gateway_world.points(JOB, range(3))
    of = {"job_id": JOB, "attempt": 0, "epoch": 1, "at_ms": NOW_MS, "bytes_total": 1, "bytes_new": 1}
    saved = [
        CheckpointCompleted.model_validate(of | {"commit": 1, "step": 10, "uri": "s3://c/1"}),
        CheckpointCompleted.model_validate(of | {"commit": 2, "step": 20, "uri": "s3://c/2", "metrics": {"loss": 0.5}}),
    ]
    gateway_world.tables.put(topics.CHECKPOINTS, saved, NOW_MS)
    return gateway_world


@pytest.fixture
def tuner(world: World) -> Iterator[StudyBook]:
    before, made = world.gateway.studies, StudyBook(world.tables)
    world.gateway.studies = made
    yield made
    world.gateway.studies = before


def test_a_run_is_a_job(world: World) -> None:
    body = FEW | {"name": "few", "model_config": {"layers": 2}, "dataset_ref": "corpus@1.2.0", "resources": {"gpus": 2, "gpu_type": "cpu"}}
    answer = world.client.post(RUNS, headers=world.token(), json=body)
    assert answer.status_code == 202, answer.text
    event = world.bus.of(JobSubmitted)[-1]
    assert answer.json()["run_id"] == event.job_id and answer.headers["Location"] == f"{RUNS}/{event.job_id}"
    assert (event.spec.user, event.spec.project, event.spec.gang.ranks) == ("ana", "vision", 2)
    assert (event.spec.hyperparameters, event.spec.data.dataset) == ({"model.layers": 2}, "corpus@1.2.0")
    world.submit(event.job_id, "vision")
    found = world.client.get(answer.headers["Location"], headers=world.token())
    assert found.status_code == 200 and found.json()["state"] == "RUNNING"
    assert found.json() == world.client.get(f"{JOBS}/{event.job_id}", headers=world.token()).json()


def test_a_job_in_few_words_and_one_by_its_spec_are_taken_at_one_address(world: World) -> None:
    headers = world.token() | {"Idempotency-Key": "few-1"}
    few = FEW | {"name": "few", "resources": {"gpus": 2}, "checkpointPolicy": {"everySteps": 100}}
    answers = [world.client.post(JOBS, headers=headers, json=few) for _ in range(2)]
    assert [each.status_code for each in answers] == [202, 202]
    assert answers[0].json()["job_id"] == answers[1].json()["job_id"]
    spec = world.bus.of(JobSubmitted)[-1].spec
    whole = {"name": "few", "project": "vision", "gang": 2, "runtime": {"command": FEW["command"]}, "checkpoint": {"every_steps": 100}}
    answer = world.client.post(JOBS, headers=world.token(), json={"spec": whole})
    assert answer.status_code == 202 and world.bus.of(JobSubmitted)[-1].spec == spec


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (JOBS, FEW | {"resources": {"gpus": 0}}, 422, "body.resources.gpus"),
        (JOBS, {"spec": SPEC | {"gang": -1}}, 422, "body.spec.gang"),
        (JOBS, {}, 422, "body.spec: Field required"),
        (JOBS, FEW | {"spec": SPEC}, 422, "body.command"),
        (RUNS, {}, 422, "body.command"),
        (RUNS, FEW | {"project": "hidden"}, 403, "no rights in project hidden"),
        (RUNS, FEW | {"code_ref": "here"}, 422, "ADDRESS@sha256:HASH"),
        (f"{RUNS}/{JOB}/checkpoints/15/restore", None, 404, "checkpoint of step 15"),
        (f"{RUNS}/not-there-1/checkpoints/10/restore", None, 404, "not-there-1"),
        ("/hpo/studies", {"name": "n"}, 422, "body.spec"),
    ],
)
def test_what_is_refused_is_said_with_its_place(world: World, path: str, body: object, status: int, words: str) -> None:
    answer = world.client.post(path, headers=world.token(), json=body)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


@pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("submitter", 202)])
def test_who_may_only_look_begins_nothing(world: World, role: str, status: int) -> None:
    assert world.client.post(RUNS, headers=world.token(role=role), json=FEW).status_code == status
    assert world.client.post(RUNS, json=FEW).status_code == 401
    assert world.client.get(f"{RUNS}/{JOB}", headers=world.token(projects=["speech"])).status_code == 404
    assert world.client.get(f"{RUNS}/{JOB}/metrics", headers=world.token(projects=["speech"])).status_code == 404


def test_a_document_of_a_job_has_its_state_its_last_metrics_and_its_checkpoints(world: World) -> None:
    found = world.client.get(f"{JOBS}/{JOB}", headers=world.token()).json()
    assert (found["state"], found["metrics"]["loss"]["step"]) == ("RUNNING", 2)
    assert found["metrics"]["loss"]["value"] == pytest.approx(1 / 3)
    [second, first] = found["checkpoints"]
    assert (second["step"], second["commit"], second["object_ref"], second["metrics"]) == (20, 2, "s3://c/2", {"loss": 0.5})
    assert (first["step"], first["metrics"]) == (10, {})


def test_a_run_begins_anew_from_a_checkpoint(world: World) -> None:
    answer = world.client.post(f"{RUNS}/{JOB}/checkpoints/20/restore", headers=world.token())
    assert answer.status_code == 202, answer.text
    event = world.bus.of(JobSubmitted)[-1]
    assert event.spec.resume_from == f"{JOB}@2" and answer.json()["run_id"] == event.job_id != JOB


def test_a_study_is_begun_at_its_short_address(world: World, tuner: StudyBook) -> None:
    job = {key: value for key, value in STUDY["job"].items() if key != "user"}
    answer = world.client.post("/hpo/studies", headers=world.token(), json={"name": "s", "project": "vision", "spec": STUDY | {"job": job}})
    assert answer.status_code == 201, answer.text
    assert [type(event) for event in tuner.asked] == [StudyCreated]


def test_metrics_come_from_the_beginning_and_then_live(world: World) -> None:
    settings = GatewaySettings.model_validate({"key": KEY.decode(), "stream_poll_s": 0.1})
    steps: list[int] = []
    with (
        served(world, settings) as url,
        httpx.stream("GET", f"{url}{RUNS}/{JOB}/metrics", headers=world.token(), timeout=120) as answer,
    ):
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        for line in answer.iter_lines():
            name = line.removeprefix("event: ") if line.startswith("event: ") else name
            if line.startswith("data: ") and name == "metrics":
                before = len(steps)
                steps += [point["step"] for point in json.loads(line.removeprefix("data: "))["points"]]
                if before == 0:
                    world.points(JOB, range(3, 5), start=30)
            if len(steps) >= 5:
                break
    assert steps == [0, 1, 2, 3, 4]


def test_views_in_other_services_words(world: World) -> None:
    of_job = f"SELECT * FROM training_jobs WHERE job_id = '{JOB}'"
    [row] = world.tables.ask(of_job, {})
    assert (row["status"], row["devices"], row["resource_shape"], row["project"]) == ("RUNNING", 0, "", "vision"), (
        "its spec is not known yet"
    )
    spec = JobSubmitted.model_validate({"job_id": JOB, "spec": SPECS}).spec.model_dump_json(exclude_none=True)
    world.tables.insert("job_specs_rows", {"job_id": JOB, "json": spec})
    [row] = world.tables.ask(of_job, {})
    assert (row["code_ref"], row["data_snapshot"], row["resource_shape"]) == ("s3://code/gpt.tar", "corpus@1.2.0", "8xH100")
    rows = world.tables.ask(f"SELECT step, object_ref, metrics, created_at FROM checkpoints WHERE job_id = '{JOB}' ORDER BY step", {})
    ranks = {"job_id": JOB, "node_id": "n1", "device_id": "gpu-0", "fact": "placed"}
    for epoch, rank in ((1, 0), (2, 0), (2, 1)):
        world.tables.insert("rank_facts", ranks | {"epoch": epoch, "attempt": epoch - 1, "rank": rank})
    workers = world.tables.ask(f"SELECT rank, host, state, last_heartbeat, epoch FROM workers WHERE job_id = '{JOB}' ORDER BY rank", {})
    assert [tuple(row.values()) for row in workers] == [(0, "n1", "PLACED", None, 2), (1, "n1", "PLACED", None, 2)], "of the newest attempt"
    assert [(row["step"], row["object_ref"], row["metrics"]) for row in rows] == [(10, "s3://c/1", {}), (20, "s3://c/2", {"loss": 0.5})]
