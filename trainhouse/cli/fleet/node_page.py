"""`nodes NODE`: one machine on a page: how it is, why it is closed, its devices, what failed on it, what runs there.

Holds: everything comes from SQL; times are milliseconds since 1970, UTC where they are shown.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from trainhouse.cli.shared.exit_codes import CliError, Exit

Row = dict[str, Any]
Ask = Callable[[str, Mapping[str, str | int]], list[Row]]
"""A query and the values that are bound to its `{name:Type}`."""

_DEGRADED = "'trainhouse.device.degraded.v1'"
_LIFTED = "'trainhouse.verdict.lifted.v1'"
_BLAMED = "'trainhouse.failure.blamed.v1'"
_RECENT = "node_id = {node:String} AND at >= fromUnixTimestamp64Milli({since:Int64})"

NODE = """
SELECT node_id, pool, state, restriction, restriction_reason, restricted_by, address, device_type, devices, cpus, memory_bytes, labels,
    boot_id, ranks_running, toUnixTimestamp64Milli(registered_at) AS registered_at_ms,
    toUnixTimestamp64Milli(last_heartbeat_at) AS last_heartbeat_at_ms, toUnixTimestamp64Milli(lost_at) AS lost_at_ms, lost_reason,
    dateDiff('millisecond', coalesce(last_heartbeat_at, registered_at), now64(3)) / 1000 AS silent_s
FROM nodes WHERE node_id = {node:String}
"""
# Since its last opening, the first time that it was closed, and how often since.
CLOSED = """
SELECT toUnixTimestamp64Milli(min(restricted_at)) AS closed_at_ms, toUnixTimestamp64Milli(max(restricted_at)) AS newest_at_ms
FROM node_restrictions
WHERE node_id = {node:String} AND restriction != 'NONE'
    AND version > (SELECT max(version) FROM node_restrictions WHERE node_id = {node:String} AND restriction = 'NONE')
HAVING count() > 0
"""
DEVICES = f"""
SELECT device_id, fault, argMax(type, at) = {_DEGRADED} AS stands, countIf(type = {_DEGRADED}) AS times,
    toUnixTimestamp64Milli(maxIf(at, type = {_DEGRADED})) AS seen_at_ms,
    toUnixTimestamp64Milli(argMaxIf(assumeNotNull(since), at, type = {_DEGRADED} AND since IS NOT NULL)) AS since_ms,
    argMaxIf(value, at, type = {_DEGRADED}) AS value, argMaxIf(evidence, at, type = {_DEGRADED}) AS evidence
FROM verdicts
WHERE {_RECENT} AND (type = {_DEGRADED} OR (type = {_LIFTED} AND lifted = {_DEGRADED}))
GROUP BY device_id, fault HAVING times > 0 ORDER BY stands DESC, seen_at_ms DESC, device_id
"""
FAILURES = f"""
SELECT toUnixTimestamp64Milli(ifNull(failed_at, at)) AS failed_at_ms, job_id, attempt, category, rule, device_id, rank, shard, mine, summary
FROM verdicts WHERE {_RECENT} AND type = {_BLAMED} ORDER BY failed_at_ms DESC, job_id LIMIT {{limit:UInt32}}
"""
HISTORY = f"""
SELECT toUnixTimestamp64Milli(at) AS at_ms, type, job_id, device_id, rank, summary, evidence
FROM verdicts WHERE {_RECENT} AND type != {_BLAMED} ORDER BY at_ms DESC, event_id LIMIT {{limit:UInt32}}
"""
ISOLATION = """
SELECT mode, complete, layer, is_on, layer_reason FROM node_isolation WHERE node_id = {node:String} ORDER BY layer
"""
RUNNING = """
SELECT r.job_id AS job_id, j.name AS name, j.user AS user, r.attempt AS attempt, r.rank AS rank, r.device_id AS device_id,
    r.state AS state, r.step AS step
FROM ranks AS r LEFT JOIN (SELECT job_id, any(name) AS name, any(user) AS user FROM jobs GROUP BY job_id) AS j ON j.job_id = r.job_id
WHERE r.node_id = {node:String} AND r.state != 'EXITED' AND (r.job_id, r.epoch) IN
    (SELECT job_id, epoch FROM allocations WHERE node_id = {node:String} AND freed_at IS NULL)
ORDER BY job_id, rank
"""


def gather(ask: Ask, node: str, since_ms: int, limit: int) -> Row:
    """All of the page. Raises CliError where there is no such node. Blocks."""
    about: dict[str, str | int] = {"node": node}
    recent = about | {"since": since_ms}
    found = ask(NODE, about)
    if not found:
        raise CliError(f"there is no node {node!r}; `trainhouse nodes` lists those that registered", Exit.NOT_FOUND)
    closed = ask(CLOSED, about) if found[0]["restriction"] != "NONE" else []
    return {
        **found[0],
        "closed_at_ms": closed[0]["closed_at_ms"] if closed else None,
        "faults": ask(DEVICES, recent),
        "failures": ask(FAILURES, recent | {"limit": limit}),
        "history": ask(HISTORY, recent | {"limit": limit}),
        "running": ask(RUNNING, about),
        "isolation": ask(ISOLATION, about),
    }


def show(page: Row, now_ms: int) -> None:
    """The page for a person."""
    from trainhouse.cli.shared import output

    for name, text in head(page, now_ms):
        sys.stdout.write(f"{name:<12}{text}\n")
    sys.stdout.flush()
    _table("devices with faults", page["faults"], ("device", "fault", "now", "times", "seen", "since", "what"), _fault)
    _table("failures", page["failures"], ("failed", "job", "attempt", "category", "rule", "device", "rank", "what"), _failure)
    _table("history", page["history"], ("at", "what", "why"), _happening)
    _table("runs there", page["running"], ("job", "name", "user", "attempt", "rank", "device", "state", "step"), _rank)
    if not page["running"]:
        output.remark("nothing runs there")


def head(page: Row, now_ms: int) -> list[tuple[str, str]]:
    """Returns the head above the tables, as (name, text). Pure."""
    from trainhouse.cli.shared.output import clock, duration

    blamed = sum(f["category"] in ("NODE", "DEVICE") for f in page["failures"])
    memory = f", {page['memory_bytes'] / 2**30:.0f} GiB" if page["memory_bytes"] else ""
    labels = ", ".join(f"{k}={v}" for k, v in sorted(page["labels"].items()))
    lost = f": {page['lost_reason']}" if page["state"] == "LOST" else ""
    lines = [
        ("node", f"{page['node_id']} in pool {page['pool']}, {page['address']}"),
        ("state", f"{page['state']}{lost}; last heard of {duration(max(0.0, page['silent_s']))} ago"),
        ("closed", closed(page, now_ms)),
        ("devices", f"{page['devices']} {page['device_type']}, {page['cpus']:g} cpus{memory}"),
        ("isolation", isolation(page.get("isolation", []))),
        ("blamed", f"{blamed} of {len(page['failures'])} failures that began there" if page["failures"] else "no failure began there"),
        ("since", f"{clock(page['registered_at_ms'])} (boot {page['boot_id']})"),
    ]
    return [*lines, ("labels", labels)] if labels else lines


def isolation(layers: list[Row]) -> str:
    """Describes the confinement of jobs there, layer by layer, and why some are missing. Pure."""
    if not layers:
        return "none: its agent confines no job, or does not say so"
    there = [row["layer"] for row in layers if row["is_on"]]
    missing = [f"no {row['layer']} ({row['layer_reason']})" for row in layers if not row["is_on"]]
    partly = [f"{row['layer']}: {row['layer_reason']}" for row in layers if row["is_on"] and row["layer_reason"]]
    whole = "whole" if layers[0]["complete"] else "in part"
    return f"{layers[0]['mode']}, {whole}: {', '.join([*there, *missing, *partly])}"


def closed(page: Row, now_ms: int) -> str:
    """Describes why the node takes no new gangs, since when, and the way out. Pure."""
    from trainhouse.cli.shared.output import clock, duration

    if page["restriction"] == "NONE":
        return "no"
    at_ms = page["closed_at_ms"]
    since = f" since {clock(at_ms)} ({duration((now_ms - at_ms) / 1000)})" if at_ms else ""
    why = page["restriction_reason"] or "no reason given"
    return f"{page['restriction']}{since} by {page['restricted_by']}: {why}; `trainhouse node uncordon {page['node_id']}` opens it"


def _table(title: str, rows: list[Row], columns: tuple[str, ...], cells: Callable[[Row], tuple[Any, ...]]) -> None:
    from trainhouse.cli.shared import output

    if rows:
        sys.stdout.write(f"\n{title}\n")
        sys.stdout.flush()
        output.table(columns, map(cells, rows), right=("times", "attempt", "rank", "step"))


def _fault(row: Row) -> tuple[Any, ...]:
    from trainhouse.cli.shared.output import clock, one_line

    now = "stands" if row["stands"] else "over"
    return (
        row["device_id"],
        row["fault"],
        now,
        row["times"],
        clock(row["seen_at_ms"]),
        clock(row["since_ms"]),
        one_line(row["evidence"], 160),
    )


def _failure(row: Row) -> tuple[Any, ...]:
    from trainhouse.cli.shared.output import clock, one_line

    fields = (row["job_id"], row["attempt"], row["category"], row["rule"], row["device_id"], row["rank"])
    return (clock(row["failed_at_ms"]), *fields, one_line(row["summary"], 200))


def _happening(row: Row) -> tuple[Any, ...]:
    from trainhouse.cli.shared.output import clock, one_line

    why = one_line(row["evidence"], 200)
    return (clock(row["at_ms"]), one_line(row["summary"], 160), "" if why in row["summary"] else why)


def _rank(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("job_id", "name", "user", "attempt", "rank", "device_id", "state", "step"))
