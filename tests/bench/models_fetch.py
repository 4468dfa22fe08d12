"""A version of 500 MB from a local S3 store into a folder, beside boto3's transfers of a file of that size, tuned, in the same run."""

import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from boto3.s3.transfer import TransferConfig

from tests.bench import report
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.checkpointing.exchange.export import Format
from trainhouse.checkpointing.lease.lease_facts import owned
from trainhouse.checkpointing.models.fetch import fetch
from trainhouse.checkpointing.models.named_version import find_version, parse_reference
from trainhouse.checkpointing.models.stage_chain import StagedVersion, StageRecord, append
from trainhouse.checkpointing.models.version_content import VersionParts, prepare_version
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore
from trainhouse.deploy.local.servers.seaweedfs import StoreServer
from trainhouse.events.model.resume_ref import parse_resume_from

MODEL_MB = 500
LAYER_BYTES = 16_000_000
REPEATS = 5
TRIED = ((4, 8), (8, 8), (8, 16), (10, 32), (2, 16))
"""Threads and MiB a part that boto3 is tried with; the best one counts."""
AIM = 0.9


def run() -> None:
    """Prints the medians. `TRAINHOUSE_BENCH_MODEL_MB`: of another size."""
    model_mb = int(os.environ.get("TRAINHOUSE_BENCH_MODEL_MB", MODEL_MB))
    with tempfile.TemporaryDirectory() as folder, StoreServer(Path(folder) / "store") as server:
        given = {"endpoint": server.endpoint, "bucket": server.bucket, "access_key": server.access_key, "secret_key": server.secret_key}
        objects = S3ObjectStore(StoreSettings.model_validate(given))
        size_bytes = _registered(objects, model_mb)
        _one_object(objects, size_bytes)
        out = Path(folder) / "out"
        taken = _measured(objects, server.bucket, out)
    best = min((name for name in taken if name.startswith("boto3")), key=lambda name: statistics.median(wall for wall, _ in taken[name]))
    mb_per_s = {name: size_bytes / 1e6 / statistics.median(wall for wall, _ in found) for name, found in taken.items()}
    cpu_s = {name: statistics.median(cpu for _, cpu in found) for name, found in taken.items()}
    report.line(
        "models_fetch",
        unit="MB/s",
        model_mb=size_bytes / 1e6,
        fetches=REPEATS,
        fetch_mb_per_s=mb_per_s["fetch"],
        boto3_mb_per_s=mb_per_s[best],
        boto3_best=best,
        fetch_cpu_s=cpu_s["fetch"],
        boto3_cpu_s=cpu_s[best],
        aim_of_boto3=AIM,
        is_of_boto3=mb_per_s["fetch"] / mb_per_s[best],
    )


def _registered(objects: S3ObjectStore, model_mb: int) -> int:
    """Registers random weights as the champion of `bench`; returns their bytes."""
    owned(objects, "bench", "default", 0)
    layers = max(1, model_mb * 1_000_000 // LAYER_BYTES)
    model = {f"layers.{number}": torch.randn(LAYER_BYTES // 4) for number in range(layers)}
    Checkpointer(CheckpointerSettings("bench", 1, 0, "spec"), objects).save({"model": model}, {}, 1, 1.0)
    prepared = prepare_version(objects, "default", parse_resume_from("bench"), VersionParts())
    staged = StagedVersion(version=1, semver="1.0.0", content=prepared.sha256)
    append(
        objects, StageRecord(project="default", name="bench", decision=1, kind="promoted", subject=staged, champion=staged, at_ms=10**12)
    )
    return layers * LAYER_BYTES


def _one_object(objects: S3ObjectStore, size_bytes: int) -> None:
    with tempfile.TemporaryFile() as file:
        for _ in range(size_bytes // LAYER_BYTES):
            file.write(os.urandom(LAYER_BYTES))
        objects.put_file("bench-object", file)


def _measured(objects: S3ObjectStore, bucket: str, out: Path) -> dict[str, list[tuple[float, float]]]:
    """Wall and CPU seconds of this process, by what was done, in turns; each flushed to disk."""

    def fetched() -> None:
        fetch(objects, find_version(objects, parse_reference("bench@champion")), Format.SAFETENSORS, out)

    def transferred(threads: int, part_mib: int) -> None:
        config = TransferConfig(multipart_threshold=2**23, multipart_chunksize=part_mib << 20, max_concurrency=threads)
        out.mkdir()
        path = out / "object"
        objects._client().download_file(bucket, "bench-object", str(path), Config=config)
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    works: dict[str, Callable[[], Any]] = {"fetch": fetched}
    works |= {f"boto3 {threads} × {part} MiB": lambda t=threads, p=part: transferred(t, p) for threads, part in TRIED}  # type: ignore[misc]
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(REPEATS):
        for name, work in works.items():
            shutil.rmtree(out, ignore_errors=True)
            began_s, cpu_s = time.perf_counter(), time.process_time()
            work()
            taken[name].append((time.perf_counter() - began_s, time.process_time() - cpu_s))
    assert threading.active_count() < 64
    return taken
