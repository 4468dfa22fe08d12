"""ClickHouse's HTTP interface over the embedded engine, as clients use it: clickhouse-connect's ordinary client, and plain requests.

The same questions go to the embedded engine directly, so that both back ends of the port answer alike.
"""

from __future__ import annotations

import gzip
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import clickhouse_connect
import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from trainhouse.projections.endpoint.door import Account, Door
from trainhouse.projections.endpoint.engine import Limits, ReadPool
from trainhouse.projections.endpoint.server import Admission, Endpoint
from trainhouse.projections.errors import ClickHouseRequestError
from trainhouse.projections.store.clickhouse import ClickHouse, ConnectClickHouse, connect_embedded, embedded_options

MEMORY = 1024**3
DOOR = Door([Account("people", "p-word"), Account("guest", "g-word", guest=True)])
PEOPLE = {"X-ClickHouse-User": "people", "X-ClickHouse-Key": "p-word"}
GUEST = {"X-ClickHouse-User": "guest", "X-ClickHouse-Key": "g-word"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clickhouse")


@pytest.fixture(scope="module")
def embedded(folder: Path) -> Iterator[ConnectClickHouse]:
    clickhouse = connect_embedded(folder, MEMORY, 2)
    clickhouse.command(
        "CREATE TABLE points (job LowCardinality(String), step UInt64, loss Nullable(Float64), "
        "at DateTime64(3, 'UTC'), tags Array(String)) "
        "ENGINE = MergeTree ORDER BY step SETTINGS non_replicated_deduplication_window = 100"
    )
    rows = pa.table(
        {
            "job": ["a", "b", "c"],
            "step": pa.array([1, 2, 3], pa.uint64()),
            "loss": [0.5, None, 0.25],
            "at": pa.array([1_700_000_000_123] * 3, pa.timestamp("ms", "UTC")),
            "tags": [["x"], [], ["y", "z'\n"]],
        }
    )
    clickhouse.insert("points", rows, "first")
    clickhouse.insert("points", rows, "first")
    yield clickhouse
    clickhouse.close()


@pytest.fixture(scope="module")
def endpoint(folder: Path, embedded: ConnectClickHouse) -> Iterator[Endpoint]:
    limits = Limits(time_s=3.0, result_rows=200_000, result_bytes=64 * 1024**2, memory_bytes=256 * 1024**2)
    pool = ReadPool(folder, embedded_options(MEMORY, 2), limits, 3)
    guests = ReadPool(folder, embedded_options(MEMORY, 2), replace(limits, result_rows=1000), 1)
    healthy = threading.Event()
    healthy.set()
    with Endpoint(Admission(pool, 3, 8), "127.0.0.1", 0, healthy, DOOR, guests=Admission(guests, 1, 0)) as served:
        yield served
    for each in (pool, guests):
        each.close()


@pytest.fixture(scope="module")
def client(endpoint: Endpoint) -> Iterator[Client]:
    made = clickhouse_connect.get_client(host="127.0.0.1", port=endpoint.port, username="people", password="p-word")
    yield made
    made.close()


@pytest.fixture(params=["embedded", "http"])
def port(request: pytest.FixtureRequest, embedded: ConnectClickHouse, client: Client) -> ClickHouse:
    return embedded if request.param == "embedded" else ConnectClickHouse(client)


def get(endpoint: Endpoint, query: str | None = None, body: bytes | None = None, headers: dict[str, str] | None = None, **params: str):
    values = params if query is None else {"query": query, **params}
    url = f"http://127.0.0.1:{endpoint.port}/?{urllib.parse.urlencode(values)}"
    return urllib.request.urlopen(urllib.request.Request(url, data=body, headers=PEOPLE | (headers or {})), timeout=20)


# -- the port, on both back ends


def test_a_repeat_with_the_same_token_inserts_nothing(port: ClickHouse) -> None:
    assert port.rows("SELECT count() FROM points") == [(3,)]


def test_rows_keep_their_types(port: ClickHouse) -> None:
    rows = port.rows("SELECT * FROM points ORDER BY step")
    assert [r[:3] for r in rows] == [("a", 1, 0.5), ("b", 2, None), ("c", 3, 0.25)]
    assert rows[2][4] == ["y", "z'\n"]
    assert rows[0][3].replace(tzinfo=UTC) == datetime.fromtimestamp(1_700_000_000.123, UTC)


def test_parameters_are_bound_not_pasted(port: ClickHouse) -> None:
    nasty = "x' OR 1=1 --\n\t\\"
    assert port.rows("SELECT {a:String}, {b:Array(UInt8)}, {n:Nullable(Int64)}", {"a": nasty, "b": [1, 2], "n": None}) == [
        (nasty, [1, 2], None)
    ]


def test_an_error_carries_clickhouse_s_code(port: ClickHouse) -> None:
    with pytest.raises(ClickHouseRequestError) as failed:
        port.rows("SELECT nosuch FROM points")
    assert failed.value.code == 47
    assert "nosuch" in str(failed.value)


# -- clickhouse-connect's ordinary client


def test_frames_arrow_and_commands(client: Client) -> None:
    frame = client.query_df("SELECT job, step FROM points ORDER BY step")
    assert list(frame["job"]) == ["a", "b", "c"]
    assert client.query_arrow("SELECT step FROM points ORDER BY step").column("step").to_pylist() == [1, 2, 3]
    assert client.command("SELECT count() FROM points") == 3
    assert client.ping()
    assert client.server_version


def test_an_empty_result_has_its_columns(client: Client) -> None:
    result = client.query("SELECT job, step FROM points WHERE 0")
    assert result.result_rows == []
    assert client.query_arrow("SELECT job, step FROM points WHERE 0").schema.names == ["job", "step"]
    assert client.query("SELECT job, step FROM points LIMIT 0").column_names == ("job", "step")


def test_a_large_result_and_a_stream(client: Client) -> None:
    assert sum(r[0] for r in client.query("SELECT number FROM numbers(100000)").result_rows) == 4999950000
    with client.query_row_block_stream("SELECT number FROM numbers(100000)") as stream:
        assert sum(len(block) for block in stream) == 100000


def test_many_clients_at_once(endpoint: Endpoint) -> None:
    answers: list[int] = []

    def ask() -> None:
        mine = clickhouse_connect.get_client(host="127.0.0.1", port=endpoint.port, username="people", password="p-word")
        answers.extend(mine.query("SELECT sum(number) FROM numbers(1000)").result_rows[0][0] for _ in range(5))
        mine.close()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [499500] * 20


# -- plain requests


def test_plain_requests_with_formats_parameters_and_compression(endpoint: Endpoint) -> None:
    assert get(endpoint, "SELECT 1").read() == b"1\n"
    assert get(endpoint).read() == b"Ok.\n"
    assert urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/ping").read() == b"Ok.\n"
    assert get(endpoint, body=b"SELECT 1 AS a FORMAT JSONEachRow;").read() == b'{"a":1}\n'
    reply = get(endpoint, "SELECT job FROM points WHERE step = {s:UInt64}", default_format="JSON", param_s="2")
    assert reply.headers["X-ClickHouse-Format"] == "JSON"
    assert json.loads(reply.read())["data"] == [{"job": "b"}]
    packed = get(endpoint, "SELECT 1", headers={"Accept-Encoding": "gzip"}, enable_http_compression="1")
    assert gzip.decompress(packed.read()) == b"1\n"
    assert int(json.loads(reply.headers["X-ClickHouse-Summary"])["read_rows"]) > 0


def test_the_query_may_be_split_between_url_and_body_or_come_as_a_form(endpoint: Endpoint) -> None:
    assert get(endpoint, "SELECT 1,", body=b"2 FORMAT CSV").read() == b"1,2\n"
    form = urllib.parse.urlencode({"query": "SELECT {a:String}", "param_a": "x"}).encode()
    assert get(endpoint, body=form, headers={"Content-Type": "application/x-www-form-urlencoded"}).read() == b"x\n"


REFUSED = [
    "INSERT INTO points SELECT * FROM points",
    "DROP TABLE points",
    "SET readonly = 0",
    "USE system",
    "KILL QUERY WHERE 1",
    "SYSTEM FLUSH LOGS",
    "SELECT 1 INTO OUTFILE '/tmp/trainhouse-outfile'",
    "SELECT 1; DROP TABLE points",
    "SELECT file('/etc/passwd')",
    "SELECT * FROM file('/etc/passwd', 'LineAsString')",
    "SELECT * FROM /* hidden */ `file` ('/etc/passwd', 'LineAsString')",
    "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
    "SELECT * FROM s3('http://bucket.127.0.0.1:1/key', 'LineAsString')",
    "SELECT * FROM remote('127.0.0.1:1', system.one)",
    "SELECT * FROM `/etc/passwd`",
    "WITH 1 AS x SELECT * FROM Python(x)",
    "CREATE TABLE t (a Int8) ENGINE = Memory",
    "EXPLAIN SELECT * FROM s3('http://bucket.127.0.0.1:1/key')",
    "BACKUP TABLE points TO Disk('a', 'b')",
]


@pytest.mark.parametrize("query", REFUSED)
def test_what_would_write_or_reach_outside_is_refused(endpoint: Endpoint, query: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(endpoint, query)
    assert refused.value.code in (400, 403)
    assert refused.value.headers["X-ClickHouse-Exception-Code"] in ("164", "62")
    assert not Path("/tmp/trainhouse-outfile").exists()


def test_a_client_that_inserts_is_told(client: Client) -> None:
    with pytest.raises(DatabaseError):
        client.insert("points", [["z", 9, 1.0, datetime.now(UTC), []]])
    assert client.command("SELECT count() FROM points") == 3


def test_words_that_only_look_forbidden_pass(endpoint: Endpoint) -> None:
    query = "SELECT 'INTO OUTFILE; file(1)' AS `file`, 1 AS format -- ; DROP TABLE points\nFORMAT TSV"
    assert get(endpoint, query).read() == b"INTO OUTFILE; file(1)\t1\n"


def test_a_query_beyond_a_limit_fails_and_leaves_nothing_behind(endpoint: Endpoint) -> None:
    for _ in range(4):
        with pytest.raises(urllib.error.HTTPError) as failed:
            get(endpoint, "SELECT number FROM numbers(10000000)")
        assert failed.value.headers["X-ClickHouse-Exception-Code"] == "396"
    for _ in range(4):  # the failed query's partial output must not come with the next result
        assert get(endpoint, "SELECT 1").read() == b"1\n"
    with pytest.raises(urllib.error.HTTPError) as slow:
        get(endpoint, "SELECT count() FROM numbers(1000000000000)")
    assert slow.value.headers["X-ClickHouse-Exception-Code"] == "159"


def test_another_database_does_not_stick(endpoint: Endpoint) -> None:
    for _ in range(3):
        assert get(endpoint, "SELECT currentDatabase()", database="system").read() == b"system\n"
        assert get(endpoint, "SELECT currentDatabase()").read() == b"default\n"
    with pytest.raises(urllib.error.HTTPError) as unknown:
        get(endpoint, "SELECT 1", database="x; DROP TABLE points")
    assert unknown.value.headers["X-ClickHouse-Exception-Code"] == "81"


def test_requests_beyond_the_bound_get_503(endpoint: Endpoint) -> None:
    codes: list[int] = []

    def ask() -> None:
        try:
            codes.append(get(endpoint, "SELECT sleep(1)").status)
        except urllib.error.HTTPError as error:
            codes.append(error.code)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes.count(200) <= 11
    assert codes.count(503) >= 5


def test_a_guest_has_limits_and_connections_of_its_own(endpoint: Endpoint) -> None:
    guest, much = GUEST, "SELECT number FROM numbers(2000)"
    with pytest.raises(urllib.error.HTTPError) as failed:
        get(endpoint, much, headers=guest)
    assert failed.value.headers["X-ClickHouse-Exception-Code"] == "396"
    assert get(endpoint, much).status == 200
    codes: list[int] = []

    def ask() -> None:
        try:
            codes.append(get(endpoint, "SELECT sleep(1)", headers=guest).status)
        except urllib.error.HTTPError as error:
            codes.append(error.code)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert get(endpoint, "SELECT 1").read() == b"1\n"  # nobody else waits for guests
    for thread in threads:
        thread.join()
    assert codes.count(200) >= 1 and codes.count(503) >= 1
