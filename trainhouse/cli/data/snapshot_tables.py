"""The cluster at a moment, as tables for a person. Pure but for the printing.

Holds: one table for each kind of row that there is; what is empty is said in one line.
"""

import sys
from collections.abc import Callable
from typing import Any, Final

from trainhouse.cli.shared import output
from trainhouse.cli.shared.output import clock, duration, one_line

Row = dict[str, Any]
NONE_OF: Final = {
    "nodes": "no nodes",
    "running": "no gang has devices",
    "queue": "nobody waits",
    "policies": "no policy was ever applied: the default decides",
    "reservations": "no start time is held",
    "claims": "no devices are claimed",
}


def print_cluster(kinds: dict[str, list[Row]], at_ms: int) -> None:
    """All tables."""
    for kind, title in NONE_OF.items():
        rows, (columns, cells, right) = kinds[kind], TABLES[kind]
        if rows:
            output.table(columns, [cells(row, at_ms) for row in rows], right=right, drop=DROP[kind])
        else:
            sys.stdout.write(f"{title}\n")
            sys.stdout.flush()


def _node(row: Row, at_ms: int) -> tuple[Any, ...]:
    kinds = row["devices"].items()
    closed = "" if row["restriction"] == "NONE" else f"{row['restriction']} by {row['restricted_by']}: {row['restricted_for']}"
    holders = ", ".join(f"{h['job_id']} ({len(h['devices'])})" for h in row["holds"])
    devices = ", ".join(f"{c['total']} {t}" for t, c in kinds)
    return (row["node_id"], row["pool"], row["health"], closed, devices, _sum(row, "held"), _sum(row, "free"), holders)


def _sum(row: Row, what: str) -> float:
    return float(sum(counts[what] for counts in row["devices"].values()))


def _gang(row: Row, at_ms: int) -> tuple[Any, ...]:
    nodes = ", ".join(f"{n['node_id']} ({n['ranks']})" for n in row["nodes"])
    return (row["job_id"], row["state"], row["pool"], row["team"], row["priority"], row["ranks"], _ago(row["since_ms"], at_ms), nodes)


def _waiting(row: Row, at_ms: int) -> tuple[Any, ...]:
    about = (row["place"], row["job_id"], row["pool"], row["team"], row["priority"], row["ranks"], row["device_type"])
    return (*about, _ago(row["waits_since_ms"], at_ms), one_line(row["reason"], 80))


def _policy(row: Row, at_ms: int) -> tuple[Any, ...]:
    return (row["pool"], row["name"], row["version"], row["policy"]["order"], row["policy"]["blocking"])


def _reservation(row: Row, at_ms: int) -> tuple[Any, ...]:
    return (row["job_id"], clock(row["start_ms"]), duration((row["start_ms"] - at_ms) / 1000), ", ".join(row["node_ids"]))


def _claim(row: Row, at_ms: int) -> tuple[Any, ...]:
    parts = ", ".join(f"{p['node_id']} ({len(p['devices'])})" for p in row["parts"])
    return (row["job_id"], _ago(row["made_at_ms"], at_ms), parts, ", ".join(row["victims"]))


def _ago(since_ms: int, at_ms: int) -> str:
    return duration(max(0, at_ms - since_ms) / 1000)


Cells = Callable[[Row, int], tuple[Any, ...]]
DROP: Final[dict[str, tuple[str, ...]]] = {
    "nodes": ("pool", "closed", "held by", "devices"),
    "running": ("team", "pool", "priority", "for", "nodes"),
    "queue": ("pool", "team", "device", "priority", "waits", "reason"),
    "policies": ("version", "blocking", "order"),
    "reservations": ("nodes", "in"),
    "claims": ("claimed for", "asked to leave", "devices"),
}
TABLES: Final[dict[str, tuple[tuple[str, ...], Cells, tuple[str, ...]]]] = {
    "nodes": (("node", "pool", "health", "closed", "devices", "held", "free", "held by"), _node, ("held", "free")),
    "running": (("job", "state", "pool", "team", "priority", "ranks", "for", "nodes"), _gang, ("priority", "ranks")),
    "queue": (
        ("place", "job", "pool", "team", "priority", "ranks", "device", "waits", "reason"),
        _waiting,
        ("place", "priority", "ranks"),
    ),
    "policies": (("pool", "policy", "version", "order", "blocking"), _policy, ("version",)),
    "reservations": (("job", "reserved start", "in", "nodes"), _reservation, ()),
    "claims": (("job", "claimed for", "devices", "asked to leave"), _claim, ()),
}
