"""Placements a second on a fleet that starts empty: mixed gangs of 1..512 on 10,000 devices; when one finds no room, the oldest leaves.

The peer is what ordinary schedulers in Python do: a dict of nodes, scanned for each gang, with the same rule (fullest node with room, else
the emptiest nodes). It sees no racks, so it decides less. Both count every attempt that found no room as part of the work. Rates are
by processor time, so that other work on the machine does not count; single placements by the clock.
"""

import random
import time
from collections import deque

from tests.bench import report
from tests.support.shapes import simple
from trainhouse.events.model.policy import Packing
from trainhouse.scheduler.core.cluster.cluster import Cluster
from trainhouse.scheduler.core.cluster.node_slots import NodeSlots
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import Placement, Shape

SIZES = (1, 2, 4, 8, 12, 16, 32, 64, 128, 256, 512)
WEIGHTS = (500, 120, 100, 120, 20, 60, 40, 20, 10, 7, 3)
JOBS, NODES, PER_NODE = 30_000, 1_250, 8


def mixed(count: int) -> list[Shape]:
    """Gangs, mostly small."""
    return [simple("bench", n, "gpu") for n in random.Random(7).choices(SIZES, WEIGHTS, k=count)]


def fleet(nodes: int) -> Cluster:
    """Racks of 16 nodes, pods of 16 racks."""
    cluster = Cluster()
    for i in range(nodes):
        domains = (("rack", f"r{i // 16}"), ("pod", f"p{i // 256}"))
        cluster.put_node(NodeSlots(i, f"n{i}", "bench", ("gpu",) * PER_NODE, domains=domains))
    return cluster


def ours(nodes: int, jobs: list[Shape], packing: Packing) -> dict[str, float]:
    """All jobs through the cluster."""
    cluster, running, times, refused = fleet(nodes), deque[tuple[Placement, Shape]](), [], []
    began = time.process_time()
    for shape in jobs:
        at = time.perf_counter()
        while (placement := place(cluster, shape, packing)) is None:
            refused.append(time.perf_counter() - at)
            cluster.give(*running.popleft())
            at = time.perf_counter()
        times.append(time.perf_counter() - at)
        cluster.take(placement, shape)
        running.append((placement, shape))
    busy = time.process_time() - began
    return {
        "placements_per_s": len(jobs) / busy,
        "place_p50_us": report.percentile(times, 50) * 1e6,
        "place_p99_us": report.percentile(times, 99) * 1e6,
        "refusals": len(refused),
        "refusal_p50_us": report.percentile(refused, 50) * 1e6 if refused else 0.0,
    }


def scan(free: dict[str, int], ranks: int) -> list[tuple[str, int]] | None:
    """The peer's decision: one look at every node."""
    best = min((n for n in free if free[n] >= ranks), key=lambda n: free[n], default=None)
    if best is not None:
        return [(best, ranks)]
    out, left = [], ranks
    for node in sorted(free, key=lambda n: -free[n]):
        if left <= 0 or not free[node]:
            break
        out.append((node, min(left, free[node])))
        left -= out[-1][1]
    return out if left == 0 else None


def peer(nodes: int, jobs: list[Shape]) -> dict[str, float]:
    """The same jobs through the scan."""
    free = {f"n{i}": PER_NODE for i in range(nodes)}
    running = deque[list[tuple[str, int]]]()
    began = time.process_time()
    for shape in jobs:
        while (chosen := scan(free, shape.ranks)) is None:
            for node, count in running.popleft():
                free[node] += count
        for node, count in chosen:
            free[node] -= count
        running.append(chosen)
    return {"placements_per_s": len(jobs) / (time.process_time() - began)}


def run() -> None:
    """Prints placements a second, and how the figure grows with ten times the fleet and ten times the devices asked for."""
    jobs = mixed(JOBS)
    scanned = peer(NODES, jobs[: JOBS // 10])
    for packing in (Packing.TOPOLOGY, Packing.STRICT_CONSOLIDATE, Packing.FRAGMENTATION):
        report.line(
            "placements", devices=NODES * PER_NODE, jobs=JOBS, packing=packing.value, **ours(NODES, jobs, packing), peer_scan=scanned
        )
    report.line(
        "placements",
        devices=NODES * PER_NODE * 10,
        jobs=JOBS * 5,
        packing="topology",
        **ours(NODES * 10, mixed(JOBS * 5), Packing.TOPOLOGY),
    )
