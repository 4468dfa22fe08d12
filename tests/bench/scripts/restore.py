"""One of two ranks with an FSDP2 state: how fast a restore reads an S3 store, beside bare GETs of its chunks.

Run as `restore.py RANK PORT FOLDER STATE_MB REPEATS ENDPOINT BUCKET ACCESS_KEY SECRET_KEY`; rank 0 prints one JSON line. CPU seconds are
those of the two ranks; the store's own are beside them on the same cores.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

from tests.bench.scripts.sharded_state import BYTES_A_LAYER, joined
from trainhouse.checkpointing.chain.chunks import chunk_key, prefix_of
from trainhouse.checkpointing.chain.commits import read_entry
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper
from trainhouse.workers.session.saving.tracked_state import Tracked

GET_THREADS = 4


def main() -> None:
    rank, port = int(sys.argv[1]), sys.argv[2]
    layers, repeats = max(1, int(sys.argv[4]) * 1_000_000 // BYTES_A_LAYER), int(sys.argv[5])
    endpoint, bucket, access_key, secret_key = sys.argv[6:]
    settings = StoreSettings.model_validate({"endpoint": endpoint, "bucket": bucket, "access_key": access_key, "secret_key": secret_key})
    store = S3ObjectStore(settings)
    helper = UploadHelper(settings)  # as a session does: before there is a thread
    model, optimizer = joined(rank, port, layers)
    tracked = Tracked(model, optimizer)
    at = Checkpointer(CheckpointerSettings("bench", 1, 0, "spec"), store, helper=helper)
    saved = at.save(tracked.shared(), tracked.of_this_rank(), 1, 1.0)
    at.close()
    entry = read_entry(store, "bench", 1)
    assert isinstance(entry, Manifest)
    keys = sorted({chunk_key(chunk.sha256, prefix_of(entry)) for chunk in entry.chunks})[rank::2]

    def bare() -> None:
        client = store._client()

        def read(key: str) -> int:
            return len(client.get_object(Bucket=bucket, Key=key)["Body"].read())

        with ThreadPoolExecutor(GET_THREADS) as threads:
            list(threads.map(read, keys))

    def restore(epoch: int) -> None:
        attempt = Checkpointer(CheckpointerSettings("bench", epoch, epoch - 1, "spec"), store)
        attempt.claim()
        assert attempt.restore(tracked.shared(), tracked.put_back_own).restored is not None
        attempt.close()

    taken: dict[str, list[tuple[float, float]]] = {"raw_get": [], "restore": []}
    for repeat in range(repeats):
        taken["raw_get"].append(_timed(bare))
        taken["restore"].append(_timed(lambda: restore(2 + repeat)))  # noqa: B023  (called at once)
    if rank == 0:
        mb = saved.bytes_total / 1e6
        answer = {"state_mb": mb}
        for name, found in taken.items():
            answer[f"{name}_mb_per_s"] = mb / statistics.median(wall_s for wall_s, _ in found)
            answer[f"{name}_cpu_s_per_gb"] = statistics.median(cpu_s for _, cpu_s in found) / mb * 1000
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds until both ranks have done it, and CPU seconds of both."""
    dist.barrier()
    began_s, cpu_s = time.perf_counter(), time.process_time()
    work()
    both_s = torch.tensor(time.process_time() - cpu_s, dtype=torch.float64)
    dist.barrier()
    wall_s = time.perf_counter() - began_s
    dist.all_reduce(both_s)
    return wall_s, both_s.item()


if __name__ == "__main__":
    main()
