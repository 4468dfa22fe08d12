"""The faults of the mttr bench: a stretch of a production cluster's faults, pressed into minutes; and what other rules make of them.

Times between faults and repairs are pressed by the same factor, so that as large a part of the nodes is away as was there. What happens to
a job follows from the trace's class of the fault (KINDS); what the trace calls unknown takes the machine away.

Holds: the same stretch gives the same faults.
"""

import csv
import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainhouse.scheduler.policies import load
from trainhouse.scheduler.sim.faults_file import merge
from trainhouse.scheduler.sim.loop import simulate
from trainhouse.scheduler.sim.types import Fault, Options, SimNode, TraceJob

TRACE = Path(os.environ.get("TRAINHOUSE_TRACES", Path(__file__).parents[3] / "shared" / "traces")) / "infinitehbd_faults.csv.gz"
FIRST_ROW = 200
"""A stretch that has every kind."""

KINDS = {"GPU": "device", "Parameter Plane Cable": "hang", "NIC": "silent", "Fan": "notice", "Motherboard Battery": "notice"} | {
    "Change": "notice"
}
"""By class. Sensors and changes announce themselves; a cut data plane leaves collectives waiting; software is the agent; else: `die`."""

MIN_FOR_S = {"die": 5.0, "notice": 5.0, "silent": 5.0, "restart": 2.0, "device": 0.0, "hang": 0.0}
NOTICE_S = 8.0
PEER_DETECTION_S = 30
"""What torchrun gives a stopped worker before it restarts a gang."""


@dataclass(frozen=True)
class Pressed:
    """A fault of the bench: seconds from the first one's time zero."""

    at_s: float
    node: int
    kind: str
    for_s: float


def pressed(count: int, over_s: float, nodes: int) -> tuple[list[Pressed], float]:
    """`count` faults within `over_s`, and by what factor time was pressed. Raises OSError."""
    with gzip.open(TRACE, "rt") as file:
        rows = list(csv.DictReader(file))
    named = sorted({r["node_id"] for r in rows})
    places = {name: k * nodes // len(named) for k, name in enumerate(named)}
    chosen = rows[FIRST_ROW : FIRST_ROW + count]
    first_s, last_s = int(chosen[0]["time_s"]), int(chosen[-1]["time_s"])
    factor = (last_s - first_s) / over_s
    found = []
    for row in chosen:
        kind = "restart" if row["level"] == "software" else KINDS.get(row["class"], "die")
        away_s = (int(row["repaired_s"]) - int(row["time_s"])) / factor
        found.append(Pressed((int(row["time_s"]) - first_s) / factor, places[row["node_id"]], kind, max(MIN_FOR_S[kind], away_s)))
    return found, factor


def peer_lost_device_s(faults: Sequence[Pressed], sizes: Sequence[int], nodes: int, gpus: int, start_s: float, checkpoint_s: int) -> float:
    """Device-seconds lost under a plain rule: seen after PEER_DETECTION_S, then the whole gang queues again, last in, last out.

    By the simulator: the delay of every job, times its devices. The peer is spared what only concerns an agent or its network.
    """
    run_s = 600
    length = {"device": 1.0, "hang": 1.0}
    struck = [
        Fault(round(f.at_s), f"n{f.node}", f.kind, round(f.at_s) + max(1, round(length.get(f.kind, f.for_s))))
        for f in faults
        if f.kind not in ("silent", "restart")
    ]
    jobs = [TraceJob(f"j{n}", "", 0, run_s, size) for n, size in enumerate(sizes)]
    options = Options(checkpoint_s=checkpoint_s, restart_s=round(PEER_DETECTION_S + start_s), segments=False)
    result = simulate(jobs, [SimNode(f"n{n}", gpus) for n in range(nodes)], load("fifo"), faults=merge(struck), options=options)
    return float(sum(r.gpus * ((r.jct_s or 0) - run_s) for r in result.rows))
