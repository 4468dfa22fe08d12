"""How fast a checkpoint is uploaded that training waits for, beside boto3's own transfer of one file at as many requests.

One rank, a real S3 store, the same run, in turns. The store's own work is in both figures.
"""

import io
import os
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import boto3
import torch
from boto3.s3.transfer import TransferConfig

from tests.bench import report
from trainhouse.checkpointing.chain.pace import FULL_THREADS
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.checkpointing.uploading.upload_helper import UploadHelper
from trainhouse.deploy.local.servers.seaweedfs import StoreServer
from trainhouse.events.model.spec import UploadPace

SIZE_MB, ROUNDS, TENSORS, PART_MB = 512, 5, 32, 16


def run() -> None:
    """Prints one line. `TRAINHOUSE_BENCH_STATE_MB`: of another state."""
    size_mb = int(os.environ.get("TRAINHOUSE_BENCH_STATE_MB", SIZE_MB))
    with TemporaryDirectory() as folder, StoreServer(Path(folder) / "store") as store:
        keys = {"endpoint": store.endpoint, "bucket": store.bucket, "access_key": store.access_key, "secret_key": store.secret_key}
        figures = _measured(StoreSettings.model_validate(keys), size_mb)
    report.line("upload_full", unit="MB/s", state_mb=size_mb, rounds=ROUNDS, **figures, load_average=os.getloadavg()[0], aim=0.9)


def _measured(settings: StoreSettings, size_mb: int) -> dict[str, float]:
    helper = UploadHelper(settings)
    at = {
        pace: Checkpointer(CheckpointerSettings(pace.value, 1, 0, "spec", pace=pace), S3ObjectStore(settings), helper=helper)
        for pace in UploadPace
    }
    state = {f"w{number}": torch.empty(size_mb * 10**6 // (4 * TENSORS)) for number in range(TENSORS)}
    found: dict[str, list[float]] = {pace.value: [] for pace in UploadPace} | {"boto3": []}
    config = TransferConfig(max_concurrency=FULL_THREADS, multipart_chunksize=PART_MB * 2**20, multipart_threshold=PART_MB * 2**20)
    secret = settings.secret_key.get_secret_value() if settings.secret_key is not None else None
    client = boto3.client(
        "s3",
        endpoint_url=settings.endpoint,
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=secret,
        region_name=settings.region,
    )
    for number in range(ROUNDS + 1):
        for pace, checkpointer in at.items():
            for tensor in state.values():
                tensor.random_()  # of other bytes each time, or nothing is sent
            pending = checkpointer.begin_save(state, {}, number, float(number))
            while not pending.done:  # to wait for its result would hurry it
                time.sleep(0.005)
            found[pace.value].append(size_mb / pending.result().upload_s)
        content = b"".join(tensor.random_().numpy().tobytes() for tensor in state.values())
        begun = time.perf_counter()
        client.upload_fileobj(io.BytesIO(content), settings.bucket, f"boto3/{number}", Config=config)
        found["boto3"].append(size_mb / (time.perf_counter() - begun))
    for checkpointer in at.values():
        checkpointer.close()
    medians = {name: statistics.median(rates[1:]) for name, rates in found.items()}  # the first is for those who warm up
    return medians | {"full_share": medians["full"] / medians["boto3"]}
