"""Searches as SQL: whatever a caller says is bound, and whose projects count is always a condition."""

from __future__ import annotations

import json
import re

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.errors import ProblemError, SqlUnavailableError
from trainhouse.gateway.mlflow import errors, schemas
from trainhouse.gateway.mlflow.bodies import OfRun
from trainhouse.gateway.mlflow.errors import MlflowError, MlflowRoute, answer
from trainhouse.gateway.mlflow.filter_language import EXPERIMENTS, LOGGED_MODELS, RUNS, parse_filter, parse_orders
from trainhouse.gateway.mlflow.search import experiments_query, models_query, paged, read_token, runs_query, token_of

ADA = Principal("ada", (Role.VIEWER,), ("vision",))
ALL = Principal("root", (Role.ADMIN,), ("*",))
EVIL = "x`; DROP TABLE jobs --"


def test_what_a_caller_says_is_bound() -> None:
    conditions = parse_filter(f"metrics.\"{EVIL}\" < 1 and params.\"{EVIL}\" = '{EVIL}' and tags.a LIKE '{EVIL}'", RUNS)
    sql, query = runs_query(ALL, ["1"], "ALL", conditions, parse_orders([f'metrics."{EVIL}" DESC'], RUNS))
    assert "DROP" not in sql and sum(v == EVIL for v in query.values.values()) == 5
    assert set(re.findall(r"\{(\w+):", sql)) == set(query.values)


def test_logged_models_are_searched_by_bound_values_in_a_callers_projects() -> None:
    conditions = parse_filter(f"params.\"{EVIL}\" = '{EVIL}' and tags.a IS NULL and status = 'READY'", LOGGED_MODELS)
    sql, query = models_query(ADA, ["1"], conditions, parse_orders(["creation_timestamp ASC"], LOGGED_MODELS))
    assert "DROP" not in sql and "NOT deleted" in sql and query.values["v0"] == ["vision"]
    assert set(re.findall(r"\{(\w+):", sql)) == set(query.values)
    assert sql.endswith("ORDER BY toUnixTimestamp64Milli(created_at) ASC, created_at DESC, model_id")
    with pytest.raises(MlflowError, match="nothing to compare"):
        parse_filter("metrics.loss < 1", LOGGED_MODELS)
    with pytest.raises(MlflowError, match="ordered by their attributes"):
        models_query(ADA, ["1"], [], parse_orders(["params.a ASC"], LOGGED_MODELS))


@pytest.mark.parametrize("view", ["ACTIVE_ONLY", "DELETED_ONLY", "ALL"])
def test_only_a_callers_projects_count(view: str) -> None:
    for sql, query in (runs_query(ADA, ["1"], view, [], []), experiments_query(ADA, view, [], [])):
        assert "project IN {v0:Array(String)}" in sql and query.values["v0"] == ["vision"]
    assert "project IN" not in runs_query(ALL, ["1"], view, [], [])[0].partition("WHERE")[2]


def test_a_backslash_is_no_escape() -> None:
    _, query = experiments_query(ALL, "ALL", parse_filter(r"name LIKE '50\%'", EXPERIMENTS), [])
    assert r"50\\%" in query.values.values()


def test_pages_follow_each_other() -> None:
    sql, query = runs_query(ALL, ["1"], "ALL", [], [])
    text, values, begin = paged(sql, query, 10, token_of(20))
    assert begin == 20 and list(values.values())[-2:] == [11, 20] and text.endswith("}")
    for bad in ("x", "LTU=", "MTIzNDU2Nzg5MDEyMzQ1Njc4OTA=", "ww=="):
        with pytest.raises(MlflowError):
            read_token(bad)


def test_a_run_in_mlflows_words() -> None:
    row = {"job_id": "r", "experiment_id": "7", "name": "n", "user": "u", "state": "CANCELLED", "deleted": 1, "start_ms": 1, "end_ms": None}
    whole = schemas.run(
        row, metrics=[{"metric": "m", "value": "nan", "time_ms": 2, "step": 3}], tags=[{"key": "mlflow.user", "value": "v"}]
    )
    assert whole["info"]["status"] == "KILLED" and whole["info"]["lifecycle_stage"] == "deleted" and "end_time" not in whole["info"]
    assert whole["data"]["metrics"] == [{"key": "m", "value": "NaN", "timestamp": 2, "step": 3}]
    assert {t["key"]: t["value"] for t in whole["data"]["tags"]} == {"mlflow.runName": "n", "mlflow.user": "v"}


def test_a_change_leaves_the_rest_of_a_run_as_it_was() -> None:
    row = {"job_id": "r", "experiment_id": "7", "name": "n", "user": "u", "state": "SUCCEEDED", "deleted": 0, "start_ms": 1, "end_ms": 9}
    renamed = schemas.run_info(schemas.updated(row, None, None, "m"))
    assert (renamed["run_name"], renamed["status"], renamed["end_time"]) == ("m", "FINISHED", 9)
    again = schemas.run_info(schemas.updated(row, schemas.STATE["RUNNING"], None, None))
    assert (again["run_name"], again["status"], "end_time" in again) == ("n", "RUNNING", False)
    assert schemas.run_info(schemas.updated(row, schemas.STATE["FAILED"], 12, None))["end_time"] == 12


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.missing("run r"), 404, "RESOURCE_DOES_NOT_EXIST"),
        (errors.invalid("no"), 400, "INVALID_PARAMETER_VALUE"),
        (errors.unsupported("no"), 501, "NOT_IMPLEMENTED"),
        (ProblemError(401, "Unauthorized", "who"), 401, "UNAUTHENTICATED"),
        (ProblemError(403, "Forbidden", "no"), 403, "PERMISSION_DENIED"),
        (ProblemError(413, "Too large", "no"), 413, "INVALID_PARAMETER_VALUE"),
        (SqlUnavailableError("away"), 503, "TEMPORARILY_UNAVAILABLE"),
        (RuntimeError("secret inside"), 500, "INTERNAL_ERROR"),
    ],
)
def test_every_error_has_mlflows_form(error: Exception, status: int, code: str) -> None:
    shown = answer(error, "/p")
    body = json.loads(shown.body)
    assert (shown.status_code, body["error_code"]) == (status, code) and "secret" not in body["message"]


def test_a_body_that_is_not_valid_is_told_in_mlflows_form() -> None:
    router = APIRouter(route_class=MlflowRoute)

    @router.post("/x")
    def x(body: OfRun) -> dict[str, str]:
        return {"run": body.run_id}

    app = FastAPI()
    app.include_router(router)
    with TestClient(app) as client:
        assert client.post("/x", json={"run_uuid": "r"}).json() == {"run": "r"}
        for bad in ({}, {"run_id": "../etc"}, {"run_id": 5}, [], "x"):
            refused = client.post("/x", json=bad)
            assert refused.status_code == 400 and refused.json()["error_code"] == "INVALID_PARAMETER_VALUE"
        assert client.post("/x", content=b"{", headers={"content-type": "application/json"}).status_code == 400
