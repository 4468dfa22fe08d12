"""The gateway's pure rules: roles, tokens, cursors, refusals told at a bounded rate, bodies with bounds, texts without names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.events.runtime.counts import WINDOW_MS
from trainhouse.events.wire.envelope import rfc3339
from trainhouse.gateway.audit.refusals import MAX_KINDS, Refusal, RefusalBook
from trainhouse.gateway.auth import tokens
from trainhouse.gateway.auth.local_token import ensure
from trainhouse.gateway.auth.roles import NAMES, Principal, Role
from trainhouse.gateway.errors import InvalidTokenError, KeyUnusableError, ProblemError, SqlRefusedError, SqlUnavailableError
from trainhouse.gateway.limits.request_limits import Bounds
from trainhouse.gateway.queries import cursors
from trainhouse.gateway.queries.listing import Order
from trainhouse.gateway.queries.redacting import names_in, without
from trainhouse.gateway.queries.sql_reader import whole
from trainhouse.gateway.queries.where_clauses import Where
from trainhouse.gateway.routes.query import problem_of
from trainhouse.gateway.routes.rank_output import grows
from trainhouse.gateway.settings import GatewaySettings

KEY = b"k" * 40
NOW_MS = 1_800_000_000_000


def test_a_role_includes_every_lesser_one() -> None:
    for name in NAMES:
        principal = Principal("ana", (Role.named(name),), ("vision",))
        assert [role for role in Role if principal.may(role)] == [role for role in Role if role <= Role.named(name)]
        assert principal.sees("vision") and not principal.sees("speech") and not principal.sees("") and not principal.everywhere


@given(st.text(max_size=200))
def test_no_text_is_a_token(text: str) -> None:
    with pytest.raises(InvalidTokenError):
        tokens.read(KEY, text)


@pytest.mark.parametrize(
    ("sub", "roles", "projects"),
    [
        ("", ["viewer"], ["p"]),
        ("a", [], ["p"]),
        ("a", ["viewer"], []),
        ("a", ["god"], ["p"]),
        ("a\n", ["viewer"], ["p"]),
        ("a", ["viewer"], [""]),
    ],
)
def test_a_token_that_says_nothing_is_not_made(sub: str, roles: list[str], projects: list[str]) -> None:
    with pytest.raises(InvalidTokenError):
        tokens.issue(KEY, sub, roles, projects, now_s=0)


def test_a_key_must_be_sound(tmp_path: Any) -> None:
    for settings in ({}, {"key": "short"}, {"key_file": tmp_path / "none"}):
        with pytest.raises(KeyUnusableError):
            GatewaySettings.model_validate(settings).signing_key()


def test_the_local_token_is_kept_while_it_is_sound_and_its_owners_alone(tmp_path: Any) -> None:
    path = tmp_path / "gateway" / "token"
    first, made = ensure(path, KEY, 0)
    assert made and first.everywhere and first.may(Role.ADMIN)
    assert ensure(path, KEY, 1) == (first, False)
    assert path.stat().st_mode & 0o077 == 0
    path.write_text("damaged")
    again, made = ensure(path, b"n" * 40, 2)
    assert made and again.token_id != first.token_id


@given(st.lists(st.integers(-(2**60), 2**60) | st.text(max_size=50), max_size=4))
def test_a_cursor_holds_its_key(key: list[Any]) -> None:
    assert cursors.decode(cursors.encode(key), *(type(value) for value in key)) == key


@given(st.text(max_size=100))
def test_no_text_makes_a_cursor_fail_otherwise(text: str) -> None:
    try:
        cursors.decode(text, int, str)
    except ProblemError as problem:
        assert problem.status == 400


def test_what_a_caller_gives_is_bound_and_never_part_of_the_text() -> None:
    where = Where()
    where.equal("name", "x' OR 1")
    where.among("state", ["a'b"])
    where.visible(Principal("ana", (Role.VIEWER,), ("p'",)))
    Order((("step", "Int64"),)).behind(cursors.encode([7]), where)
    assert "'" not in where.text
    assert where.values["name"] == "x' OR 1" and where.values["_key0"] == 7


def test_a_flood_of_refusals_is_a_few_events_and_every_one_is_counted() -> None:
    book = RefusalBook(per_minute=20)
    told = 0
    for n in range(50_000):
        event = book.note(Refusal(401, address=f"10.0.{n % 3000 // 250}.{n % 250}"), "", "bad token", NOW_MS + n // 100)
        told += event.count if event else 0
    events = 20
    for minute in range(1, 400):
        due = book.due(NOW_MS + minute * 60_000)
        assert len(due) <= 20
        events += len(due)
        told += sum(event.count for event in due)
    assert told == 50_000 and events <= MAX_KINDS + 21


def test_a_refusal_alone_is_told_at_once_and_its_repeats_once() -> None:
    book = RefusalBook(per_minute=20)
    refusal = Refusal(404, "GET /x", "ana", "t", "127.0.0.1")
    first = book.note(refusal, "job-1", "no job", NOW_MS)
    assert first is not None and (first.count, first.target, first.sub) == (1, "job-1", "ana")
    assert all(book.note(refusal, "job-2", "no job", NOW_MS + n) is None for n in range(7))
    assert book.due(NOW_MS + WINDOW_MS - 1) == []
    (repeats,) = book.due(NOW_MS + WINDOW_MS)
    assert (repeats.count, repeats.since_ms) == (7, NOW_MS)
    assert book.note(refusal, "job-1", "no job", NOW_MS + WINDOW_MS) is not None


def test_names_of_hidden_jobs_leave_texts() -> None:
    text = "waits for a-1, (b-2) and a-10: a-1."
    assert {"a-1", "b-2", "a-10"} <= names_in([text])
    assert without([text], {"a-1"}) == ["waits for another job, (b-2) and a-10: another job."]
    assert "j" in names_in(["behind j."]) and without("behind j.", {"j"}) == "behind another job."


async def _call(app: Any, chunks: list[bytes], headers: list[tuple[bytes, bytes]], pause_s: float = 0.0) -> tuple[int, bytes, int]:
    """Status, body, and how many chunks were taken."""
    left, sent = list(chunks), []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(pause_s)
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "path": "/v1/x", "method": "POST", "headers": headers}, receive, send)
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:]), len(chunks) - len(left)


async def _reads_all(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"read"})


def test_a_body_beyond_its_bound_is_refused_as_soon_as_that_is_known() -> None:
    app = Bounds(_reads_all, 100, 5.0)
    assert asyncio.run(_call(app, [b"x" * 100], []))[0] == 200
    status, body, taken = asyncio.run(_call(app, [b"x"], [(b"content-length", b"1000000000")]))
    assert (status, taken) == (413, 0) and b"100 bytes" in body
    status, _, taken = asyncio.run(_call(app, [b"x" * 60] * 1000, []))
    assert (status, taken) == (413, 2)


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    status, body, _ = asyncio.run(_call(Bounds(_reads_all, 100, 0.05), [b"x"] * 100, [], pause_s=0.02))
    assert status == 408 and b"0.05 s" in body


@pytest.mark.parametrize(
    ("code", "status"), [(159, 422), (158, 422), (396, 422), (307, 422), (241, 422), (164, 403), (497, 403), (62, 400)]
)
def test_a_limit_that_a_query_went_over_is_told_apart_from_what_it_may_not(code: int, status: int) -> None:
    told = problem_of(SqlRefusedError(f"Code: {code}", code))
    assert (told.status, told.more) == (status, {"code": code})


def test_points_of_a_job_that_ended_long_ago_are_not_waited_for() -> None:
    ended = [{"finished_at": None if ago_s is None else rfc3339(NOW_MS - 1000 * ago_s)} for ago_s in (None, 1, 3600)]
    assert [grows(job, NOW_MS) for job in ended] == [True, True, False]


def test_an_answer_that_broke_off_is_asked_for_again_and_no_bug() -> None:
    assert whole(b'{"meta": [], "data": []}') == {"meta": [], "data": []}
    with pytest.raises(SqlUnavailableError, match="try again"):
        whole(b'{"meta": [], "data": [[1, 2], Code: 241. DB::Exception: Memory limit exceeded')
