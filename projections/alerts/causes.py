"""Alerts by cause: rules that fire for one thing are one group. Pure; the command line, the pages and the HTTP API share it.

Holds: every alert is in exactly one group, and the order of the rows that came in changes nothing. An alert belongs
1. to its node, or to the node that a failure of its job was blamed on, where the rule is one that a node's failure makes fire;
   a lost node of a pool whose `nodes-lost` is open belongs to that pool's loss;
2. else to its job, dataset, project or shard, where several rules fired for that;
3. else to its rule, which fires once for each thing that it watches. Burn rates over several spans are one: the error budgets.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]

SEVERITIES = ("CRITICAL", "WARNING", "INFO")
POOL_LOSS = "nodes-lost"
BUDGETS = "slo-burn"
# Rules about a job that the failure of a node makes fire. A slow program, a budget or data that drifted is no fault of a node.
OF_A_FAILURE = frozenset(
    {"failure-rate-job", "gang-hung", "straggler", "checkpoint-overdue", "checkpoint-failures", "urgent-job-waits", "device-degraded"}
)
SUBJECTS = (("job_id", "job"), ("dataset", "dataset"), ("project", "project"), ("shard", "shard"))
BLAMED_BEFORE_MS = 3_600_000
MOST_LINKS = 10_000

BLAMES_QUERY = (
    "SELECT job_id, node_id, toUnixTimestamp64Milli(max(at)) AS at_ms FROM verdicts "
    "WHERE type = 'trainhouse.failure.blamed.v1' AND job_id != '' AND node_id != '' AND category IN ('NODE', 'DEVICE', 'NETWORK') "
    f"AND at > now64(3) - INTERVAL 2 DAY GROUP BY job_id, node_id ORDER BY at_ms DESC, job_id, node_id LIMIT {MOST_LINKS}"
)
"""Nodes that failures of jobs were blamed on: job_id, node_id, at_ms."""
LOST_QUERY = f"SELECT node_id, pool FROM nodes WHERE state = 'LOST' ORDER BY node_id LIMIT {MOST_LINKS}"
"""Nodes that are lost: node_id, pool."""


@dataclass(frozen=True)
class Links:
    """Connections of alerts: `blames` (job_id, node_id, at_ms) and the nodes that are lost, with their pools."""

    blames: Mapping[str, Sequence[tuple[str, int]]] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)


def links_of(blames: Iterable[Row], lost: Iterable[Row]) -> Links:
    """From rows of BLAMES_QUERY and LOST_QUERY."""
    of_job: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in blames:
        of_job[row["job_id"]].append((row["node_id"], int(row["at_ms"])))
    return Links(dict(of_job), {row["node_id"]: row["pool"] for row in lost})


def by_cause(alerts: Iterable[Row], links: Links) -> list[dict[str, Any]]:
    """Groups alerts; the gravest group first, then the one that began first.

    An alert has `rule`, `key`, `severity`, `labels`, `summary`, `since_ms`. A group: `cause` (an id such as node:n1), `title`, `severity`,
    `since_ms`, `rules`, and its `alerts`, the gravest first.
    """
    rows = list(alerts)
    losses = {row["labels"].get("pool", "") for row in rows if row["rule"] == POOL_LOSS}
    of_nodes = [_node_cause(row, links, losses) for row in rows]
    rules: dict[str, set[str]] = defaultdict(set)
    for row, cause in zip(rows, of_nodes, strict=True):
        for subject in () if cause else _subjects(row):
            rules[subject].add(row["rule"])
    groups: dict[str, list[Row]] = defaultdict(list)
    for row, cause in zip(rows, of_nodes, strict=True):
        groups[cause or _other_cause(row, rules)].append(row)
    return sorted((_group(cause, found, links) for cause, found in groups.items()), key=lambda one: (*_weight(one), one["cause"]))


def _node_cause(row: Row, links: Links, losses: set[str]) -> str | None:
    node = row["labels"].get("node_id") or _blamed(row, links)
    if node:
        pool = links.lost.get(node)
        return f"pool:{pool}" if pool is not None and pool in losses else f"node:{node}"
    return f"pool:{row['labels'].get('pool', '')}" if row["rule"] == POOL_LOSS else None


def _other_cause(row: Row, rules: Mapping[str, set[str]]) -> str:
    for subject in _subjects(row):
        if len(rules[subject]) > 1:
            return subject
    return f"rule:{BUDGETS if row['rule'].startswith(BUDGETS) else row['rule']}"


def _subjects(row: Row) -> list[str]:
    return [f"{kind}:{row['labels'][label]}" for label, kind in SUBJECTS if row["labels"].get(label)]


def _blamed(row: Row, links: Links) -> str | None:
    """The node that a failure of the alert's job was blamed on last, within an hour before the alert or since."""
    if row["rule"] not in OF_A_FAILURE:
        return None
    blames = links.blames.get(row["labels"].get("job_id", ""), ())
    found = [(at_ms, node) for node, at_ms in blames if at_ms >= row["since_ms"] - BLAMED_BEFORE_MS]
    return max(found)[1] if found else None


def _weight(row: Row) -> tuple[int, int]:
    severity = str(row["severity"]).upper()
    return (SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES), row["since_ms"])


def open_causes(alerts: Iterable[Row], ask: Callable[[str], Sequence[Row]]) -> list[dict[str, Any]]:
    """Groups of these open alerts, by what connects them in the tables. Blocks as `ask` does, and raises its errors."""
    return by_cause(alerts, links_of(ask(BLAMES_QUERY), ask(LOST_QUERY)))


def _group(cause: str, found: Sequence[Row], links: Links) -> dict[str, Any]:
    ordered = sorted(found, key=lambda row: (*_weight(row), row["rule"], row["key"]))
    return {
        "cause": cause,
        "title": _title(cause, ordered, links),
        "severity": ordered[0]["severity"],
        "since_ms": min(row["since_ms"] for row in ordered),
        "rules": list(dict.fromkeys(row["rule"] for row in ordered)),
        "alerts": [dict(row) for row in ordered],
    }


def _title(cause: str, ordered: Sequence[Row], links: Links) -> str:
    kind, _, name = cause.partition(":")
    if kind == "node":
        return f"node {name}{' is lost' if name in links.lost else ''}"
    if kind == "pool":
        return f"nodes of pool {name} were lost"
    if cause == f"rule:{BUDGETS}" and len(ordered) > 1:
        return "error budgets of the platform's objectives burn too fast"
    if kind == "rule":
        return ordered[0]["summary"] or name
    return f"{kind} {name}"
