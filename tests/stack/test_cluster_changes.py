"""Pools, policies and nodes changed while the cluster runs: by the command line and by any producer, confirmed, in SQL, and replayed.

Everything happens in pools of its own, with an agent of its own where nodes are closed, so that other tests of the stack go on.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.stack.live_agent import agents
from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until

pytestmark = pytest.mark.stack

BEGUN = ("INITIALIZING", "RUNNING")
POLICY = """\
name: night
order: score
teams:
- name: vision        # the night shift
  guaranteed: {cpu: 1}
"""


@pytest.fixture(scope="module")
def pool(stack: LiveStack) -> str:
    """A pool of its own, made by the command line."""
    name = f"changes-{secrets.token_hex(3)}"
    told = json.loads(stack.ok("pool", "create", name, "--json"))
    assert (told["pool"], told["created"]) == (name, True)
    return name


@pytest.fixture(scope="module")
def node(stack: LiveStack, pool: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A second agent of the stack: a node of that pool, with labels."""
    name = f"{pool}-n1"
    with agents(stack, pool, tmp_path_factory.mktemp("agent"), name, LABELS="rack=r7,pod=p1", WARM_START="false"):
        yield name


def state(stack: LiveStack, job: str) -> str:
    """What the tables say of a job; '' of one that they do not know."""
    rows = stack.rows(f"SELECT state FROM job_status WHERE job_id = '{job}'")
    return str(rows[0]["state"]) if rows else ""


def waits(stack: LiveStack, job: str) -> bool:
    """Whether its scheduler has told what a job waits for."""
    return bool(stack.rows(f"SELECT obstacle FROM why WHERE job_id = '{job}'"))


def test_a_pool_is_created_once_and_shown(stack: LiveStack, pool: str) -> None:
    partition = json.loads(stack.ok("pool", "show", pool, "--json"))["partition"]
    again = json.loads(stack.ok("pool", "create", pool, "--json"))
    assert (again["created"], again["partition"]) == (False, partition)
    moved = stack.run("pool", "create", pool, "--partition", str((partition + 1) % 4))
    assert moved.code == 2 and "trainhouse pool move" in moved.err
    assert pool in stack.ok("pool", "show")
    until(lambda: stack.rows(f"SELECT * FROM pools WHERE pool = '{pool}'"))
    missing = stack.run("pool", "show", "nosuch")
    assert missing.code == 66 and pool in missing.err and "Traceback" not in missing.err


def test_a_policy_is_compared_applied_and_kept_with_its_history(stack: LiveStack, pool: str, tmp_path: Path) -> None:
    file = tmp_path / "night.yaml"
    file.write_text(POLICY)
    different = stack.run("policy", "diff", pool, str(file), "--json")
    assert different.code == 1
    assert {"field": "name", "old": "default", "new": "night"} in different.objects()
    told = json.loads(stack.ok("policy", "apply", pool, str(file), "--reason", "for the night", "--json"))
    assert (told["version"], told["reason"]) == (1, "for the night")
    shown = stack.run("policy", "show", pool)
    assert shown.out == POLICY, "what is shown can be applied again"
    assert "version 1, applied" in shown.err and "for the night" in shown.err
    assert stack.run("policy", "diff", pool, str(file)).code == 0
    assert "already" in stack.run("policy", "apply", pool, str(file)).err
    file.write_text(POLICY.replace("night\n", "day\n").replace("cpu: 1", "cpu: 2"))
    stack.ok("policy", "apply", pool, str(file))
    history = until(
        lambda: len(rows := stack.rows(f"SELECT version, name FROM policies WHERE pool = '{pool}' ORDER BY version")) > 1 and rows
    )
    assert [(r["version"], r["name"]) for r in history] == [(1, "night"), (2, "day")]
    row = json.loads(stack.ok("pool", "show", pool, "--json"))
    assert (row["policy"], row["policy_version"]) == ("day", 2)
    assert [t["guaranteed"] for t in row["teams"]] == [{"cpu": 2}]


def test_a_bad_policy_is_told_by_line_and_changes_nothing(stack: LiveStack, pool: str, tmp_path: Path) -> None:
    before = stack.ok("policy", "show", pool)
    file = tmp_path / "bad.yaml"
    file.write_text("order: fair\nteams:\n- {name: a, parent: b}\n- {name: b, parent: a}\n")
    cycle = stack.run("policy", "apply", pool, str(file))
    assert cycle.code == 2 and "bad.yaml:" in cycle.err and "cycle" in cycle.err
    assert stack.run("policy", "apply", pool, str(tmp_path / "none.yaml")).code == 66
    assert stack.run("policy", "show", "nosuch").code == 66
    assert stack.ok("policy", "show", pool) == before


def test_a_policy_that_the_nodes_cannot_obey_is_refused_by_the_scheduler(stack: LiveStack, pool: str, node: str, tmp_path: Path) -> None:
    until(lambda: json.loads(stack.ok("pool", "show", pool, "--json"))["nodes"] == 1)
    before = stack.ok("policy", "show", pool)
    file = tmp_path / "wrong.yaml"
    file.write_text("name: wrong\nteams:\n- name: a\n  guaranteed: {h1000: 4}\n")
    refused = stack.run("policy", "apply", pool, str(file))
    assert refused.code == 3, refused.err
    assert "h1000" in refused.err and "old policy stays" in refused.err
    assert stack.ok("policy", "show", pool) == before
    until(lambda: stack.rows(f"SELECT reason FROM refused_changes WHERE pool = '{pool}'"))


def test_any_producer_may_ask_and_is_told_under_its_events_id(stack: LiveStack, pool: str) -> None:
    from confluent_kafka import Producer

    def ask(kind: str, event_id: str, data: dict[str, Any]) -> None:
        line = {"specversion": "1.0", "id": event_id, "source": "an-operator", "type": f"trainhouse.{kind}.v1", "data": data}
        producer.produce("trainhouse.jobs", orjson.dumps(line))
        producer.flush()

    def refusal(event_id: str) -> str:
        rows = until(lambda: stack.rows(f"SELECT reason FROM rejections WHERE submission_id = '{event_id}'"))
        return str(rows[0]["reason"])

    producer = Producer(stack.client().kafka.client_config())
    mark = secrets.token_hex(4)
    ask("policy.changed", f"{mark}-1", {"pool": "nosuch", "policy": {}})
    assert "no pool nosuch" in (reason := refusal(f"{mark}-1")) and pool in reason
    ask("policy.changed", f"{mark}-2", {"pool": pool, "policy": {"teams": [{"name": "a", "weight": -1}]}})
    assert "weight" in refusal(f"{mark}-2")
    version = json.loads(stack.ok("policy", "show", pool, "--json"))["version"]
    for _ in range(3):
        ask("policy.changed", f"{mark}-3", {"pool": pool, "policy": {"name": f"by-{mark}"}, "user": "ada"})
    until(lambda: json.loads(stack.ok("policy", "show", pool, "--json"))["policy"]["name"] == f"by-{mark}")
    assert json.loads(stack.ok("policy", "show", pool, "--json"))["version"] == version + 1, "a repeat is one request"


def test_a_node_is_closed_opened_and_drained(stack: LiveStack, pool: str, node: str, tmp_path: Path) -> None:
    (row,) = stack.rows(f"SELECT labels FROM nodes WHERE node_id = '{node}'")
    assert row["labels"] == {"rack": "r7", "pod": "p1"}
    until(lambda: {"rack", "pod"} <= set(json.loads(stack.ok("pool", "show", pool, "--json"))["levels"]))
    assert f"node {node} of pool {pool} is CORDONED: fan" in stack.ok("node", "cordon", node, "--reason", "fan")
    again = stack.run("node", "cordon", node, "--reason", "fan")
    assert again.code == 0 and "already" in again.err
    devices = json.loads(stack.ok("pool", "show", pool, "--json"))["devices"]
    assert devices == {"cpu": {"total": 2, "held": 0, "free": 0, "closed": 2}}
    until(lambda: stack.rows(f"SELECT restriction FROM nodes WHERE node_id = '{node}'") == [{"restriction": "CORDONED"}])
    job = stack.ok("submit", "--pool", pool, "--no-code", "--restarts", "0", "--", "python", "-c", "import time; time.sleep(3600)").strip()
    until(lambda: waits(stack, job))
    stack.ok("node", "uncordon", node)
    until(lambda: state(stack, job) in BEGUN)
    drained = stack.ok("node", "drain", node, "--deadline-s", "5", "--reason", "rack goes down")
    assert "DRAINING" in drained and f"{job} leaves by" in drained
    until(lambda: state(stack, job) == "PENDING")
    assert json.loads(stack.ok("status", job, "--json"))["attempt"] == 1, "it is queued again, and its restarts are its own"
    stack.ok("node", "uncordon", node)
    until(lambda: state(stack, job) in BEGUN)
    stack.ok("cancel", job, "--wait")
    wrong = stack.run("node", "drain", node + "x")
    assert wrong.code == 66 and f"did you mean {node}" in wrong.err


def test_a_job_is_changed_and_the_change_is_confirmed(stack: LiveStack, pool: str, node: str) -> None:
    job = stack.ok("submit", "--pool", pool, "--no-code", "--gang", "2", "--", "python", "-c", "import time; time.sleep(3600)").strip()
    until(lambda: state(stack, job) in BEGUN)
    told = json.loads(stack.ok("change", job, "--priority", "7", "--restarts", "9", "--json"))
    assert (told["priority"], told["limits"]["restarts"], told["limits"]["run_time_s"]) == (7, 9, None)
    told = json.loads(stack.ok("change", job, "--run-time", "2h", "--json"))
    assert (told["priority"], told["limits"]["restarts"], told["limits"]["run_time_s"]) == (7, 9, 7200)
    assert stack.status(job)["priority"] == 7
    same = stack.run("change", job, "--priority", "7")
    assert same.code == 2 and "has priority 7 already" in same.err
    assert stack.run("change", job).code == 2
    stack.ok("cancel", job, "--wait")
    ended = stack.run("change", job, "--priority", "8")
    assert ended.code == 2 and "CANCELLED already" in ended.err
    assert stack.run("change", "nosuch", "--priority", "8").code == 66


def test_the_cluster_as_it_was(stack: LiveStack, pool: str, node: str) -> None:
    command = ("submit", "--pool", pool, "--no-code", "--", "python", "-c", "import time; time.sleep(3600)")
    first, second = (stack.ok(*command[:3], "--gang", "2", *command[3:]).strip() for _ in range(2))

    def at(when: str) -> list[dict[str, Any]]:
        return stack.run("replay", "--at", when, "--json").objects()

    def told(rows: list[dict[str, Any]], kind: str) -> list[str]:
        return [r["job_id"] for r in rows if r["kind"] == kind and r["pool"] == pool]

    def one_runs_and_one_waits() -> dict[str, Any] | None:
        rows = at("-0s")
        return rows[0] if (told(rows, "running"), told(rows, "queue")) == ([first], [second]) else None

    until(lambda: state(stack, first) in BEGUN and waits(stack, second))
    moment = until(one_runs_and_one_waits, lambda: at("-0s"), every_s=1)
    assert moment["kind"] == "moment"
    for job in (first, second):
        stack.ok("cancel", job, "--wait")
    stack.ok("node", "cordon", node)

    then = at(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment["at_ms"] / 1000)) + f".{moment['at_ms'] % 1000:03d}")
    (was,) = [r for r in then if r["kind"] == "nodes" and r["node_id"] == node]
    assert (told(then, "running"), told(then, "queue"), was["restriction"]) == ([first], [second], "NONE")
    (now,) = [r for r in at("-0s") if r["kind"] == "nodes" and r["node_id"] == node]
    assert now["restriction"] == "CORDONED"
    early = stack.run("replay", "--at", "2001-01-01")
    assert early.code == 66 and "before the first record" in early.err
    late = stack.run("replay", "--at", "2100-01-01")
    assert late.code == 0 and pool in late.out and "the journal ends at" in late.err
    assert stack.run("replay", "--at", "soon").code == 2
    stack.ok("node", "uncordon", node)


def test_what_was_changed_is_recomputed_the_same(stack: LiveStack, pool: str) -> None:
    done = stack.run("replay", "--verify", "--json")
    assert done.code == 0, done.out + done.err
