"""What the audit says that an access was about: every thing that a request names, by its address or by its question."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.events import MemberRole, Project
from trainhouse.events.model.audit_texts import MAX_TEXT_CHARS, kept_back, statement_text
from trainhouse.events.runtime.counts import WINDOW_MS
from trainhouse.gateway import background
from trainhouse.gateway.audit.auditor import described
from trainhouse.gateway.audit.grants import GrantBook, event_of
from trainhouse.gateway.audit.refusals import Refusal, RefusalBook
from trainhouse.gateway.audit.targets import MAX_TARGET_CHARS, changed_members, names_in, target_of

LONG = [f"job-{n:03}-{'x' * 100}" for n in range(50)]


def asked(query: list[tuple[str, str]] | None = None, **path: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "GET",
        "path_params": path,
        "query_string": urlencode(query or []).encode(),
        "client": ("127.0.0.1", 1),
    }


@pytest.mark.parametrize(
    ("scope", "target"),
    [
        (asked(project="vision", user="ana"), "vision/ana"),
        (asked(project="vision", purpose="defects"), "vision/defects"),
        (asked(job_id="j", step=7), "j/7"),
        (asked([("job", "a"), ("job", "b"), ("metric", "loss")]), "a,b"),
        (asked([("id", "data:s3://b/k?x=1"), ("way", "both")]), "data:s3://b/k?x=1"),
        (asked([("run_id", "r"), ("metric_key", "loss")]), "r"),
        (asked([("token", "t"), ("search", "s"), ("code", "c")]), ""),
        (asked(), ""),
    ],
)
def test_a_target_is_all_that_a_request_names(scope: dict[str, Any], target: str) -> None:
    assert target_of(scope) == (target, "")
    assert described(scope, {})[1].target == target


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"run_id": "r", "key": "loss", "value": 1.0}, ("r",)),
        ({"run_uuid": "r", "run_id": "r"}, ("r",)),
        ({"experiment_id": "3", "run_name": "x"}, ("3",)),
        ({"experiment_ids": ["1", 2, None, True], "filter": "token"}, ("1", "2")),
        ({"run_id": {"$ne": 1}, "path": ""}, ()),
        (["run_id"], ()),
        (None, ()),
    ],
)
def test_a_body_names_things_too(body: object, names: tuple[str, ...]) -> None:
    assert names_in(body) == names
    assert target_of(asked(job_id="j"), names)[0] == "/".join(["j", *([",".join(names)] if names else [])])


def test_more_ids_than_a_target_holds_are_in_the_events_text() -> None:
    scope = asked([("job", name) for name in LONG])
    target, whole = target_of(scope)
    assert len(target) <= MAX_TARGET_CHARS and target.startswith(LONG[0]) and target.endswith("more") and whole == ",".join(LONG)
    _, grant = described(scope, {})
    book = GrantBook(10)
    first = book.note(grant, 5, 1)
    assert first is not None and first.text == whole and first.target == target
    assert book.note(grant, 5, 2) is None, "the same question is the same kind"
    other = book.note(described(asked([("job", name) for name in reversed(LONG)]), {})[1], 5, 3)
    assert other is not None and other.text != whole
    assert event_of(grant, 1, 1, 1, text="SELECT 1").text == "SELECT 1"


def test_half_a_character_in_a_body_is_told_as_a_question_mark() -> None:
    """JSON may hold one, by its number; UTF-8, and so an event, may not."""
    _, grant = described(asked(), {"in_body": names_in({"run_id": "\ud800x", "experiment_ids": ["\udfff"]})})
    assert grant.target == "?x,?"
    books = GrantBook(10), RefusalBook(10)
    granted = [books[0].note(grant, 5, 1), books[0].note(grant, 5, 2), *books[0].due(WINDOW_MS + 1)]
    refusal = Refusal(400, grant.action)
    refused = [books[1].note(refusal, grant.target, kept_back("no run \ud800"), at) for at in (1, 2)] + books[1].due(WINDOW_MS + 1)
    for told in (granted, refused):
        assert [event.target for event in told if event is not None] == ["?x,?"] * 2 and told[1] is None
    assert statement_text("SELECT '\ud800'" + "x" * MAX_TEXT_CHARS)["text"].startswith("SELECT '?'")


def test_a_fault_of_the_audit_is_told_and_ends_it_not(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []

    def turn(now_ms: int) -> None:
        turns.append(now_ms)
        if len(turns) == 1:
            raise ValueError("a text that no event takes")

    async def tale() -> None:
        gateway: Any = SimpleNamespace(audit=SimpleNamespace(turn=turn))
        task = asyncio.create_task(background.Following(gateway)._audit())
        async with asyncio.timeout(10):
            while len(turns) < 3:
                await asyncio.sleep(0)
        task.cancel()

    monkeypatch.setattr(background, "AUDIT_S", 0.0)
    asyncio.run(tale())


@given(st.binary(max_size=300))
def test_no_question_makes_it_fail(query: bytes) -> None:
    scope = asked() | {"query_string": query}
    target, whole = target_of(scope)
    assert len(target) <= MAX_TARGET_CHARS and len(whole) <= 65_536
    described(scope, {})


def test_a_token_that_somebody_put_where_an_id_belongs_is_kept_back() -> None:
    token = "eyJhbGciOiJI.eyJzdWIiOiJib3Qi.4I0vHa8VwA1LXuuK"
    _, grant = described(asked([("job", token), *[("job", name) for name in LONG]]), {})
    assert token not in grant.target and token not in grant.text


def project(**members: str) -> Project:
    return Project.model_validate({"name": "vision", "members": members})


def test_a_change_of_a_project_names_who_came_and_who_went() -> None:
    before = project(ana="viewer", bo="submitter", cy="viewer")
    assert (
        changed_members(before, project(ana="viewer", cy="maintainer", di="viewer")) == "vision: members +di (viewer) -bo ~cy (maintainer)"
    )
    assert changed_members(before, before) == "vision"
    assert changed_members(None, Project.model_validate({"name": "vision"})) == "vision"
    assert changed_members(None, project(ana="viewer")) == "vision: members +ana (viewer)"
    assert changed_members(before, Project.model_validate({"name": "vision"})) == "vision: members -ana -bo -cy"
    many = {f"user-{n:03}-{'y' * 40}": MemberRole.VIEWER for n in range(100)}
    told = changed_members(None, project(**many))
    assert len(told) <= MAX_TARGET_CHARS and told.endswith("more")
