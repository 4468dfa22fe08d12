"""Tags, chosen columns, importance, environments and code of runs, by the gateway's app over the real engine."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.gateway_world import NOW_MS, SPEC, World
from trainhouse.events import StepMetrics
from trainhouse.events.model.job import JobAdmitted
from trainhouse.events.model.tracking import EnvironmentCaptured, ParametersLogged, TagsChanged, TrackedRunBegun
from trainhouse.events.wire import topics
from trainhouse.gateway.runs.tag_routes import NOTE

JOBS = "/v1/training-jobs"
RUNS = tuple(f"run-{n}" for n in range(6))


@pytest.fixture(scope="module")
def world(gateway_world: World) -> World:
    """Six runs of one name with another learning rate each, one of which logs it as a parameter too; and another project's."""
    for n, run in enumerate(RUNS):
        of(gateway_world, run, "vision", lr=10.0**-n)
        logged(gateway_world, run, loss=float(n), broken=float("nan"))
    gateway_world.tables.put(topics.TRACKING, [ParametersLogged(job_id=RUNS[0], parameters={"lr": "1.0"}, at_ms=NOW_MS)], NOW_MS)
    of(gateway_world, "speech-1", "speech", lr=7.0)
    logged(gateway_world, "speech-1", loss=77.0)
    tell(gateway_world, "speech-1", {"paper": "secret"})
    return gateway_world


def of(world: World, job_id: str, project: str, code: str = "", **hyperparameters: Any) -> None:
    """A job with hyperparameters, and the code of this hash."""
    world.submit(job_id, project, state="SUCCEEDED")
    spec = SPEC | {"project": project, "user": "ana", "hyperparameters": hyperparameters}
    spec |= {"code": {"uri": f"s3://x/code/{code}.tar.gz", "sha256": code}} if code else {}
    about = {"job_id": job_id, "spec_sha256": "ab" * 32, "submission_id": job_id, "submitted_at_ms": NOW_MS}
    world.tables.put(topics.CONTROL, [JobAdmitted.model_validate(about | {"spec": spec})], NOW_MS)


def logged(world: World, job_id: str, **metrics: float) -> None:
    about = {"job_id": job_id, "attempt": 0, "epoch": 1, "rank": 0, "node_id": "n1", "start": 0, "end": 10}
    values = {"steps": (1,), "times_ms": (NOW_MS,), "offsets": (0,), "metrics": {name: (value,) for name, value in metrics.items()}}
    world.tables.put(topics.METRICS, [StepMetrics.model_validate(about | values)], NOW_MS)


def tell(world: World, job_id: str, tags: dict[str, str], deleted: tuple[str, ...] = (), at_ms: int = NOW_MS) -> None:
    world.tables.put(topics.TRACKING, [TagsChanged(job_id=job_id, tags=tags, deleted=deleted, at_ms=at_ms)], at_ms)


def chosen(*runs: str) -> str:
    return "&".join(f"job={run}" for run in runs)


def test_runs_are_named_by_what_differs_and_a_parameter_appears_once(world: World) -> None:
    found = world.client.get(f"/v1/compare?{chosen(*RUNS[:2])}", headers=world.token()).json()
    assert found["names"] == {RUNS[0]: "gpt lr=1.0", RUNS[1]: "gpt lr=0.1"}
    assert found["parameters"] == [{"path": "lr", "values": {RUNS[0]: 1.0, RUNS[1]: 0.1}}]
    assert [line["path"] for line in found["config"] if line["path"].endswith("lr")] == ["hyperparameters.lr"]


def test_importance_is_judged_from_five_runs_on(world: World) -> None:
    found = world.client.get(f"/v1/compare/importance?metric=loss&{chosen(*RUNS)}", headers=world.token()).json()
    assert found["items"] == [{"parameter": "lr", "correlation": -1.0, "runs": 6}] and found["runs"] == 6
    few = world.client.get(f"/v1/compare/importance?metric=loss&{chosen(*RUNS[:3])}", headers=world.token()).json()
    assert (few["items"], few["runs"], few["least_runs"]) == ([], 3, 5)
    assert world.client.get(f"/v1/compare/importance?metric=broken&{chosen(*RUNS)}", headers=world.token()).json()["items"] == []
    assert world.client.get(f"/v1/compare/importance?metric=loss&of=mean&{chosen(*RUNS)}", headers=world.token()).status_code == 422


@pytest.mark.parametrize("path", ["", "/importance", "/environments", "/code"])
def test_no_comparison_shows_another_projects_job(world: World, path: str) -> None:
    more = f"&metric=loss&left={RUNS[0]}&right=speech-1"
    answer = world.client.get(f"/v1/compare{path}?{chosen(RUNS[0], 'speech-1')}{more}", headers=world.token())
    assert answer.status_code == 404 and "7.0" not in answer.text, answer.text
    too_many = world.client.get(f"/v1/compare{path}?{chosen(*[f'j{n}' for n in range(101)])}", headers=world.token())
    assert too_many.status_code == 422


def test_environments_differ_line_by_line(world: World) -> None:
    for run, torch, packages in ((RUNS[0], "2.1", {"numpy": "1", "tqdm": "4"}), (RUNS[1], "2.2", {"numpy": "2", "tqdm": "4"})):
        event = EnvironmentCaptured(
            job_id=run, attempt=0, epoch=1, rank=0, torch_version=torch, python_version="3.11", packages=packages, at_ms=NOW_MS
        )
        world.tables.put(topics.ENVIRONMENTS, [event], NOW_MS)
    found = world.client.get(f"/v1/compare/environments?{chosen(*RUNS[:3])}", headers=world.token()).json()
    assert found["items"] == [
        {"path": "packages.numpy", "values": {RUNS[0]: "1", RUNS[1]: "2"}},
        {"path": "torch_version", "values": {RUNS[0]: "2.1", RUNS[1]: "2.2"}},
    ]
    assert sorted(found["known"]) == [RUNS[0], RUNS[1]]


def archive(text: str) -> bytes:
    made, content = io.BytesIO(), text.encode()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        info = tarfile.TarInfo("train.py")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


def test_code_is_compared_where_it_lies_in_the_store(world: World) -> None:
    objects = MemoryObjectStore()
    world.client.app.state.code_store = objects  # type: ignore[attr-defined]
    hashes = ["1" * 64, "2" * 64, "3" * 64, "4" * 64]
    for n, sha256 in enumerate(hashes):
        of(world, f"coded-{n}", "vision", sha256)
    objects.put(f"code/{hashes[0]}.tar.gz", archive("lr = 1\n"))
    objects.put(f"code/{hashes[1]}.tar.gz", archive("lr = 2\n"))
    objects.put(f"code/{hashes[3]}.tar.gz", b"no archive")

    def compared(left: str, right: str) -> Any:
        return world.client.get(f"/v1/compare/code?left={left}&right={right}", headers=world.token())

    (file,) = compared("coded-0", "coded-1").json()["files"]
    assert file["path"] == "train.py" and "-lr = 1\n+lr = 2" in file["diff"]
    assert compared("coded-0", "coded-0").json()["same"] is True
    assert compared("coded-0", "coded-2").status_code == 409 and "not in the object store" in compared("coded-0", "coded-2").text
    assert compared("coded-3", "coded-1").status_code == 409 and "damaged" in compared("coded-3", "coded-1").text
    without = compared("coded-0", RUNS[0]).json()
    assert (without["files"], without["right"]["sha256"], without["same"]) == ([], "", False)


def test_columns_are_parameters_and_metrics_with_last_and_best(world: World) -> None:
    names = world.client.get("/v1/runs/columns", headers=world.token()).json()
    assert {"name": "lr", "jobs": 6} in names["parameters"] and {"name": "loss", "jobs": 6} in names["metrics"]
    path = "/v1/runs/values?parameter=lr&parameter=absent&metric=loss&metric=broken"
    found = world.client.get(path, headers=world.token()).json()
    assert found["parameters"]["absent"] == {} and found["parameters"]["lr"] == {run: 10.0**-n for n, run in enumerate(RUNS)}
    assert found["metrics"]["loss"][RUNS[2]] == [2.0, 2.0, 2.0] and "speech-1" not in str(found)
    assert found["metrics"]["broken"][RUNS[0]] == [None, None, None]
    assert "speech-1" in world.client.get(path, headers=world.admin()).json()["metrics"]["loss"]
    assert world.client.get("/v1/runs/values", headers=world.token()).json() == {"parameters": {}, "metrics": {}}


def test_a_tag_is_an_event_of_tracking_and_lists_filter_by_it(world: World) -> None:
    path = f"{JOBS}/{RUNS[3]}/tags"
    long = "k" * 200
    answer = world.client.post(path, headers=world.token(), json={"set": {"paper": "a=b", long: "x", NOTE: "good\nrun"}, "remove": ["old"]})
    assert answer.status_code == 202 and answer.json()["job_id"] == RUNS[3], answer.text
    (sent,) = world.bus.of(TagsChanged)
    assert (sent.tags["paper"], sent.tags[NOTE], sent.deleted) == ("a=b", "good\nrun", ("old",))
    world.tables.put(topics.TRACKING, [sent], NOW_MS)
    tell(world, RUNS[3], {"mlflow.user": "ana", "old": "1"}, at_ms=NOW_MS + 1)
    tell(world, RUNS[3], {}, ("old",), at_ms=NOW_MS + 2)
    shown = {tag["key"]: tag["value"] for tag in world.client.get(path, headers=world.token()).json()["items"]}
    assert shown == {"paper": "a=b", long: "x", NOTE: "good\nrun", "mlflow.user": "ana"}
    listed = world.client.get("/v1/runs/tags", headers=world.token()).json()["items"]
    assert {(tag["job_id"], tag["key"]) for tag in listed} == {(RUNS[3], "paper"), (RUNS[3], long), (RUNS[3], NOTE)}
    assert "secret" in world.client.get("/v1/runs/tags", headers=world.admin()).text
    for tag, jobs in (("paper=a=b", [RUNS[3]]), ("paper", [RUNS[3]]), ("paper=b", []), ("' OR 1", [])):
        found = world.client.get(JOBS, params={"tag": tag}, headers=world.token()).json()["items"]
        assert [job["job_id"] for job in found] == jobs, tag


def test_a_tracked_run_is_tagged_as_a_job_is(world: World) -> None:
    begun = TrackedRunBegun(
        job_id="tracked-1", experiment_id="1", experiment="vision", project="vision", name="notebook", started_at_ms=NOW_MS
    )
    world.tables.put(topics.TRACKING, [begun], NOW_MS)
    assert world.client.post(f"{JOBS}/tracked-1/tags", headers=world.token(), json={"set": {"kind": "mine"}}).status_code == 202
    tell(world, "tracked-1", {"kind": "mine"})
    found = world.client.get(JOBS, params={"tag": "kind=mine"}, headers=world.token()).json()["items"]
    assert [job["job_id"] for job in found] == ["tracked-1"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"set": {}, "remove": []},
        {"set": {"a": "1"}, "remove": ["a"]},
        {"set": {"": "1"}},
        {"set": {"k" * 251: "1"}},
        {"set": {"a\nb": "1"}},
        {"set": {"a": "v" * 8001}},
        {"set": {"a": 1}},
        {"set": {str(n): "" for n in range(101)}},
        {"tags": {"a": "1"}},
    ],
)
def test_bad_tags_are_refused(world: World, body: dict[str, Any]) -> None:
    before = len(world.bus.of(TagsChanged))
    assert world.client.post(f"{JOBS}/{RUNS[0]}/tags", headers=world.token(), json=body).status_code == 422
    assert len(world.bus.of(TagsChanged)) == before


def test_who_may_not_write_sets_no_tag(world: World) -> None:
    body = {"set": {"a": "1"}}
    assert world.client.post(f"{JOBS}/{RUNS[0]}/tags", headers=world.token(role="viewer"), json=body).status_code == 403
    assert world.client.post(f"{JOBS}/speech-1/tags", headers=world.token(), json=body).status_code == 404
    assert world.client.get(f"{JOBS}/speech-1/tags", headers=world.token()).status_code == 404
