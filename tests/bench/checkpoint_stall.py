"""How long a save holds training up: two gloo ranks with an FSDP2 state, beside a plain copy of it and torch's asynchronous saves."""

import os

from tests.bench import report
from tests.bench.rank_pair import measured

SAVES = 12
STATE_MB = 403


def run() -> None:
    """Prints our stall, that of a plain copy, and the peers', from one run. `TRAINHOUSE_BENCH_STATE_MB`: of another state."""
    answer = measured("checkpoint_stall.py", SAVES, os.environ.get("TRAINHOUSE_BENCH_STATE_MB", STATE_MB), timeout_s=900)
    report.line(
        "checkpoint_stall", unit="ms", saves=SAVES, **answer, aim_of_memcpy=1.2, is_of_memcpy=answer["stall_ms"] / answer["memcpy_ms"]
    )
