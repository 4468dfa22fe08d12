"""Pools with their devices and jobs, put together from the lists of the gateway.

Holds: the same names as over Kafka (`kafka/pool_state.py`); the gateway does not list quotas and their use, so there are no teams.
"""

from collections import Counter
from collections.abc import Sequence

from trainhouse.client.backend_protocol import Row

# Letters of a device at the gateway: free, closed or in doubt; any other is held by a gang.
FREE, UNUSABLE = "F", "XDL"


# A pool of which its scheduler has said nothing yet.
EMPTY: Row = {
    "nodes": 0,
    "nodes_open": 0,
    "nodes_lost": 0,
    "nodes_closed": 0,
    "devices": {},
    "levels": [],
    "policy": "default",
    "policy_version": 0,
    "waiting": 0,
    "running": 0,
    "teams": [],
}


def of_tables(pools: Sequence[Row], devices: Sequence[Row], jobs: Sequence[Row]) -> list[Row]:
    """The same from the gateway's lists. Pure."""
    waits = Counter(job["pool"] for job in jobs if job["state"] in ("PENDING", "PREEMPTED"))
    runs = Counter(job["pool"] for job in jobs if job["state"] not in ("PENDING", "PREEMPTED", "NEEDS_REVIEW"))
    rows = []
    for pool in pools:
        name = pool["pool"]
        fields = {key: pool[key] for key in ("pool", "partition", "nodes", "nodes_closed", "policy", "policy_version")}
        counts = {"nodes_open": pool["nodes_alive"], "nodes_lost": pool["nodes"] - pool["nodes_alive"]}
        mine = [row for row in devices if row["pool"] == name]
        rows.append(EMPTY | fields | counts | {"waiting": waits[name], "running": runs[name], "devices": _devices(mine)})
    return rows


def _devices(nodes: Sequence[Row]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for node in nodes:
        counts = found.setdefault(node["device_type"] or "unknown", {"total": 0, "held": 0, "free": 0, "closed": 0})
        letters = node["letters"]
        free, closed = letters.count(FREE), sum(letters.count(letter) for letter in UNUSABLE)
        for name, count in (("total", len(letters)), ("free", free), ("closed", closed), ("held", len(letters) - free - closed)):
            counts[name] += count
    return found
