"""Alerts by cause: one lost node is one row, whatever fired for it."""

from __future__ import annotations

import random
from typing import Any

from trainhouse.cli.data.alerts import MOST_OF_RULE, rows_of_cause
from trainhouse.projections.alerts.causes import Links, by_cause, links_of

HOUR_MS = 3_600_000
T0 = 10 * HOUR_MS


def alert(rule: str, severity: str = "WARNING", since_ms: int = T0, **labels: str) -> dict[str, Any]:
    key = ",".join(labels.values())
    about = {"rule": rule, "key": key, "severity": severity, "labels": labels, "since_ms": since_ms, "summary": f"{rule} of {key}"}
    return about | {"owner": "", "runbook": "", "resolved_at_ms": None}


def blamed(job: str, node: str, at_ms: int) -> dict[str, Any]:
    return {"job_id": job, "node_id": node, "at_ms": at_ms}


def shape(groups: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {group["cause"]: [row["rule"] for row in group["alerts"]] for group in groups}


def test_one_lost_node_that_fires_several_rules_is_one_group() -> None:
    alerts = [
        alert("failure-rate-node", pool="a100", node_id="n1"),
        alert("node-quarantined", since_ms=T0 + 5, pool="a100", node_id="n1"),
        alert("gang-hung", since_ms=T0 + 9, pool="a100", job_id="j1", epoch="1"),
        alert("failure-rate-job", "CRITICAL", since_ms=T0 + 2, pool="a100", job_id="j1"),
        alert("mfu-low", pool="a100", job_id="j1"),
    ]
    links = links_of([blamed("j1", "n1", T0)], [{"node_id": "n1", "pool": "a100"}])
    groups = by_cause(alerts, links)
    rules = ["failure-rate-job", "failure-rate-node", "node-quarantined", "gang-hung"]
    assert shape(groups) == {"node:n1": rules, "rule:mfu-low": ["mfu-low"]}
    assert (groups[0]["title"], groups[0]["severity"], groups[0]["since_ms"]) == ("node n1 is lost", "CRITICAL", T0)
    assert groups[0]["rules"] == rules


def test_a_slow_program_is_no_fault_of_a_node_that_failed_once() -> None:
    links = links_of([blamed("j1", "n1", T0)], [])
    assert shape(by_cause([alert("mfu-low", job_id="j1")], links)) == {"rule:mfu-low": ["mfu-low"]}
    assert shape(by_cause([alert("gang-hung", job_id="j1")], links)) == {"node:n1": ["gang-hung"]}


def test_a_blame_of_long_before_is_no_cause_and_the_newest_counts() -> None:
    old = links_of([blamed("j1", "n1", T0 - HOUR_MS - 1)], [])
    assert shape(by_cause([alert("gang-hung", job_id="j1")], old)) == {"rule:gang-hung": ["gang-hung"]}
    two = links_of([blamed("j1", "n1", T0 - 5), blamed("j1", "n2", T0 + 5)], [])
    assert list(shape(by_cause([alert("gang-hung", job_id="j1")], two))) == ["node:n2"]


def test_nodes_of_a_pool_that_were_lost_together_are_one_group() -> None:
    lost = [{"node_id": f"n{n}", "pool": "a100"} for n in range(3)]
    alerts = [alert("nodes-lost", "CRITICAL", pool="a100")] + [alert("node-quarantined", pool="a100", node_id=f"n{n}") for n in range(4)]
    groups = by_cause(alerts, links_of([], lost))
    assert {group["cause"]: len(group["alerts"]) for group in groups} == {"pool:a100": 4, "node:n3": 1}
    assert groups[0]["title"] == "nodes of pool a100 were lost"
    assert len(by_cause(alerts[1:], links_of([], lost))) == 4, "without the pool's alert each node is a cause of its own"


def test_a_job_that_fires_several_rules_is_one_and_a_rule_that_fires_for_many_jobs_is_one() -> None:
    alerts = [alert("gang-hung", job_id="j1"), alert("checkpoint-overdue", job_id="j1")]
    alerts += [alert("mfu-low", job_id=f"j{n}") for n in range(2, 9)]
    assert {group["cause"]: len(group["alerts"]) for group in by_cause(alerts, Links())} == {"job:j1": 2, "rule:mfu-low": 7}


def test_budgets_that_burn_over_several_spans_are_one_cause() -> None:
    alerts = [alert(f"slo-burn-{span}", slo=slo) for span in ("5m-1h", "30m-6h", "2h-1d", "6h-3d") for slo in ("ingest", "control-plane")]
    (group,) = by_cause(alerts, Links())
    assert group["cause"] == "rule:slo-burn" and len(group["alerts"]) == 8 and group["title"].startswith("error budgets")
    (one,) = by_cause(alerts[:1], Links())
    assert one["title"] == "slo-burn-5m-1h of ingest"


def test_the_order_of_rows_changes_nothing_and_each_alert_is_in_one_group() -> None:
    rng = random.Random(7)
    rules = ("nodes-lost", "gang-hung", "mfu-low", "slo-burn-5m-1h", "own-rule", "node-quarantined")
    for _ in range(50):
        alerts = [
            alert(
                rng.choice(rules),
                rng.choice(("CRITICAL", "INFO", "odd")),
                T0 + rng.randrange(9),
                **{rng.choice(("node_id", "job_id", "pool")): f"x{n}"},
            )
            for n in range(20)
        ]
        links = links_of(
            [blamed(f"x{n}", f"x{n + 1}", T0) for n in range(9)], [{"node_id": f"x{n}", "pool": f"x{n + 1}"} for n in range(9)]
        )
        groups = by_cause(alerts, links)
        assert sorted(str(row) for group in groups for row in group["alerts"]) == sorted(map(str, alerts))
        shuffled = rng.sample(alerts, len(alerts))
        assert by_cause(shuffled, links) == groups


def test_no_alerts_are_no_groups_and_a_label_that_is_empty_names_nothing() -> None:
    assert by_cause([], Links()) == []
    assert shape(by_cause([alert("own", node_id="", job_id="")], Links())) == {"rule:own": ["own"]}


def test_rows_of_a_cause_have_its_rules_below_it() -> None:
    alerts = [alert("node-quarantined", node_id="n1"), *[alert("gang-hung", "CRITICAL", job_id=f"j{n}") for n in range(9)]]
    links = links_of([blamed(f"j{n}", "n1", T0) for n in range(9)], [])
    (group,) = by_cause(alerts, links)
    rows = rows_of_cause(group, T0 + 60_000)
    assert rows[0][:2] == ("CRITICAL", "10 alerts") and rows[0][4] == "node n1"
    assert [row[0] for row in rows[1:]] == ["  CRITICAL"] * MOST_OF_RULE + ["  WARNING"]
    (single,) = by_cause(alerts[:1], Links())
    assert [row[1] for row in rows_of_cause(single, T0)] == ["node-quarantined"]
