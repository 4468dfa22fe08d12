"""A node that does not isolate jobs whole says so where a person looks: its log, `up` and `ps`, the list of nodes."""

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from trainhouse.cli.fleet import node_list
from trainhouse.deploy.local import stack_state
from trainhouse.events.model.node import IsolationLayer, NodeIsolation
from trainhouse.workers.agent.node.isolation_file import IsolationReporter, lacking, last_warning

OFF = NodeIsolation(mode="none", complete=False, reason="switched off by the node's setting `isolation`")
NAMESPACES = IsolationLayer(name="namespaces", on=False, reason="namespaces cannot be made: Operation not permitted")
BARE = NodeIsolation(
    mode="preferred",
    complete=False,
    layers=(IsolationLayer(name="uid", on=False, reason="the agent is not root"), NAMESPACES, IsolationLayer(name="seccomp", on=True)),
)
NO_LANDLOCK = NodeIsolation(
    mode="preferred",
    complete=False,
    layers=(IsolationLayer(name="namespaces", on=True), IsolationLayer(name="landlock", on=False, reason="this kernel has no Landlock")),
)
WHOLE = NodeIsolation(mode="preferred", complete=True, layers=(IsolationLayer(name="limits", on=False, reason="no group can be made"),))


@pytest.mark.parametrize(
    ("isolation", "said"),
    [
        (OFF, "jobs are not isolated on node n17: the setting `isolation` is none"),
        (BARE, "jobs are not isolated on node n17: no uid, no namespaces"),
        (NO_LANDLOCK, "jobs are isolated in part on node n17: no landlock"),
        (WHOLE, ""),
    ],
)
def test_one_line_says_it_in_80_columns(isolation: NodeIsolation, said: str) -> None:
    assert lacking("n17", isolation) == said and len(f"warning: {said}") <= 80


def test_the_agent_logs_it_once_and_up_and_ps_warn(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    told = IsolationReporter(folder, "n17", lambda: BARE)
    with capture_logs() as logs:
        assert told() == told() == BARE
    (line,) = logs
    assert line["log_level"] == "warning" and line["event"].startswith("jobs are not isolated") and "not permitted" in line["lacking"]
    assert stack_state.isolation_warnings(tmp_path) == ["jobs are not isolated on node n17: no uid, no namespaces"]
    with capture_logs() as logs:
        IsolationReporter(folder, "n17", lambda: WHOLE)()
    assert [entry["log_level"] for entry in logs] == ["info"] and stack_state.isolation_warnings(tmp_path) == []


@pytest.mark.parametrize("content", ["", "[", "[]", '{"node": 3, "text": []}'])
def test_a_damaged_note_is_none(tmp_path: Path, content: str) -> None:
    assert last_warning(tmp_path) == ""
    (tmp_path / "isolation.json").write_text(content)
    assert last_warning(tmp_path) == ""


def test_the_list_of_nodes_counts_those_that_do_not_isolate_jobs_whole() -> None:
    rows = [{"node_id": n, "state": state} for n, state in (("a", "ALIVE"), ("b", "ALIVE"), ("c", "SUSPECTED"), ("gone", "LOST"))]
    known = node_list.isolations([{"node_id": "a", "complete": 1}, {"node_id": "b", "complete": 0}])
    assert [known.get(row["node_id"], node_list.NOT_ISOLATED) for row in rows] == ["whole", "in part", "none", "none"]
    said = node_list.not_isolated(rows, known)
    assert said == "2 of 3 nodes do not isolate jobs whole: b, c; see `trainhouse nodes b`" and len(said) <= 80
    assert node_list.not_isolated(rows[:1], known) == ""
    many = [{"node_id": f"node-{n:04}", "state": "ALIVE"} for n in range(4000)]
    assert len(node_list.not_isolated(many, {})) <= 100 and json.dumps(known)
