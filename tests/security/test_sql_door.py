"""The SQL port and the gateway's route for SQL, as strangers and viewers meet them."""

from __future__ import annotations

import http.client
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.test_sql_gate import READS, WRITES
from tests.support.gateway_world import World, world_in
from tests.support.tables.alert_tables import Tables


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("door")


@pytest.fixture(scope="module")
def world(folder: Path) -> Iterator[World]:
    with world_in(folder / "engine") as made:
        yield made


def asked(tables: Tables, query: str, headers: dict[str, str], path: str = "/") -> tuple[int, str, bytes]:
    where = urllib.parse.urlsplit(tables.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=20)
    connection.request("GET", f"{path}?{urllib.parse.urlencode({'query': query})}", headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.headers.get("X-ClickHouse-Exception-Code", ""), answer.read()


@pytest.mark.parametrize("more", [{}, {"X-Trainhouse-Guest": "1"}, {"X-ClickHouse-User": "default"}, {"X-ClickHouse-User": "trainhouse"}])
def test_without_a_password_the_port_tells_nothing(world: World, more: dict[str, str]) -> None:
    for query in ("SELECT 1", "SELECT * FROM jobs", "SELECT 1; SELECT 2", "DROP TABLE jobs_rows"):
        status, code, body = asked(world.tables, query, more)
        assert (status, code) == (401, "516") and b"DB::Exception" in body
    assert asked(world.tables, "", {}, "/ping")[0] == 200


def test_a_page_of_another_origin_and_a_name_that_is_not_ours_are_refused(world: World) -> None:
    right = {"X-ClickHouse-User": "trainhouse", "X-ClickHouse-Key": urllib.parse.urlsplit(world.tables.url).password or ""}
    assert asked(world.tables, "SELECT 1", right)[0] == 200
    for foreign in ({"Origin": "http://evil.example.org"}, {"Host": "evil.example.org"}):
        assert asked(world.tables, "SELECT 1", right | foreign)[:2] == (403, "195")


@pytest.mark.parametrize("attack", READS + WRITES)
def test_a_viewer_reads_no_file_and_writes_nothing(world: World, folder: Path, attack: str) -> None:
    canary, out = folder / "key", folder / "out"
    canary.write_text("the signing key")
    text = attack.replace("{file}", str(canary)).replace("{out}", str(out)).replace("{port}", "1").replace("points", "jobs_rows")
    viewer = world.token("vera", "viewer", ["*"])
    response = world.client.post("/v1/query", headers=viewer, json={"query": text, "format": "TabSeparated"})
    assert response.status_code in (400, 403), response.text
    assert "the signing key" not in response.text and not out.exists()
    assert world.tables.clickhouse.rows("SELECT count() FROM jobs_rows") == [(0,)]


def test_a_viewer_still_asks_what_is_allowed(world: World) -> None:
    viewer = world.token("vera", "viewer", ["*"])
    asked = {"query": "SELECT {x:String} AS x, count() FROM jobs FORMAT JSONEachRow", "parameters": {"x": "file('/x')"}}
    assert world.client.post("/v1/query", headers=viewer, json=asked).json() == {"x": "file('/x')", "count()": 0}
