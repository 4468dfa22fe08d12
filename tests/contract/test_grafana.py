"""Every query of every panel and variable of the dashboards, with its macros expanded as the plugin does, on the real SQL endpoint."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.tables.alert_tables import HOUR_MS, Tables, beat, metric, tables_in, verdict
from trainhouse.deploy.grafana.build import HERE, dashboards, text_of
from trainhouse.events.model.gang import GangAllocated
from trainhouse.events.model.job import JobStatus
from trainhouse.events.model.node import NodeRegistered
from trainhouse.events.model.service_level import ServiceMeasured
from trainhouse.events.model.spec import JobSpec, Runtime
from trainhouse.events.wire import topics
from trainhouse.projections.settings import ClickHouseSettings

NOW = time.time_ns() // 1_000_000
BOARDS = dashboards()
PANELS = [(board["title"], panel["title"]) for board in BOARDS.values() for panel in board["panels"]]
STEP_S = 300


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    with tables_in(tmp_path_factory.mktemp("grafana")) as made:
        begin = NOW - HOUR_MS
        fields = {"job_id": "j", "pool": "p", "team": "t", "name": "n", "project": "x", "submitted_at_ms": begin, "submission_id": "s"}
        states = [("PENDING", 0), ("SCHEDULED", 600), ("RUNNING", 660)]
        for seq, (state, after_s) in enumerate(states, 1):
            told = fields | {"status_seq": seq, "state": state, "updated_at_ms": begin + after_s * 1000}
            made.put(topics.STATUS, [JobStatus.model_validate(told)])
        place = {"node_id": "n", "boot_id": "b", "address": "a", "first_rank": 0, "devices": ("n:0",)}
        gang = {"job_id": "j", "attempt": 1, "epoch": 1, "pool": "p", "spec_sha256": "c", "master_address": "a", "master_port": 1}
        spec = JobSpec(runtime=Runtime(command=("t",)))
        made.put(topics.ALLOCATIONS, [GangAllocated.model_validate(gang | {"spec": spec, "placements": (place,)})], begin + 600_000)
        device = {"device_id": "n:0", "index": 0, "type": "cpu", "memory_bytes": 0}
        node = {"node_id": "n", "boot_id": "b", "incarnation": "i", "pool": "p", "address": "a", "devices": (device,)}
        machine = {"rendezvous_ports": (29500,), "cpus": 8, "memory_bytes": 1}
        made.put(topics.CONTROL, [NodeRegistered.model_validate(node | machine)], begin)
        made.put(topics.HEARTBEATS, [beat("n", begin + s * 1000, pool="p", used={"n:0": 90.0}, job="j") for s in range(600, 900, 10)])
        made.put(topics.METRICS, [metric("j", "loss", {begin + s * 1000: float(s) for s in range(660, 900, 10)})])
        made.put(topics.VERDICTS, [verdict("FailureBlamed", begin, "p", category="NODE", rule="r", summary="s", failed_at_ms=begin)[1]])
        span = {"service": "sql", "source": "t", "since_ms": begin, "at_ms": begin + 60_000, "limit_s": 0.1}
        made.put(topics.SERVICES, [ServiceMeasured.model_validate(span | {"total": 9, "good": 9, "p99_s": 0.01})])
        yield made


def test_the_committed_files_are_what_the_definitions_make() -> None:
    committed = {path.name: path.read_text("utf-8") for path in (HERE / "dashboards").glob("*.json")}
    assert committed == {name: text_of(content) for name, content in BOARDS.items()}
    assert {name.removesuffix(".json") for name in committed} == {"fleet", "job", "queue", "failures", "cost", "platform", "slo"}


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    for board in BOARDS.values():
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken and at["x"] + at["w"] <= 24
            taken |= cells
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_a_panel_gets_what_it_shows(tables: Tables, board: str, panel: str) -> None:
    found = next(p for b in BOARDS.values() if b["title"] == board for p in b["panels"] if p["title"] == panel)
    (target,) = found["targets"]
    ways: list[dict[str, list[str]]] = [{}, {"pool": ["p", "it's"], "team": ["t"], "metric": ["loss"]}]
    for chosen in ways if "$__conditionalAll" in target["rawSql"] else ways[:1]:
        columns, _ = ask(tables, expanded(target["rawSql"], chosen | {"job_id": ["j"]}))
        kinds = list(columns.values())
        if target["queryType"] == "timeseries":
            assert next(iter(columns)) == "time" and kinds[0].startswith("DateTime"), columns
            numbers = [kind for kind in kinds if re.search(r"Int|Float", kind)]
            assert found["type"] == "state-timeline" or numbers, columns
        if target["queryType"] == "logs":
            assert list(columns) == ["timestamp", "body"]
        if found["type"] in ("piechart", "barchart"):
            assert len(columns) == 2 and re.search(r"Int|Float", kinds[1]), columns


def test_what_happened_is_shown(tables: Tables) -> None:
    queries = {(b["title"].split(": ")[1], p["title"]): p["targets"][0]["rawSql"] for b in BOARDS.values() for p in b["panels"]}
    for place in [
        ("Fleet", "How busy devices are"),
        ("Job", "Now"),
        ("Job", "States and parts"),
        ("Job", "Metrics by time"),
        ("Queue", "Waits"),
        ("Failures", "By category"),
        ("Platform health", "How soon questions are answered"),
        ("Platform health", "How late heartbeats, metrics and output are"),
    ]:
        assert ask(tables, expanded(queries[place], {"job_id": ["j"]}))[1], place
    lines = {row[0]: row for row in ask(tables, expanded(queries["Objectives (SLO)", "Objectives over the range"], {}))[1]}
    assert lines["query-time"][2] == 1 and lines["wait-half"][2] == 1 and lines["mttr"][2] is None


def test_variables_can_be_chosen(tables: Tables) -> None:
    for board in BOARDS.values():
        for variable in board["templating"]["list"]:
            columns, rows = ask(tables, expanded(variable["query"], {"job_id": ["j"]}))
            assert len(columns) == 1 and rows, variable["name"]


def ask(tables: Tables, sql: str) -> tuple[dict[str, str], list[list[Any]]]:
    """Columns with their types, and rows."""
    where = ClickHouseSettings(url=tables.url)
    url = f"{where.url}/?{urllib.parse.urlencode({'default_format': 'JSONCompact', 'output_format_json_quote_64bit_integers': '0'})}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, sql.encode(), where.headers), timeout=150) as reply:
            answer = json.loads(reply.read())
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{error.read().decode()[:600]}\n{sql}") from error
    return {c["name"]: c["type"] for c in answer["meta"]}, answer["data"]


def expanded(sql: str, chosen: Mapping[str, list[str]]) -> str:
    """The query as the plugin sends it, for the last day; a variable that is not chosen is on All."""
    begin, end = NOW // 1000 - 86_400, NOW // 1000 + 60
    sql = macro(sql, "conditionalAll", lambda condition, name: condition if name.strip().lstrip("$") in chosen else "1=1")
    for name, values in chosen.items():
        quoted = ",".join("'" + value.replace("'", "\\'") + "'" for value in values)
        sql = sql.replace(f"${{{name}:singlequote}}", quoted)
    sql = macro(sql, "timeFilter", lambda column: f"{column} >= toDateTime({begin}) AND {column} <= toDateTime({end})")
    sql = macro(sql, "timeInterval", lambda column: f"toStartOfInterval(toDateTime({column}), INTERVAL {STEP_S} second)")
    sql = sql.replace("$__fromTime", f"toDateTime({begin})").replace("$__toTime", f"toDateTime({end})")
    assert "$" not in re.sub(r"'[^']*'", "", sql), sql
    return sql


def macro(sql: str, name: str, make: Any) -> str:
    """Replaces `$__name(…)`; parentheses may nest, and the last comma outside of them parts two arguments."""
    while (at := sql.find(f"$__{name}(")) >= 0:
        begin = depth_at = at + len(name) + 4
        depth, comma = 1, -1
        while depth:
            character = sql[depth_at]
            depth += (character == "(") - (character == ")")
            comma = depth_at if character == "," and depth == 1 else comma
            depth_at += 1
        inside = sql[begin : depth_at - 1]
        arguments = [inside] if comma < 0 else [sql[begin:comma], sql[comma + 1 : depth_at - 1]]
        sql = sql[:at] + make(*arguments) + sql[depth_at:]
    return sql
