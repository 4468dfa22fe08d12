"""Pools with their devices, jobs and teams: as their schedulers have them, or put together from what the gateway tells.

Holds: the same names either way; the gateway does not tell of quotas and their use, so there are no teams then.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainhouse.client.backend_protocol import Row
from trainhouse.client.clock import now_ms

if TYPE_CHECKING:
    from trainhouse.events.settings import KafkaSettings

# Letters of a device at the gateway: free, closed or in doubt; any other is held by a gang.
FREE, UNUSABLE = "F", "XDL"


def overview(kafka: "KafkaSettings", pools: Mapping[str, int]) -> list[Row]:
    """One row for each of these pools (by partition), with the use of each team in it. Blocks."""
    from trainhouse.client.kafka.present import schedule_at
    from trainhouse.scheduler.past import NoSuchMoment
    from trainhouse.scheduler.view import cluster

    try:
        now = schedule_at(kafka, partitions=sorted(set(pools.values())))
    except NoSuchMoment:
        return [{"pool": pool, "partition": pools[pool]} | EMPTY for pool in sorted(pools)]
    # An idle journal has no record for up to two minutes; time passes all the same.
    found = cluster((f.state for f in now.partitions.values()), max(now.last_ms, now_ms()))
    rows = {row["pool"]: row for row in found["pools"]}
    return [
        rows.get(pool, {"pool": pool, "partition": pools[pool]} | EMPTY) | {"teams": [t for t in found["teams"] if t["pool"] == pool]}
        for pool in sorted(pools)
    ]


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
        told = {key: pool[key] for key in ("pool", "partition", "nodes", "nodes_closed", "policy", "policy_version")}
        counts = {"nodes_open": pool["nodes_alive"], "nodes_lost": pool["nodes"] - pool["nodes_alive"]}
        mine = [row for row in devices if row["pool"] == name]
        rows.append(EMPTY | told | counts | {"waiting": waits[name], "running": runs[name], "devices": _devices(mine)})
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
