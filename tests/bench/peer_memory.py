"""How long a restore takes from peers' memory: two gloo ranks with an FSDP2 state of two nodes, beside the store and torch's local load."""

import os

from tests.bench import report
from tests.bench.rank_pair import measured

STATE_MB = 2000
REPEATS = 5


def run() -> None:
    """Prints the three medians, from one run of the same two processes. `TRAINHOUSE_BENCH_STATE_MB`: of another state."""
    answer = measured("peer_memory.py", os.environ.get("TRAINHOUSE_BENCH_STATE_MB", STATE_MB), REPEATS, timeout_s=900)
    report.line(
        "peer_memory", unit="s", restores=REPEATS, **answer, aim_of_dcp=1.5, is_of_dcp=answer["peer_memory_s"] / answer["dcp_load_s"]
    )
