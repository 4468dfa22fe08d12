"""Attacks on links to one run: other jobs, other routes, writes, links that ended, and cookies that pass for something else."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from tests.support.gateway_world import KEY, NOW_MS, World, world_in
from trainhouse.events import AccessGranted, ProjectApplied, RequestAccepted, TokenIssued, TokenRevoked
from trainhouse.events.wire import topics
from trainhouse.gateway.auth import run_links, sealed, sessions, tokens
from trainhouse.gateway.auth.authentication import COOKIE, PAGE_HEADER
from trainhouse.gateway.auth.keyring import id_of
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.errors import InvalidTokenError

PAGE = {PAGE_HEADER: "1"}
RUN = "shared-1"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("world"), url="https://train.example") as made:
        made.submit(RUN, "vision")
        made.submit("beside-1", "vision")
        made.submit("foreign-1", "speech")
        made.points(RUN, range(3))
        made.log(RUN, ["of the run"])
        yield made


@pytest.fixture(autouse=True)
def no_cookie(world: World) -> Iterator[None]:
    world.client.cookies.clear()
    yield
    world.client.cookies.clear()


def made(world: World, job_id: str = RUN, headers: dict[str, str] | None = None, **body: Any) -> Any:
    return world.client.post(f"/v1/training-jobs/{job_id}/links", json=body, headers=headers or world.token())


def text(world: World, **more: Any) -> str:
    """A link as its reader gets it."""
    answer = made(world, **more)
    assert answer.status_code == 201, answer.text
    address, _, link = answer.json()["url"].partition("#")
    assert address == "https://train.example/shared"
    return unquote(link)


def opened(world: World, link: str) -> Any:
    return world.client.post("/v1/link-session", json={"link": link})


def test_a_link_opens_its_run_and_says_whose_it_is(world: World) -> None:
    answer = opened(world, text(world, days=2))
    assert answer.status_code == 200, answer.text
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert {name: answer.json()[name] for name in ("sub", "roles", "projects", "run")} == {
        "sub": "ana",
        "roles": ["viewer"],
        "projects": ["vision"],
        "run": RUN,
    }
    assert world.client.get("/v1/whoami").json()["run"] == RUN
    assert world.client.get(f"/v1/training-jobs/{RUN}").json()["job_id"] == RUN
    for part in ("logs", "attempts", "ranks", "metrics", "config", "checkpoints", "timeline", "gpu-seconds", "step-heatmap", "artifacts"):
        assert world.client.get(f"/v1/training-jobs/{RUN}/{part}").status_code == 200, part
    assert world.client.get(f"/v1/training-jobs/{RUN}/curves", params={"metric": "loss"}).json()["items"][0]["points"] == 3


def test_no_other_route_and_no_other_run_is_open_whichever_there_are(world: World) -> None:
    opened(world, text(world))
    tried = 0
    for pattern, methods in world.client.get("/openapi.json").json()["paths"].items():
        if pattern in ("/v1/session", "/v1/link-session"):
            continue
        for method, job_id in itertools.product(methods, ("beside-1", "foreign-1", RUN)):
            if method == "get" and (pattern == "/v1/whoami" or (pattern in run_links.RUN_ROUTES and job_id == RUN)):
                continue
            path = re.sub(
                r"{\w+}", "1", pattern.replace("{job_id}", job_id).replace("{place}", f"{job_id}/x").replace("{sha256}", "a" * 64)
            )
            asked = {"id": f"job:{job_id}", "job": job_id, "run_id": job_id}
            answer = world.client.request(method.upper(), path, headers=PAGE, params=asked)
            tried += 1
            assert answer.status_code == 403, (method, path, answer.status_code, answer.text[:200])
    assert tried > 200


def test_streams_of_other_runs_and_of_the_fleet_are_closed(world: World) -> None:
    opened(world, text(world))
    for path in ("/v1/stream", "/v1/training-jobs/beside-1/stream", "/v1/training-jobs/foreign-1/stream"):
        assert world.client.get(path).status_code == 403, path


def test_a_link_writes_nothing_and_makes_no_other_link(world: World) -> None:
    opened(world, text(world))
    sent = len(world.bus.of(TokenIssued))
    for method, path in (
        ("POST", "cancel"),
        ("POST", "links"),
        ("POST", "profiles"),
        ("DELETE", "links/link-" + "a" * 16 + "-" + "b" * 24),
    ):
        assert world.client.request(method, f"/v1/training-jobs/{RUN}/{path}", json={}, headers=PAGE).status_code == 403, path
    assert world.client.post("/v1/login-codes", headers=PAGE).status_code == 403
    assert len(world.bus.of(TokenIssued)) == sent


def test_the_link_itself_is_no_token_no_cookie_and_no_code(world: World) -> None:
    link = text(world)
    at = f"/v1/training-jobs/{RUN}"
    assert world.client.get(at, headers={"Authorization": f"Bearer {link}"}).status_code == 401
    for cookie in (link, run_links.MARK + link):
        world.client.cookies.clear()
        world.client.cookies.set(COOKIE, cookie)
        assert world.client.get(at).status_code == 401
    assert world.client.get("/login", params={"code": link}).status_code == 401
    world.client.cookies.clear()
    opened(world, link)
    cookie = str(world.client.cookies[COOKIE])
    with pytest.raises(InvalidTokenError):
        sessions.read(KEY, cookie, int(time.time()))
    with pytest.raises(InvalidTokenError):
        sessions.read(KEY, cookie.removeprefix(run_links.MARK), int(time.time()))
    world.client.cookies.clear()
    assert opened(world, cookie.removeprefix(run_links.MARK)).status_code == 401
    token = tokens.issue(KEY, "ana", ["viewer"], ["vision"], now_s=int(time.time()))
    assert opened(world, token).status_code == 401


def test_a_link_that_was_changed_or_made_by_another_key_opens_nothing(world: World) -> None:
    link = text(world)
    assert opened(world, link[:-8] + "AAAAAAA=").status_code == 401
    forged = run_links.link_to(Principal("root", (Role.ADMIN,), ("*",)), "foreign-1", "speech", int(time.time()) + 1000)
    assert opened(world, run_links.text_of(b"x" * 64, forged)).status_code == 401
    assert opened(world, "").status_code == 422 and opened(world, "x" * 9000).status_code == 422


def test_an_expired_link_and_a_session_of_one_are_refused(world: World) -> None:
    ana = Principal("ana", (Role.SUBMITTER,), ("vision",), "t1", key_id=id_of(KEY))
    past = run_links.link_to(ana, RUN, "vision", int(time.time()) - 1)
    answer = opened(world, run_links.text_of(KEY, past))
    assert answer.status_code == 401 and "has expired" in answer.json()["detail"]
    session = run_links.session_of(past, int(time.time()), 1000)
    world.client.cookies.set(COOKIE, run_links.cookie_of(KEY, session))
    assert world.client.get(f"/v1/training-jobs/{RUN}").status_code == 401


def test_a_revoked_link_ends_its_sessions_and_opens_no_more(world: World) -> None:
    answer = made(world)
    link, link_id = unquote(answer.json()["url"].partition("#")[2]), answer.json()["link_id"]
    opened(world, link)
    assert world.client.get(f"/v1/training-jobs/{RUN}").status_code == 200
    guest = str(world.client.cookies[COOKIE])
    world.client.cookies.clear()
    at = f"/v1/training-jobs/{RUN}/links/{link_id}"
    assert world.client.delete(at, headers=world.token("ben")).status_code == 403, "not his run"
    assert world.client.delete(at, headers=world.token("dora", projects=["speech"])).status_code == 404
    assert world.client.delete(at.replace(RUN, "beside-1"), headers=world.token()).status_code == 404, "a link of another run"
    assert world.client.delete(at, headers=world.token()).status_code == 204
    world.client.cookies.set(COOKIE, guest)
    refused = world.client.get(f"/v1/training-jobs/{RUN}")
    assert refused.status_code == 401 and "revoked" in refused.json()["detail"]
    assert opened(world, link).status_code == 401
    assert [e.by for e in world.bus.of(TokenRevoked) if e.token_id == link_id] == ["ana"]


def test_a_link_ends_with_the_token_that_made_it(world: World) -> None:
    opened(world, text(world, headers=world.token(token_id="stolen")))
    assert world.client.get("/v1/whoami").status_code == 200
    world.gateway.revocations.add("stolen")
    assert world.client.get("/v1/whoami").status_code == 401


def test_a_link_lives_no_longer_than_its_makers_token_or_session(world: World) -> None:
    now_s = int(time.time())
    token = tokens.issue(KEY, "ana", ["submitter"], ["vision"], now_s=now_s, expires_s=now_s + 600)
    answer = made(world, headers={"Authorization": f"Bearer {token}"}, days=2)
    assert answer.status_code == 201 and answer.json()["expires_s"] == now_s + 600
    for expires_s, until_s in ((None, now_s + 9000), (now_s + 60, now_s + 60), (now_s + 90_000, now_s + 9000)):
        ana = Principal("ana", (Role.SUBMITTER,), ("vision",), "t1", expires_s, key_id=id_of(KEY))
        assert run_links.link_to(ana, RUN, "vision", now_s + 9000).until_s == until_s


def test_a_link_ends_with_its_makers_membership(world: World) -> None:
    world.submit("members-1", "closed")
    rule = {"name": "closed", "members": {"ana": "submitter"}}
    world.gateway.projects.put(ProjectApplied.model_validate({"project": rule, "version": 1, "applied_at_ms": NOW_MS}))
    link = text(world, job_id="members-1", headers=world.token(projects=["closed"]))
    opened(world, link)
    assert world.client.get("/v1/training-jobs/members-1").status_code == 200
    rule = {"name": "closed", "members": {"ben": "submitter"}}
    world.gateway.projects.put(ProjectApplied.model_validate({"project": rule, "version": 2, "applied_at_ms": NOW_MS}))
    assert world.client.get("/v1/training-jobs/members-1").status_code == 403
    assert opened(world, link).status_code == 403


def test_links_are_made_by_those_who_answer_for_the_run(world: World) -> None:
    assert made(world, headers=world.token("ben")).status_code == 403, "a submitter of the project whose run it is not"
    assert made(world, headers=world.token(role="viewer")).status_code == 403
    assert made(world, "foreign-1").status_code == 404 and made(world, "never-was").status_code == 404
    assert made(world, headers=world.admin()).status_code == 201
    assert made(world, days=31).status_code == 422 and made(world, days=0).status_code == 422
    rule = {"name": "team", "members": {"ana": "submitter"}}
    world.submit("team-1", "team")
    world.gateway.projects.put(ProjectApplied.model_validate({"project": rule, "version": 1, "applied_at_ms": NOW_MS}))
    refused = made(world, "team-1", headers=world.admin())
    assert refused.status_code == 403 and "member" in refused.json()["detail"], "a link of who is no member would open nothing"


def test_links_are_listed_without_what_opens_them_and_their_use_is_audited(world: World) -> None:
    answer = made(world)
    link_id, link = answer.json()["link_id"], unquote(answer.json()["url"].partition("#")[2])
    [issued] = [e for e in world.bus.of(TokenIssued) if e.token_id == link_id]
    assert (issued.job_id, issued.sub, issued.roles, issued.projects) == (RUN, "ana", ("viewer",), ("vision",))
    assert [e.target for e in world.bus.of(RequestAccepted)][-1] == f"link {link_id} to {RUN}"
    world.tables.put(topics.TOKENS, [issued], NOW_MS)
    listed = world.client.get(f"/v1/training-jobs/{RUN}/links", headers=world.token())
    assert [row["link_id"] for row in listed.json()["items"]] == [link_id] and link not in listed.text
    assert world.client.get("/v1/training-jobs/beside-1/links", headers=world.token()).json()["items"] == []
    opened(world, link)
    world.client.get(f"/v1/training-jobs/{RUN}/config")
    world.gateway.audit.turn(NOW_MS + 10_000_000)
    granted = [e for e in world.bus.of(AccessGranted) if e.token_id == link_id]
    assert {e.access for e in granted} == {"session", "read"}
    assert any(f"a link to job {RUN} made by ana" in e.reason for e in granted)
    assert link not in "".join(e.model_dump_json() for _, _, e in world.bus.sent)


def test_a_gateway_may_open_no_links_at_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    link = text(world)
    monkeypatch.setattr(world.gateway, "settings", world.gateway.settings.model_copy(update={"run_link_days": 0}))
    assert made(world).status_code == 422 and opened(world, link).status_code == 401


def test_a_sealed_link_fits_into_a_cookie_at_its_longest() -> None:
    ana = Principal("a" * 128, (Role.SUBMITTER,), ("p" * 128,), "t" * 128, key_id="k" * 16)
    link = run_links.link_to(ana, "j" * 128, "p" * 128, 2_000_000_000)
    assert len(run_links.cookie_of(KEY, run_links.session_of(link, 1_900_000_000, 1000))) < sessions.MAX_COOKIE_CHARS < sealed.MAX_CHARS
