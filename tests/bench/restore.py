"""How fast a restore reads an S3 store: two gloo ranks with an FSDP2 state, beside bare GETs of the same objects in the same run."""

import os
import tempfile
from pathlib import Path

from tests.bench import report
from tests.bench.rank_pair import measured
from trainhouse.deploy.local.servers.seaweedfs import StoreServer

STATE_MB = 2000
REPEATS = 3


def run() -> None:
    """Prints the medians. `TRAINHOUSE_BENCH_STATE_MB`: of another state."""
    state_mb = os.environ.get("TRAINHOUSE_BENCH_STATE_MB", STATE_MB)
    with tempfile.TemporaryDirectory() as folder, StoreServer(Path(folder)) as server:
        given = (server.endpoint, server.bucket, server.access_key, server.secret_key)
        answer = measured("restore.py", state_mb, REPEATS, *given, timeout_s=900)
    report.line(
        "restore_from_s3",
        unit="MB/s",
        restores=REPEATS,
        **answer,
        aim_of_raw_get=0.9,
        is_of_raw_get=answer["restore_mb_per_s"] / answer["raw_get_mb_per_s"],
    )
