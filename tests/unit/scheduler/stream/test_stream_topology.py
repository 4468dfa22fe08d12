"""The topology's page is what it says: apps, agents, topics; no table; no port without credentials; the monitor's figures."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from faust.types import TP
from prometheus_client import CollectorRegistry

from trainhouse.events.runtime.metrics_server import exposition
from trainhouse.events.security.grants import ANY, PRINCIPALS
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.topics import ADMISSION, CONTROL, HEARTBEATS, JOBS, MODEL_REQUESTS, STUDY_REQUESTS
from trainhouse.scheduler.stream import topology
from trainhouse.scheduler.stream.kafka.faust_app import ProcessorApp, _datadir
from trainhouse.scheduler.stream.kafka.faust_metrics import FaustFigures
from trainhouse.scheduler.stream.settings import StreamSettings

TOPICS = {
    "intake": {"jobs": JOBS, "admission": ADMISSION, "models": MODEL_REQUESTS},
    "scheduler": {"control": CONTROL},
    "detector": {"heartbeats": HEARTBEATS},
    "tuner": {"studies": STUDY_REQUESTS},
}


@pytest.fixture
def apps(monkeypatch: pytest.MonkeyPatch) -> dict[str, ProcessorApp]:
    """Made as Faust's command line makes them; thrown away afterwards."""
    made = {name: getattr(topology, name) for name in topology.APPS}
    for name in made:
        monkeypatch.delattr(topology, name)
    return made


def test_every_topic_that_is_processed_has_an_agent_and_the_page_shows_it(apps: dict[str, ProcessorApp]) -> None:
    page = str(topology.__doc__)
    for name, app in apps.items():
        app.finalize()
        assert {agent.name: agent.channel.get_topic_name() for agent in app.agents.values()} == TOPICS[name]
        assert not app.tables and "No table" in page
        for agent, topic in TOPICS[name].items():
            assert any(agent in line.split() and topic in line.split() for line in page.splitlines()), f"{agent} is not on the page"


def test_an_app_is_made_once_and_what_there_is_none_of_is_said(apps: dict[str, ProcessorApp]) -> None:
    assert topology.detector is topology.detector
    with pytest.raises(AttributeError, match="intake, scheduler, detector, tuner"):
        _ = topology.projector
    del topology.__dict__["detector"]


def test_the_web_view_is_on_a_socket_whatever_starts_it(apps: dict[str, ProcessorApp]) -> None:
    for app in apps.values():
        assert not app.conf.web_enabled and app.conf.web_transport.scheme == "unix"


class Stream:
    """As much of one as the monitor asks for."""

    task_owner = type("Task", (), {})()


def test_what_the_monitor_sees_is_a_figure_with_a_help_text() -> None:
    registry, tp = CollectorRegistry(auto_describe=True), TP(CONTROL, 2)
    figures = FaustFigures(registry)
    message: Any = SimpleNamespace(value=SimpleNamespace(entries=[1, 2, 3]), time_in=None)
    figures.track_tp_end_offset(tp, 50)
    figures.on_message_in(tp, 41, message)
    loop: Any = Stream()
    state = figures.on_stream_event_in(tp, 41, loop, None)
    figures.on_stream_event_out(tp, 41, loop, None, state)
    figures.on_topic_buffer_full(tp)
    figures.on_commit_completed(None, figures.on_commit_initiated(cast(Any, None)))
    figures.on_tp_commit({tp: 42})
    text = exposition(registry)[1].decode()
    place = f'{{topic="{CONTROL}"}}'
    both = f'{{partition="2",topic="{CONTROL}"}}'
    for line in (
        f"records_total{place} 3.0",
        f"events_total{place} 1.0",
        f"event_seconds_count{place} 1.0",
        f"full_buffers_total{place} 1.0",
        "commit_seconds_count 1.0",
        f"committed_offset{both} 42.0",
        f"read_offset{both} 41.0",
        f"lag_records{both} 8.0",
    ):
        assert f"\ntrainhouse_faust_{line}\n" in text, text
    app: Any = SimpleNamespace(rebalancing_count=1, consumer=SimpleNamespace(assignment=lambda: {TP(CONTROL, 1), TP(CONTROL, 2)}))
    rebalance = figures.on_rebalance_start(app)
    figures.on_rebalance_return(app, rebalance)
    figures.on_rebalance_end(app, rebalance)
    text = exposition(registry)[1].decode()
    assert f"trainhouse_faust_assigned_partitions{place} 2.0" in text and f"lag_records{both}" not in text
    assert "trainhouse_faust_rebalances_total 1.0" in text and "trainhouse_faust_rebalance_seconds_count 1.0" in text
    assert all(line.split(" ", 3)[3] for line in text.splitlines() if line.startswith("# HELP trainhouse_faust"))


def test_settings_name_the_socket(tmp_path: Path) -> None:
    settings = StreamSettings(web_socket=tmp_path / "web" / "socket")
    taking: Any = SimpleNamespace(take=None, on_assigned=None)
    app = topology.detector_app(KafkaSettings(), settings, CollectorRegistry(), taking)
    assert app.conf.web_enabled and app.conf.web_transport.path == str(tmp_path / "web" / "socket")


def test_fausts_own_folder_is_closed_where_it_was_open_and_another_one_where_it_is_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainhouse.scheduler.stream.kafka.faust_app.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = tmp_path / f"trainhouse-{os.getuid()}-intake"
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    assert _datadir("intake") == path == _datadir("intake") and path.stat().st_mode & 0o777 == 0o700
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    path.rmdir()
    path.symlink_to(tmp_path)
    assert _datadir("intake") != path


def _tables_of_the_page() -> list[list[list[str]]]:
    """Cells of each table of docs/internals/streams.md, its head and rule left out."""
    tables: list[list[list[str]]] = [[]]
    for line in (Path(__file__).parents[4] / "docs/internals/streams.md").read_text().splitlines():
        if line.startswith("|"):
            tables[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        elif tables[-1]:
            tables.append([])
    return [table[2:] for table in tables if table]


def test_the_documentation_has_the_agents_groups_and_topics_that_run(apps: dict[str, ProcessorApp]) -> None:
    agents, services, writes = _tables_of_the_page()
    for app in apps.values():
        app.finalize()
    run = {
        (name, f"`{app.conf.id}`", f"`{agent.name}`", f"`{agent.channel.get_topic_name()}`", f"every {app.conf.broker_commit_interval:g} s")
        for name, app in apps.items()
        for agent in app.agents.values()
    }
    assert {(*row[:4], row[-1]) for row in agents} == run
    groups = {row[1].strip("`") for row in agents} | {row[3].strip("`") for row in services if row[3].startswith("`")}
    needs = {name: PRINCIPALS[name] for name in apps}
    assert groups == {group for need in needs.values() for group in need.groups if not group.endswith(ANY)}
    assert {name: set(cell.replace("`", "").split(", ")) for name, cell in writes} == {
        name: set(need.writes) for name, need in needs.items()
    }
