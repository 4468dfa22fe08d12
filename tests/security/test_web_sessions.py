"""Attacks on the pages' sessions and on the codes that make them, at the app over the real engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.gateway_world import KEY, NOW_MS, World, world_in
from trainhouse.events import AccessRefused, TokenRevoked
from trainhouse.events.model.tracking import ExperimentChanged
from trainhouse.events.wire import topics
from trainhouse.gateway.auth import login_codes, sessions, tokens
from trainhouse.gateway.auth.authentication import COOKIE, PAGE_HEADER
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.context import Gateway
from trainhouse.gateway.errors import ProblemError
from trainhouse.gateway.live.hub import Hub

PAGE = {PAGE_HEADER: "1"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("world")) as made:
        yield made


@pytest.fixture(autouse=True)
def no_cookie(world: World) -> Iterator[None]:
    world.client.cookies.clear()
    yield
    world.client.cookies.clear()


def bearer(headers: dict[str, str]) -> str:
    return headers["Authorization"].removeprefix("Bearer ")


def signed_in(world: World, **more: Any) -> str:
    """Signs in by a token; the cookie."""
    answer = world.client.post("/v1/session", json={"token": bearer(world.token(**more))})
    assert answer.status_code == 200, answer.text
    return str(world.client.cookies[COOKIE])


def code(world: World, **more: Any) -> str:
    answer = world.client.post("/v1/login-codes", headers=world.token(**more))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["code"])


def login(world: World, text: str, to: str = "/jobs") -> Any:
    return world.client.get("/login", params={"code": text, "to": to}, follow_redirects=False)


# -- the cookie


def test_the_cookie_is_not_the_token_and_says_nothing(world: World) -> None:
    cookie = signed_in(world, sub="ana", token_id="tok-cookie")
    assert "ana" not in cookie and "." not in cookie
    world.client.cookies.clear()
    assert world.client.get("/v1/whoami", headers={"Authorization": f"Bearer {cookie}"}).status_code == 401


def test_a_token_is_no_cookie(world: World) -> None:
    world.client.cookies.set(COOKIE, bearer(world.token()))
    assert world.client.get("/v1/whoami").status_code == 401


def test_every_gateway_with_the_key_takes_a_session(world: World) -> None:
    cookie = signed_in(world, sub="ana")
    assert sessions.read(KEY, cookie, int(time.time())).sub == "ana"
    with pytest.raises(sessions.InvalidTokenError):
        sessions.read(b"another key, as long as it must be", cookie, int(time.time()))


@pytest.mark.parametrize("at", [0, 9, 40, -2])
def test_a_changed_cookie_is_none(world: World, at: int) -> None:
    cookie = list(signed_in(world))
    cookie[at] = "A" if cookie[at] != "A" else "B"
    world.client.cookies.clear()
    world.client.cookies.set(COOKIE, "".join(cookie))
    assert world.client.get("/v1/whoami").status_code == 401


def test_a_session_ends_with_its_token(world: World) -> None:
    signed_in(world, token_id="tok-ends")
    assert world.client.get("/v1/whoami").status_code == 200
    world.gateway.revocations.add("tok-ends")
    assert world.client.get("/v1/whoami").status_code == 401


def test_signing_out_ends_the_session_also_for_who_kept_the_cookie(world: World) -> None:
    cookie = signed_in(world)
    assert world.client.delete("/v1/session", headers=PAGE).status_code == 204
    world.client.cookies.clear()
    world.client.cookies.set(COOKIE, cookie)
    assert world.client.get("/v1/whoami").status_code == 401
    assert [e for e in world.bus.of(TokenRevoked) if e.reason == "signed out"], "other gateways are told"


def test_signing_out_counts_also_for_who_has_asked_too_often(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = signed_in(world)
    with monkeypatch.context() as patched:
        patched.setattr("trainhouse.gateway.auth.authentication.count", _too_many)
        assert world.client.delete("/v1/session").status_code == 403, "another site may have sent it"
        assert world.client.delete("/v1/session", headers=PAGE).status_code == 204
    world.client.cookies.clear()
    world.client.cookies.set(COOKIE, cookie)
    assert world.client.get("/v1/whoami").status_code == 401


def _too_many(*_: object) -> None:
    raise ProblemError(429, "Too many requests", "later")


def test_a_session_ends_by_its_time_and_never_outlives_its_token() -> None:
    principal = Principal("ana", (Role.VIEWER,), ("vision",), "t", expires_s=1000)
    assert sessions.session_of(principal, 900, 3600).until_s == 1000
    cookie = sessions.cookie_of(KEY, sessions.session_of(principal, 900, 50))
    with pytest.raises(sessions.InvalidTokenError, match="expired"):
        sessions.read(KEY, cookie, 951)


def test_a_revoked_token_makes_no_session(world: World) -> None:
    world.gateway.revocations.add("tok-dead")
    answer = world.client.post("/v1/session", json={"token": bearer(world.token(token_id="tok-dead"))})
    assert answer.status_code == 401 and "set-cookie" not in answer.headers


def test_a_token_of_too_many_projects_is_told_so(world: World) -> None:
    projects = [f"{n * 7919 % 100003}-{n}" * 8 for n in range(200)]
    answer = world.client.post("/v1/session", json={"token": tokens.issue(KEY, "x", ["viewer"], projects, now_s=int(time.time()))})
    assert answer.status_code in (401, 422) and "set-cookie" not in answer.headers


# -- codes


def test_a_code_signs_in_once(world: World) -> None:
    made = code(world, sub="ana")
    first = login(world, made)
    assert first.status_code == 200 and 'url=/jobs"' in first.text
    told = first.headers["set-cookie"]
    assert "HttpOnly" in told and "SameSite=strict" in told and made not in told
    assert first.headers["cache-control"] == "no-store" and first.headers["referrer-policy"] == "no-referrer"
    assert world.client.get("/v1/whoami").json()["sub"] == "ana"
    world.client.cookies.clear()
    again = login(world, made)
    assert again.status_code == 401 and "set-cookie" not in again.headers
    refused = world.bus.of(AccessRefused)[-1]
    assert (refused.status, refused.sub) == (401, "ana") and made not in refused.model_dump_json()


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example", "/\\evil.example", '/"><script>', "/a//b", "javascript:alert(1)", "jobs"]
)
def test_a_code_leads_to_no_other_place(world: World, to: str) -> None:
    made = code(world)
    answer = login(world, made, to)
    assert answer.status_code == 400 and "set-cookie" not in answer.headers
    assert login(world, made).status_code == 200, "it was not used up"


def test_a_code_counts_for_a_minute_and_for_its_machine() -> None:
    session = sessions.session_of(Principal("ana", (Role.VIEWER,), ("vision",), "t"), 900, 3600)
    made = login_codes.issue(KEY, session, "127.0.0.1", 1000, 60)
    assert login_codes.read(KEY, made, "::1", 1060).session.sub == "ana"
    with pytest.raises(login_codes.InvalidTokenError, match="expired"):
        login_codes.read(KEY, made, "127.0.0.1", 1061)
    with pytest.raises(login_codes.InvalidTokenError, match="another address"):
        login_codes.read(KEY, made, "10.0.0.7", 1001)


def test_a_code_is_no_session_and_a_session_no_code(world: World) -> None:
    made = code(world)
    world.client.cookies.set(COOKIE, made)
    assert world.client.get("/v1/whoami").status_code == 401
    world.client.cookies.clear()
    cookie = signed_in(world)
    assert login(world, cookie).status_code == 401


def test_a_session_makes_no_code_and_nobody_else_does(world: World) -> None:
    assert world.client.post("/v1/login-codes").status_code == 401
    signed_in(world)
    assert world.client.post("/v1/login-codes", headers=PAGE).status_code == 403


def test_a_code_of_a_token_that_was_revoked_meanwhile_is_none(world: World) -> None:
    made = code(world, token_id="tok-late")
    world.gateway.revocations.add("tok-late")
    assert login(world, made).status_code == 401


def test_of_two_gateways_one_lets_a_code_in(world: World) -> None:
    """The first record that names it on the topic wins; each gateway reads that topic."""
    import asyncio

    class Log:
        """What both gateways read, in its order."""

        def __init__(self) -> None:
            self.readers: list[Gateway] = []

        async def send(self, topic: str, event: Any, event_id: str, *, key: str | None = None) -> None:
            for reader in self.readers:
                reader.revocations.add(event.token_id, event_id)

    log = Log()
    for _ in range(2):
        own = Gateway(world.gateway.settings, world.gateway.keys, world.gateway.reader, log, Hub(5, 16), kafka=object())  # type: ignore[arg-type]
        log.readers.append(own)
    session = sessions.session_of(Principal("ana", (Role.VIEWER,), ("vision",), "t"), int(time.time()), 3600)
    found = login_codes.read(KEY, login_codes.issue(KEY, session, "::1", int(time.time()), 60), "::1", int(time.time()))

    async def both() -> list[Any]:
        return await asyncio.gather(*(login_codes.use(reader, found) for reader in log.readers), return_exceptions=True)

    results = asyncio.run(both())
    assert sorted(result is None for result in results) == [False, True], results


# -- who claims to be whom


def test_mlflows_user_is_whom_the_token_names(world: World) -> None:
    made = ExperimentChanged(experiment_id="7", name="vision/e", project="vision", created=True, at_ms=1)
    world.tables.put(topics.TRACKING, [made], NOW_MS)
    asked = {"experiment_id": "7", "user_id": "root", "tags": [{"key": "mlflow.user", "value": "boss"}], "start_time": 1}
    answer = world.client.post("/api/2.0/mlflow/runs/create", json=asked, headers=world.token("ana"))
    run = answer.json()["run"]
    assert run["info"]["user_id"] == "ana"
    assert {"key": "mlflow.user", "value": "boss"} in run["data"]["tags"], "what a client claims stays as a tag"
