"""Who may ask in SQL, as a pure rule over a request's headers."""

from __future__ import annotations

import base64

import pytest

from trainhouse.projections.endpoint.door import AUTHENTICATION_FAILED, REFUSED_HOST, Account, Door
from trainhouse.projections.errors import ProjectionError, QueryRefusedError
from trainhouse.projections.projector import door_of
from trainhouse.projections.settings import ClickHouseSettings, ProjectorSettings

DOOR = Door([Account("ana", "a:b"), Account("guest", "g", guest=True)], ["sql.example.org"])
HOST = {"Host": "127.0.0.1:8123"}


def basic(user: str, password: str) -> dict[str, str]:
    return HOST | {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.mark.parametrize(
    ("headers", "url"),
    [
        (basic("ana", "a:b"), {}),
        (HOST | {"X-ClickHouse-User": "ana", "X-ClickHouse-Key": "a:b"}, {}),
        (HOST, {"user": "ana", "password": "a:b"}),  # pragma: allowlist secret
        (basic("ana", "a:b") | {"Host": "SQL.example.org"}, {}),
        (basic("ana", "a:b") | {"Host": "[::1]:8123", "Origin": "http://[::1]:8123"}, {}),
    ],
)
def test_an_account_enters_by_each_way_of_clickhouse(headers: dict[str, str], url: dict[str, str]) -> None:
    assert DOOR.enter(headers, url) == Account("ana", "a:b")


@pytest.mark.parametrize(
    ("headers", "url"),
    [
        (HOST, {}),
        (basic("ana", "a"), {}),
        (basic("ana", ""), {}),
        (basic("nobody", "a:b"), {}),
        (basic("default", ""), {}),
        (HOST | {"Authorization": "Basic not-base64"}, {"user": "ana", "password": "a:b"}),  # pragma: allowlist secret
        (HOST | {"X-ClickHouse-User": "ana"}, {"password": "a:b"}),  # pragma: allowlist secret
    ],
)
def test_without_a_right_password_it_is_516(headers: dict[str, str], url: dict[str, str]) -> None:
    with pytest.raises(QueryRefusedError) as refused:
        DOOR.enter(headers, url)
    assert refused.value.code == AUTHENTICATION_FAILED and "a:b" not in str(refused.value)


@pytest.mark.parametrize(
    "more",
    [
        {"Host": "evil.example.org"},
        {"Host": ""},
        {"Host": "127.0.0.1.evil.example.org"},
        {"Host": "[broken"},
        {"Origin": "http://evil.example.org"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3000"},
    ],
)
def test_an_unknown_host_and_a_foreign_page_are_refused_also_with_a_password(more: dict[str, str]) -> None:
    with pytest.raises(QueryRefusedError) as refused:
        DOOR.enter(basic("ana", "a:b") | more, {})
    assert refused.value.code == REFUSED_HOST


def test_a_projector_without_a_password_does_not_start() -> None:
    with pytest.raises(ProjectionError, match="TRAINHOUSE_CLICKHOUSE_PASSWORD"):
        door_of(ProjectorSettings(), ClickHouseSettings(password=""))
    with pytest.raises(ValueError):
        Door([Account("ana", "")])


def test_an_account_in_the_url_counts_and_leaves_the_address() -> None:
    found = ClickHouseSettings(url="http://ana:a%3Ab@127.0.0.1:8123")
    assert (found.url, found.user, found.password) == ("http://127.0.0.1:8123", "ana", "a:b")
    assert found.headers == {"X-ClickHouse-User": "ana", "X-ClickHouse-Key": "a:b"} == found.guest_headers
    assert "a:b" not in repr(found)
