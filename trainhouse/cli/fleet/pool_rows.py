"""`pool show`: what a pool has, who uses it, as a person reads it."""

import sys
from collections.abc import Mapping
from typing import Any

from trainhouse.cli.shared import output

Row = dict[str, Any]


def print_pool(row: Row) -> None:
    """One pool for a person."""
    for name, text in details(row):
        sys.stdout.write(f"{name:<12}{text}\n")
    if row["devices"]:
        columns = ("total", "held", "free", "closed")
        output.table(("devices", *columns), ([t, *(c[k] for k in columns)] for t, c in row["devices"].items()), right=columns)
    if row["teams"]:
        right = ("held", "share", "fair share", "waiting")
        output.table(("team", "held", "guaranteed", "limit", "share", "fair share", "waiting"), map(_team, row["teams"]), right=right)
    sys.stdout.write("\n")
    sys.stdout.flush()


def details(row: Row) -> list[tuple[str, str]]:
    """One pool as (name, text)."""
    counts = [f"{row['nodes_open']} open"]
    counts += [f"{row[key]} {what}" for key, what in (("nodes_closed", "closed by a person"), ("nodes_lost", "lost")) if row[key]]
    version = f", version {row['policy_version']}" if row["policy_version"] else ", never changed"
    return [
        ("pool", f"{row['pool']}, on partition {row['partition']}"),
        ("nodes", f"{row['nodes']}" + (f" ({', '.join(counts)})" if row["nodes"] else "")),
        ("topology", ", ".join(row["levels"]) or "no levels told"),
        ("policy", row["policy"] + version),
        ("jobs", f"{row['running']} with devices, {row['waiting']} waiting"),
    ]


def _team(team: Row) -> tuple[Any, ...]:
    return (
        team["team"],
        team["devices"],
        _amounts(team["guaranteed"]),
        _amounts(team["limit"]),
        f"{team['share']:.1%}",
        f"{team['fair_share']:.1%}",
        team["waiting"],
    )


def _amounts(by_type: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(by_type.items()))
