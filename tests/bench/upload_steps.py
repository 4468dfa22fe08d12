"""How much longer a training step takes while a checkpoint is uploaded beside it: two gloo ranks with an FSDP2 state, real S3 store.

Beside it torch's asynchronous saves in the same run, into a folder of this disk. Wall time and CPU seconds; the store's are told apart.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench import report
from tests.bench.rank_pair import measured
from trainhouse.deploy.local.servers.seaweedfs import StoreServer

SAVES, LAYERS = 4, 32


def run() -> None:
    """Prints one line. `TRAINHOUSE_BENCH_LAYERS`: of another state, 12.6 MB each."""
    layers = os.environ.get("TRAINHOUSE_BENCH_LAYERS", LAYERS)
    with TemporaryDirectory() as folder, StoreServer(Path(folder) / "store") as store:
        keys = (store.endpoint, store.bucket, store.access_key, store.secret_key, store.pid)
        answer = measured("upload_steps.py", layers, SAVES, *keys, timeout_s=900)
    report.line("step_during_upload", unit="ms", saves=SAVES, **answer, load_average=os.getloadavg()[0], aim=1.05)
