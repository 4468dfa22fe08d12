"""`trainhouse nodes NODE` on a real embedded ClickHouse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.tables.report_world import Database, History, database, ms
from trainhouse.cli.fleet import node_list, node_page
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.events.model.node import NodeNoticed, NodeRegistered
from trainhouse.events.model.verdict import DeviceDegraded, VerdictLifted
from trainhouse.events.wire import topics

NOW = ms(10_000)


def _history() -> History:
    history = History()
    history.node("n1")
    history.node("n2")
    layers = ({"name": "namespaces", "on": True}, {"name": "landlock", "on": False, "reason": "this kernel has none"})
    about = {"node_id": "n1", "boot_id": "b", "incarnation": "i2", "pool": "p", "address": "a", "rendezvous_ports": (1,), "devices": ()}
    isolation = {"mode": "preferred", "complete": True, "layers": layers}
    history.add(topics.CONTROL, NodeRegistered.model_validate(about | {"isolation": isolation}), -100)
    history.given("a", 1, 0, "n1", 2)
    history.blamed("a", 1, 100, "DEVICE", "ecc-uncorrectable", node_id="n1", device_id="d1", rank=1)
    history.freed("a", 1, 110, "n1")
    history.given("b", 1, 200, "n1", 1)
    history.blamed("b", 1, 210, "USER_CODE", "python-KeyError", node_id="n1", rank=0, mine=True)
    history.freed("b", 1, 220, "n1")
    history.given("c", 1, 300, "n1", 1)
    history.blamed("x", 1, 310, "NODE", "hung", node_id="n2")
    degraded = {"node_id": "n1", "boot_id": "b", "pool": "p", "value": 2.0, "since_ms": ms(90)}
    history.add(
        topics.VERDICTS,
        DeviceDegraded.model_validate(degraded | {"device_id": "d1", "fault": "ECC", "at_ms": ms(95), "evidence": "2 new"}),
        95,
    )
    history.add(topics.VERDICTS, DeviceDegraded.model_validate(degraded | {"device_id": "d2", "fault": "THROTTLED", "at_ms": ms(96)}), 96)
    lift = {
        "of": DeviceDegraded.event_type,
        "node_id": "n1",
        "device_id": "d2",
        "fault": "THROTTLED",
        "pool": "p",
        "since_ms": ms(90),
        "at_ms": ms(99),
    }
    history.add(topics.VERDICTS, VerdictLifted.model_validate(lift), 99)
    history.restricted("n1", 50, "CORDONED")
    history.restricted("n1", 60, "NONE")
    history.restricted("n1", 400, "QUARANTINED")
    history.probed("n1", 500, 1, False)
    noticed = {
        "node_id": "n1",
        "boot_id": "b",
        "incarnation": "i",
        "pool": "p",
        "source": "file",
        "reason": "spot",
        "deadline_ms": ms(700),
        "at_ms": ms(600),
    }
    history.add(topics.VERDICTS, NodeNoticed.model_validate(noticed), 600)
    return history


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with database(tmp_path_factory.mktemp("nodes") / "clickhouse") as made:
        made.fill(_history())
        yield made


@pytest.fixture(scope="module")
def page(filled: Database) -> dict[str, Any]:
    return node_page.gather(filled.ask, "n1", ms(0), 20)


def test_why_a_node_is_closed_and_since_when(page: dict[str, Any]) -> None:
    assert (page["state"], page["restriction"], page["closed_at_ms"]) == ("ALIVE", "QUARANTINED", ms(400))
    text = node_page.closed(page, NOW)
    assert text.startswith("QUARANTINED since ") and "too often" in text and "trainhouse node uncordon n1" in text


def test_faults_of_devices_stand_or_are_over(page: dict[str, Any]) -> None:
    assert [(f["device_id"], f["fault"], bool(f["stands"]), f["times"], f["value"]) for f in page["faults"]] == [
        ("d1", "ECC", True, 1, 2.0),
        ("d2", "THROTTLED", False, 1, 2.0),
    ]
    assert page["faults"][0]["since_ms"] == ms(90)


def test_failures_that_began_there_and_how_many_are_its_own(page: dict[str, Any]) -> None:
    assert [(f["job_id"], f["category"], f["device_id"], f["rank"]) for f in page["failures"]] == [
        ("b", "USER_CODE", "", 0),
        ("a", "DEVICE", "d1", 1),
    ]
    assert dict(node_page.head(page, NOW))["blamed"] == "1 of 2 failures that began there"


def test_history_and_what_runs_there(page: dict[str, Any]) -> None:
    kinds = [h["type"].split(".")[2] for h in page["history"]]
    assert kinds[:3] == ["noticed", "probed", "node-restricted"] and "lifted" in kinds
    assert "bits differ" in page["history"][1]["evidence"]
    assert [(r["job_id"], r["rank"], r["device_id"]) for r in page["running"]] == [("c", 0, "d0")]


def test_the_page_is_told_whole(page: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    node_page.show(page, NOW)
    text = capsys.readouterr().out
    for part in ("n1 in pool p", "QUARANTINED", "ecc-uncorrectable", "THROTTLED", "stands", "over", "bits differ", "runs there"):
        assert part in text, text


def test_a_node_without_history_and_one_that_is_not_there(filled: Database, capsys: pytest.CaptureFixture[str]) -> None:
    empty = node_page.gather(filled.ask, "n2", ms(5000), 20)
    assert (empty["closed_at_ms"], empty["failures"], empty["faults"], empty["running"]) == (None, [], [], [])
    node_page.show(empty, NOW)
    assert "no failure began there" in capsys.readouterr().out
    with pytest.raises(CliError, match="no node 'n9'"):
        node_page.gather(filled.ask, "n9", 0, 20)


def test_how_jobs_are_isolated_there_and_which_nodes_do(filled: Database, page: dict[str, Any]) -> None:
    assert dict(node_page.head(page, NOW))["isolation"] == "preferred, whole: namespaces, no landlock (this kernel has none)"
    assert node_list.isolations(filled.ask(node_list.ISOLATIONS, {})) == {"n1": "whole"}


def test_filters_of_the_list_do_not_fit_one_node() -> None:
    node_list.no_filters("n1", (None, [], None))
    with pytest.raises(CliError, match="filters are for the list") as raised:
        node_list.no_filters("n1", (None, ["LOST"], None))
    assert raised.value.code == Exit.USAGE


def test_a_heartbeat_ahead_of_the_clock_of_this_machine_is_no_silence(filled: Database) -> None:
    """Two machines' clocks differ by a few milliseconds."""
    row = filled.ask(node_page.NODE, {"node": "n1"})[0]
    at_ms = row["last_heartbeat_at_ms"] or row["registered_at_ms"]
    assert [node_list.shown(row, at_ms + after_ms)["silent_s"] for after_ms in (-200, 0, 1500)] == [0.0, 0.0, 1.5]
