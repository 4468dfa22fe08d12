"""Accesses that must be on record: every route, allowed or refused, SQL with its text, and what happens when the audit cannot be told."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.routing import BaseRoute, Mount

from tests.support.gateway_world import NOW_MS, World, world_in
from trainhouse.events import AccessEnded, AccessGranted, AccessRefused, AuditLost, CancelJob, Event, ProjectApplied, RequestAccepted
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.runtime.counts import WINDOW_MS
from trainhouse.events.wire.topics import AUDIT
from trainhouse.gateway.audit.accesses import COUNTED, NAMED, PUBLIC, Access, class_of
from trainhouse.gateway.bus import Sent

JOBS = "/v1/training-jobs"


class NoBrokers:
    """Of MLflow's reads: the brokers do not say how far they are."""

    async def reached(self, *_: str) -> None:
        raise BusUnavailableError("the brokers did not answer")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("world")) as made:
        made.submit("own-1", "vision")
        made.log("own-1", ["a", "b"])
        made.client.app.state.freshness = NoBrokers()  # type: ignore[attr-defined]
        yield made


@pytest.fixture
def told(world: World) -> Callable[[type[Event]], list[Any]]:
    """What the audit was told of since the test began, also of what was counted."""
    world.gateway.audit.close(10 * NOW_MS)
    began = len(world.bus.sent)

    def of(kind: type[Event]) -> list[Any]:
        world.gateway.audit.close(10 * NOW_MS)
        return [event for topic, _, event in world.bus.sent[began:] if topic == AUDIT and isinstance(event, kind)]

    return of


TICKETED = frozenset({"/v1/tunnels/{tunnel_id}", "/v1/tunnels/{tunnel_id}/node"})
"""WebSockets that a ticket opens once, or a node's signature: the request that made the ticket is on record."""


def served(routes: list[BaseRoute]) -> Iterator[tuple[str, str]]:
    """Method and pattern of every route of the app."""
    for route in routes:
        if hasattr(route, "effective_candidates"):
            yield from served(route.effective_candidates())
            continue
        if isinstance(route, Mount):
            yield "GET", route.path
            continue
        if getattr(getattr(route, "original_route", route), "path", "") in TICKETED:
            continue
        assert getattr(route, "methods", None) and getattr(route, "path", ""), f"{route} is of a kind that is not asked below"
        for method in getattr(route, "methods", None) or ():
            yield method, str(getattr(route, "path", ""))


def every_route(world: World) -> list[tuple[str, str]]:
    return sorted(set(served(world.client.app.routes)))  # type: ignore[attr-defined]


def test_what_is_public_is_known_by_name(world: World) -> None:
    """A new route is in none of these; whoever adds one here says so to this test."""
    public = {path for _, path in every_route(world) if path in PUBLIC}
    pages = {
        "/",
        "/jobs",
        "/jobs/{job_id}",
        "/compare",
        "/nodes",
        "/nodes/{node_id}",
        "/datasets",
        "/datasets/{name}",
        "/models",
        "/models/{name}",
        "/studies",
        "/studies/{name}",
        "/utilization",
        "/sql",
        "/reports",
        "/reports/{project}/{name}",
        "/shared",
    }
    assert public == pages | {"/static", "/healthz", "/metrics", "/openapi.json"}
    named = set(NAMED)
    assert named <= set(every_route(world)), "each that has a class of its own is a route"
    assert class_of("GET", "/v1/new") is Access.READ and class_of("POST", "/v1/new") is Access.WRITE


def test_no_route_is_served_unseen(world: World, told: Callable[[type[Event]], list[Any]]) -> None:
    """Each is asked as an admin and as somebody without a token, with nothing sensible in it: whatever it answers is on record."""
    asked = [
        (method, path) for method, path in every_route(world) if path not in PUBLIC and method != "HEAD" and not path.endswith("stream")
    ]
    assert len(asked) > 60
    before: dict[str, int] = {}
    for headers in (world.admin(), {}):
        for method, path in asked:
            world.client.request(method, re.sub(r"{[^}]+}", "own-1", path), headers=headers, json={} if method != "GET" else None)
            world.client.cookies.clear()
    world.gateway.audit.close(10 * NOW_MS)
    for event in (*told(AccessGranted), *told(AccessRefused)):
        before[event.action] = before.get(event.action, 0) + event.count
    for method, path in asked:
        # The catch-all routes of MLflow's API take what others are named for.
        assert before.get(f"{method} {path}", 0) >= 1 or "{path:path}" in path, (method, path)


def test_a_read_says_who_what_from_where_and_why(world: World, told: Callable[[type[Event]], list[Any]]) -> None:
    assert world.client.get(f"{JOBS}/own-1/logs", headers=world.token("ana", token_id="t-read")).status_code == 200
    [event] = told(AccessGranted)
    assert (event.sub, event.token_id, event.access, event.target) == ("ana", "t-read", "read", "own-1")
    assert event.action == f"GET {JOBS}/{{job_id}}/logs" and event.address == "testclient" and event.size_bytes > 0
    assert event.reason == "needs viewer; a token with submitter in vision"


def test_a_comparison_and_a_lineage_name_what_was_looked_at(world: World, told: Callable[[type[Event]], list[Any]]) -> None:
    held = world.token("ana")
    world.client.get("/v1/compare?job=own-1&job=own-2", headers=held)
    world.client.get("/v1/compare/curves?job=own-1&metric=loss", headers=held)
    world.client.get("/v1/lineage?id=job:own-1", headers=held)
    targets = {(e.action.split()[-1], e.target) for kind in (AccessGranted, AccessRefused) for e in told(kind)}
    assert targets == {("/v1/compare", "own-1,own-2"), ("/v1/compare/curves", "own-1"), ("/v1/lineage", "job:own-1")}


MLFLOW = "/api/2.0/mlflow"
BODIES: list[tuple[str, dict[str, Any], str]] = [
    ("runs/log-metric", {"run_id": "run-7", "key": "loss", "value": 1.0, "timestamp": 1}, "run-7"),
    ("runs/log-batch", {"run_id": "run-7", "metrics": []}, "run-7"),
    ("runs/set-tag", {"run_uuid": "run-7", "key": "a", "value": "b"}, "run-7"),
    ("runs/update", {"run_id": "run-7", "status": "FINISHED"}, "run-7"),
    ("runs/delete", {"run_id": "run-7"}, "run-7"),
    ("runs/create", {"experiment_id": "12", "start_time": 1}, "12"),
    ("runs/search", {"experiment_ids": ["12", "13"]}, "12,13"),
    ("experiments/delete", {"experiment_id": "12"}, "12"),
]


@pytest.mark.parametrize(("route", "body", "target"), BODIES)
@pytest.mark.parametrize("role", ["submitter", "viewer"])
def test_a_body_of_mlflow_names_its_run_or_experiment(
    world: World, told: Callable[[type[Event]], list[Any]], route: str, body: dict[str, Any], target: str, role: str
) -> None:
    world.client.post(f"{MLFLOW}/{route}", headers=world.token("ana", role), json=body)
    events = [e for kind in (AccessGranted, AccessRefused) for e in told(kind) if e.action == f"POST {MLFLOW}/{route}"]
    assert events and {e.target for e in events} == {target}


def test_who_becomes_a_member_and_who_is_none_any_more_is_named(world: World, told: Callable[[type[Event]], list[Any]]) -> None:
    about = {"project": {"name": "chess", "members": {"bo": "viewer"}}, "version": 1, "user": "ops", "applied_at_ms": NOW_MS}
    world.gateway.projects.put(ProjectApplied.model_validate(about))
    members = "/v1/projects/chess/members"
    assert world.client.put(f"{members}/eve", headers=world.admin(), json={"role": "submitter"}).status_code == 202
    assert world.client.delete(f"{members}/bo", headers=world.admin()).status_code == 202
    assert [e.target for e in told(AccessGranted)] == ["chess/eve", "chess/bo"]
    accepted = told(RequestAccepted)
    assert [e.target for e in accepted] == ["chess: members +eve (submitter)", "chess: members -bo"]
    assert {e.project for e in accepted} == {"chess"}


def test_a_page_that_asks_each_second_is_few_events_and_every_request_is_counted(
    world: World, told: Callable[[type[Event]], list[Any]]
) -> None:
    headers = world.token("dash", token_id="t-dash")
    began_s = time.monotonic()
    for _ in range(50):
        world.client.get(f"{JOBS}/own-1", headers=headers)
    for _ in range(7):
        world.client.get(f"{JOBS}/none-1", headers=headers)
    granted = [e for e in told(AccessGranted) if e.sub == "dash"]
    refused = [e for e in told(AccessRefused) if e.sub == "dash"]
    windows = 2 + int((time.monotonic() - began_s) * 1000 / WINDOW_MS)
    assert len(granted) <= 4 * windows and sum(e.count for e in granted) == 50
    assert len(refused) <= 2 * windows and sum(e.count for e in refused) == 7


def test_sql_is_told_with_its_text_before_it_runs_and_with_its_cost_after(world: World, told: Callable[[type[Event]], list[Any]]) -> None:
    body = {"query": "SELECT number FROM numbers(5) WHERE number < {n:UInt8}", "parameters": {"n": "3"}}
    answer = world.client.post("/v1/query", json=body, headers=world.admin())
    assert answer.status_code == 200
    [granted], [ended] = told(AccessGranted), told(AccessEnded)
    assert granted.access == "sql" and body["query"] in granted.text and '"n":"3"' in granted.text
    assert ended.access_id == granted.access_id and (ended.rows, ended.size_bytes, ended.status) == (3, len(answer.content), 200)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_sql_in_another_encoding_is_told_with_its_text_as_well(
    world: World, told: Callable[[type[Event]], list[Any]], encoding: str
) -> None:
    headers = world.admin() | {"Content-Type": "application/json"}
    answer = world.client.post("/v1/query", content='{"query": "SELECT 41 + 1"}'.encode(encoding), headers=headers)
    [granted] = told(AccessGranted)
    assert answer.status_code != 200 or "SELECT 41 + 1" in granted.text


def test_a_statement_behind_a_long_comment_is_told(world: World, told: Callable[[type[Event]], list[Any]]) -> None:
    world.client.post("/v1/query", json={"query": f"/*{'x' * 70_000}*/ SELECT 41 + 1"}, headers=world.admin())
    [granted] = told(AccessGranted)
    assert granted.text.startswith("/*xxx") and "SELECT 41 + 1" in granted.text


def test_sql_that_is_refused_is_told_with_its_text_too(world: World, told: Callable[[type[Event]], list[Any]]) -> None:
    text = "SELECT * FROM file('/etc/passwd')"
    assert world.client.post("/v1/query", json={"query": text}, headers=world.admin()).status_code == 403
    [granted], [ended], [refused] = told(AccessGranted), told(AccessEnded), told(AccessRefused)
    assert granted.text == text and ended.status == 403 and refused.reason
    long = "SELECT " + "1 + " * 30_000 + "1"
    world.client.post("/v1/query", json={"query": long}, headers=world.admin())
    [cut] = [e for e in told(AccessGranted) if e.text_sha256]
    assert len(cut.text) == 64 * 1024


@pytest.mark.parametrize("table", ["audit", "`audit`", '"audit_rows"', "default.audit", "AUDIT", "(SELECT * FROM audit_rows)"])
def test_the_audit_is_for_admins_also_in_sql(world: World, table: str) -> None:
    body = {"query": f"SELECT count() FROM {table}"}
    assert world.client.post("/v1/query", json=body, headers=world.token("vic", "viewer", ["*"])).status_code in (400, 403)
    if table == "audit":
        assert world.client.post("/v1/query", json=body, headers=world.admin()).status_code == 200


def test_a_write_is_told_before_it_and_as_what_it_became(world: World, told: Callable[[type[Event]], list[Any]]) -> None:
    assert world.client.post(f"{JOBS}/own-1/cancel", headers=world.token("ana")).status_code == 202
    [granted], [accepted] = told(AccessGranted), told(RequestAccepted)
    assert (granted.access, granted.target, granted.sub) == ("write", "own-1", "ana") and accepted.target == "own-1"
    places = [topic for topic, _, event in world.bus.sent if topic == AUDIT or isinstance(event, CancelJob)]
    assert places[-3:] == [AUDIT, "trainhouse.jobs", AUDIT]


def test_a_role_that_is_missing_is_a_refusal_and_nothing_else(world: World, told: Callable[[type[Event]], list[Any]]) -> None:
    assert world.client.post(f"{JOBS}/own-1/cancel", headers=world.token("vic", "viewer")).status_code == 403
    assert not told(AccessGranted)
    [refused] = told(AccessRefused)
    assert (refused.status, refused.sub) == (403, "vic") and "role submitter" in refused.reason


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Content-Length": "2", "Transfer-Encoding": "chunked"}])
def test_what_never_came_to_a_route_is_told_too(world: World, told: Callable[[type[Event]], list[Any]], headers: dict[str, str]) -> None:
    status = world.client.get(JOBS, headers=headers).status_code
    assert status in (400, 421)
    [refused] = told(AccessRefused)
    assert refused.status == status and refused.reason


def test_no_event_holds_a_token_or_a_session(world: World, told: Callable[[type[Event]], list[Any]]) -> None:
    headers = world.token("ana")
    token = headers["Authorization"].removeprefix("Bearer ")
    world.client.post("/v1/session", json={"token": token})
    cookie = world.client.cookies["trainhouse_session"]
    world.client.get(JOBS)
    world.client.get(f"{JOBS}/{token}")
    world.client.cookies.clear()
    events = [event.model_dump_json() for event in told(Event)]
    assert len(events) >= 3
    assert not [e for e in events if cookie in e]
    assert not [e for e in events if token.split(".")[2] in e]


# -- the audit cannot be told


class Away:
    """A bus whose brokers take nothing of the audit."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.audited = False

    async def send(self, topic: str, event: Event, event_id: str, *, key: str | None = None) -> Sent:
        if topic == AUDIT and not self.audited:
            raise BusUnavailableError(f"{topic}: Kafka did not take the event")
        return await self.world.bus.send(topic, event, event_id, key=key)

    def send_nowait(
        self, topic: str, event: Event, event_id: str, *, key: str | None = None, on_done: Callable[[bool], None] = lambda taken: None
    ) -> None:
        if self.audited:
            self.world.bus.send_nowait(topic, event, event_id, key=key, on_done=on_done)
        else:
            on_done(False)

    def close(self) -> None:
        pass


@pytest.fixture(params=["required", "preferred"])
def cut_off(request: pytest.FixtureRequest, world: World) -> Iterator[tuple[str, World, Away]]:
    """A gateway of the same world whose audit has no brokers, and room for 20 events."""
    from starlette.testclient import TestClient

    from trainhouse.gateway.app import make_app
    from trainhouse.gateway.context import Gateway
    from trainhouse.gateway.live.hub import Hub
    from trainhouse.gateway.queries.sql_reader import SqlReader
    from trainhouse.projections.settings import ClickHouseSettings

    settings = world.gateway.settings.model_copy(update={"audit": request.param, "audit_waiting": 20})
    away = Away(world)
    gateway = Gateway(settings, world.gateway.keys, SqlReader(ClickHouseSettings(url=world.tables.url)), away, Hub(5, 16))  # type: ignore[arg-type]
    gateway.revocations.complete()
    gateway.projects = world.gateway.projects
    with TestClient(make_app(gateway), base_url="http://gateway", raise_server_exceptions=False) as client:
        yield request.param, World(world.tables, gateway, world.bus, client), away


def test_writes_and_sql_wait_for_their_record_or_go_on_as_the_operator_chose(cut_off: tuple[str, World, Away]) -> None:
    mode, world, _ = cut_off
    before = len(world.bus.of(CancelJob))
    write = world.client.post(f"{JOBS}/own-1/cancel", headers=world.token())
    sql = world.client.post("/v1/query", json={"query": "SELECT 1"}, headers=world.admin())
    if mode == "required":
        for answer in (write, sql):
            assert answer.status_code == 503 and "audit" in answer.json()["detail"] and answer.headers["retry-after"]
        assert len(world.bus.of(CancelJob)) == before
    else:
        assert (write.status_code, sql.status_code) == (202, 200)
        assert len(world.bus.of(CancelJob)) == before + 1


def test_reads_are_kept_up_to_a_bound_and_none_goes_uncounted(cut_off: tuple[str, World, Away]) -> None:
    mode, world, away = cut_off
    began = len(world.bus.sent)
    found = [world.client.get(f"{JOBS}/own-1", headers=world.token(f"user-{n}")).status_code for n in range(50)]
    assert found[:15] == [200] * 15
    log = world.gateway.audit.log
    if mode == "required":
        assert found[-1] == 503 and 503 not in found[:18]
        assert world.client.get("/healthz").status_code == 200
    else:
        assert set(found) == {200} and log.lost >= 25
        assert f"trainhouse_gateway_audit_lost {float(log.lost)}" in world.client.get("/metrics").text
    away.audited = True
    world.gateway.audit.turn(10 * NOW_MS)
    assert log.waiting == 0
    told = [event for _, _, event in world.bus.sent[began:]]
    lost = sum(event.count for event in told if isinstance(event, AuditLost))
    granted = sum(event.count for event in told if isinstance(event, AccessGranted))
    assert granted + (0 if mode == "required" else lost) == found.count(200)
    assert world.client.get(f"{JOBS}/own-1", headers=world.token("late")).status_code == 200


def test_classes_are_told_as_they_must_be() -> None:
    assert class_of("POST", "/v1/query") not in COUNTED and class_of("POST", "/api/2.0/mlflow/runs/log-batch") is Access.TRACK
