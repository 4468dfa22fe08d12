"""Logs of Optuna's storages over HTTP, and Optuna over them: rights, refusals, repeats, and trials as rows of runs."""

from __future__ import annotations

import os
import pickle
import time
from collections import defaultdict
from typing import Any

import optuna
import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.gateway_world import NOW_MS, World
from trainhouse.checkpointing.errors import ObjectStoreUnavailableError
from trainhouse.checkpointing.stores.object_store import Body
from trainhouse.client import optuna_storage
from trainhouse.client.errors import AccessDeniedError, ClientError, InvalidSettingsError, NotReachableError
from trainhouse.client.gateway.optuna_journal import GatewayJournal
from trainhouse.events import AccessGranted
from trainhouse.events.model.project import ProjectApplied
from trainhouse.events.wire import topics
from trainhouse.gateway.optuna import log_routes, open_logs
from trainhouse.gateway.optuna.trial_runs import run_id_of

optuna.logging.set_verbosity(optuna.logging.ERROR)
PLACE = "/v1/optuna/vision/search/logs"
LINE = '{"op_code":1,"worker_id":"w","study_id":0}'


class Cut(MemoryObjectStore):
    """A store that is away while `is_away`."""

    is_away = False

    def put_if_absent(self, key: str, body: Body) -> bool:
        if self.is_away:
            raise ObjectStoreUnavailableError("away")
        return super().put_if_absent(key, body)


@pytest.fixture
def objects(gateway_world: World) -> Cut:
    state, stored = gateway_world.client.app.state, Cut()  # type: ignore[attr-defined]
    state.code_store = stored
    if hasattr(state, "optuna_logs"):
        del state.optuna_logs
    return stored


def append(world: World, *lines: str, key: str = "1", headers: dict[str, str] | None = None, place: str = PLACE) -> Any:
    headers = world.token() if headers is None else headers
    return world.client.post(place, json={"lines": lines or (LINE,)}, headers=headers | {"Idempotency-Key": key})


def read(world: World, first: int = 0, headers: dict[str, str] | None = None, place: str = PLACE) -> Any:
    return world.client.get(place, params={"from": first}, headers=world.token() if headers is None else headers)


def test_appends_are_read_in_order_and_a_repeat_is_one(gateway_world: World, objects: Cut) -> None:
    assert read(gateway_world).json() == {"lines": [], "next": 0, "head": 0}
    assert append(gateway_world, LINE, LINE).json() == {"first": 0, "count": 2}
    assert append(gateway_world, LINE, key="2").json() == {"first": 2, "count": 1}
    assert append(gateway_world, LINE, LINE).json() == {"first": 0, "count": 2}
    assert read(gateway_world, 1).json() == {"lines": [LINE, LINE], "next": 3, "head": 3}
    reused = append(gateway_world, LINE)
    assert reused.status_code == 422 and "use a new key" in reused.json()["detail"]
    behind = read(gateway_world, 4)
    assert behind.status_code == 422 and "has 3 lines" in behind.json()["detail"]
    other = gateway_world.token("bob")
    assert append(gateway_world, LINE, headers=other).json() == {"first": 3, "count": 1}, "keys are each sender's own"


def test_a_read_takes_pages(gateway_world: World, objects: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_routes, "PAGE_BYTES", 2 * len(LINE))
    append(gateway_world, *[LINE] * 5)
    assert [read(gateway_world, first).json()["next"] for first in (0, 2, 4, 5)] == [2, 4, 5, 5]
    assert len(list(journal_of(gateway_world, monkeypatch).read_logs(0))) == 5


def test_rights_are_those_of_the_project(gateway_world: World, objects: Cut) -> None:
    world = gateway_world
    assert append(world, headers={}).status_code == read(world, headers={}).status_code == 401
    viewer = world.token("eve", "viewer")
    refused = append(world, headers=viewer)
    assert refused.status_code == 403 and "needs the role submitter" in refused.json()["detail"]
    assert read(world, headers=viewer).status_code == 200
    stranger = world.token("sam", projects=("speech",))
    assert append(world, headers=stranger).status_code == read(world, headers=stranger).status_code == 404
    about = {"name": "vision", "members": {"ana": "submitter", "vera": "viewer"}}
    world.gateway.projects.put(ProjectApplied.model_validate({"project": about, "version": 1, "user": "ops", "applied_at_ms": NOW_MS}))
    reads_only = append(world, headers=world.token("vera"))
    assert reads_only.status_code == 403 and "may read project vision" in reads_only.json()["detail"]
    assert not list(objects.list(""))
    append(world)
    world.gateway.audit.close(10 * NOW_MS)
    granted = [each for each in world.bus.of(AccessGranted) if each.target == "vision/search" and each.sub == "ana"]
    assert {each.access for each in granted} >= {"track"}


@pytest.mark.parametrize(
    ("place", "status"),
    [
        ("/v1/optuna/vision/a/b/logs", 404), ("/v1/optuna/vision/a%2Fb/logs", 404), ("/v1/optuna/vision/../search/logs", 404),
        ("/v1/optuna/vision/.hidden/logs", 422), ("/v1/optuna/vision/" + "x" * 129 + "/logs", 422),
        ("/v1/optuna/vis%2Fion/search/logs", 404),
    ],
)  # fmt: skip
def test_a_name_that_is_none_is_refused(gateway_world: World, objects: Cut, place: str, status: int) -> None:
    admin = gateway_world.admin()
    assert (append(gateway_world, headers=admin, place=place).status_code, read(gateway_world, headers=admin, place=place).status_code) in (
        (status, status),
        (405, status),
    )
    assert not list(objects.list(""))


def test_junk_is_refused_whole_with_its_line(gateway_world: World, objects: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    junk = append(gateway_world, LINE, "no JSON")
    assert junk.status_code == 422 and junk.json()["detail"].startswith("lines.1: it is no operation of Optuna's journal: it is no JSON")
    headers = gateway_world.token() | {"Idempotency-Key": "k"}
    long = LINE[:-1] + ',"more":"' + "x" * 262_144 + '"}'
    bodies: list[Any] = [
        {},
        {"lines": []},
        {"lines": [LINE] * 1001},
        {"lines": [long]},
        {"lines": [long[:200_000] + '"}'] * 6},
        {"lines": [3]},
        [],
    ]
    for body in bodies:
        assert gateway_world.client.post(PLACE, json=body, headers=headers).status_code == 422
    assert gateway_world.client.post(PLACE, json={"lines": [LINE]}, headers=gateway_world.token()).status_code == 422, "without a key"
    large = gateway_world.client.post(PLACE, json={"lines": ["x" * 3_000_000]}, headers=headers)
    assert large.status_code == 413
    assert read(gateway_world).json()["head"] == 0 and not list(objects.list(""))
    monkeypatch.setattr(log_routes, "MOST_LOG_BYTES", 100)
    assert append(gateway_world, *[LINE] * 3).status_code == 200
    full = append(gateway_world, key="2")
    assert full.status_code == 422 and "go on in a storage of another name" in full.json()["detail"]


def test_a_full_project_appends_nothing(gateway_world: World, objects: Cut) -> None:
    about = {"name": "full", "members": {"ana": "submitter"}, "limits": {"storage_gib": 1.0}}
    gateway_world.gateway.projects.put(
        ProjectApplied.model_validate({"project": about, "version": 1, "user": "ops", "applied_at_ms": NOW_MS})
    )
    storage = gateway_world.gateway.storage
    storage._bytes, storage._read_s = {"full": 2**31}, time.monotonic() + 1e6
    refused = append(gateway_world, headers=gateway_world.token(projects=("full",)), place="/v1/optuna/full/search/logs")
    storage._read_s = float("-inf")
    assert refused.status_code == 429 and not list(objects.list(""))


def test_logs_count_towards_their_projects_storage(gateway_world: World, objects: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"name": "small", "members": {"ana": "submitter"}, "limits": {"storage_gib": 1e-6}}
    gateway_world.gateway.projects.put(
        ProjectApplied.model_validate({"project": about, "version": 1, "user": "ops", "applied_at_ms": NOW_MS})
    )
    monkeypatch.setattr(open_logs, "LISTED_S", 0.0)
    ana, place = gateway_world.token(projects=("small",)), "/v1/optuna/small/search/logs"
    assert append(gateway_world, *[LINE] * 30, headers=ana, place=place).status_code == 200
    full = append(gateway_world, key="2", headers=ana, place=place)
    assert full.status_code == 429 and "are of logs of Optuna's storages" in full.json()["detail"]
    assert read(gateway_world, headers=ana, place=place).json()["head"] == 30


def test_a_store_that_is_away_is_said_so_and_the_same_append_counts_once_later(gateway_world: World, objects: Cut) -> None:
    objects.is_away = True
    assert append(gateway_world).status_code == 503
    objects.is_away = False
    assert [append(gateway_world).json()["first"] for _ in range(2)] == [0, 0]
    for stat in objects.list("optuna/"):
        objects.put(stat.key, b"junk")
    del gateway_world.client.app.state.optuna_logs  # type: ignore[attr-defined]
    damaged = read(gateway_world)
    assert damaged.status_code == 422 and "no segment of a log" in damaged.json()["detail"]


def journal_of(world: World, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str] | None = None, **more: Any) -> GatewayJournal:
    """A client's backend whose requests go to the app in this process."""
    monkeypatch.setitem(world.client.headers, "Authorization", (headers or world.token())["Authorization"])
    monkeypatch.setattr(GatewayJournal, "_http", lambda self: world.client)
    return GatewayJournal("http://gateway", "token", more.get("project", "vision"), more.get("name", "search"), more.get("patience_s", 5.0))


@pytest.fixture
def optuna_to(gateway_world: World, objects: Cut, monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda **more: journal_of(gateway_world, monkeypatch, **more)


def test_finished_trials_are_rows_of_tracked_runs(gateway_world: World, optuna_to: Any) -> None:
    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        trial.report(x, 3)
        if trial.number == 1:
            raise optuna.TrialPruned
        if trial.number == 2:
            raise ValueError("broken")
        return x

    storage = optuna.storages.JournalStorage(optuna_to(name="runs"))
    study = optuna.create_study(storage=storage, study_name="first")
    study.optimize(objective, n_trials=3, catch=ValueError)
    running = study.ask()
    running.suggest_float("x", 0, 1)
    sent = defaultdict(list)
    for topic, _, event in gateway_world.bus.sent:
        if topic in (topics.TRACKED_METRICS, topics.TRACKING) and getattr(event, "job_id", "optuna-").startswith("optuna-"):
            sent[topic].append(event)
    for topic in (topics.TRACKED_METRICS, topics.TRACKING):
        gateway_world.tables.put(topic, sent[topic], NOW_MS)
    ids = [run_id_of("vision", "runs", number) for number in range(3)]

    def rows(sql: str) -> list[tuple[Any, ...]]:
        body = {"query": sql.format(ids=", ".join(f"'{each}'" for each in ids))}
        answer = gateway_world.client.post("/v1/query", json=body, headers=gateway_world.admin())
        assert answer.status_code == 200, answer.text
        return [tuple(row) for row in answer.json()["data"]]

    jobs = rows("SELECT name, project, state, source FROM jobs WHERE job_id IN ({ids}) ORDER BY name")
    assert jobs == [(f"trial {n}", "vision", state, "tracked") for n, state in enumerate(("SUCCEEDED", "CANCELLED", "FAILED"))]
    values = [trial.params["x"] for trial in study.trials]
    logged = rows("SELECT job_id, key, value FROM parameters WHERE job_id IN ({ids})")
    assert sorted(logged) == sorted((ids[n], "x", str(values[n])) for n in range(3))
    points = rows("SELECT job_id, metric, step, value FROM step_metrics WHERE job_id IN ({ids})")
    reported = [(ids[n], "intermediate_value", 3, values[n]) for n in range(3)]
    assert sorted(points) == sorted([*reported, *((ids[n], "value", 3, values[n]) for n in (0, 1))])
    assert rows("SELECT name, project FROM experiments WHERE name = 'vision/first'") == [("vision/first", "vision")]


def test_optuna_over_two_processes_of_a_client_and_a_pickle(gateway_world: World, optuna_to: Any) -> None:
    backend = optuna_to(name="shared")
    study = optuna.create_study(storage=optuna.storages.JournalStorage(backend), study_name="first")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    again = optuna.load_study(storage=optuna.storages.JournalStorage(pickle.loads(pickle.dumps(backend))), study_name="first")
    assert again.trials == study.trials
    with pytest.raises(optuna.exceptions.DuplicatedStudyError):
        optuna.create_study(storage=optuna.storages.JournalStorage(backend), study_name="first")
    again.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    assert [trial.number for trial in study.trials] == [0, 1, 2, 3]


def test_a_client_says_what_is_wrong_and_tries_on_only_where_that_helps(
    gateway_world: World, objects: Cut, optuna_to: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ({"name": "a/b"}, {"name": ""}, {"project": "a/b"}, {"project": ""}):
        with pytest.raises(InvalidSettingsError):
            optuna_to(**wrong)
    with pytest.raises(AccessDeniedError, match="needs the role submitter"):
        optuna_to(headers=gateway_world.token(role="viewer")).append_logs([{"op_code": 1}])
    with pytest.raises(ClientError, match="no operation of Optuna's journal"):
        optuna_to().append_logs([{"op_code": 1}])
    objects.is_away = True
    with pytest.raises(NotReachableError, match="object store does not answer"):
        optuna_to(patience_s=0.5).append_logs([{"op_code": 1, "worker_id": "w", "study_id": 0}])
    monkeypatch.delenv("TRAINHOUSE_GATEWAY_URL", raising=False)
    monkeypatch.setenv("TRAINHOUSE_CONFIG", os.devnull)
    with pytest.raises(InvalidSettingsError, match="TRAINHOUSE_GATEWAY_URL"):
        optuna_storage()
