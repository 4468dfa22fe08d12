"""Samples a second of `session.loader` off a real S3 store with an empty cache, beside WebDataset, MDS and bare GETs; data wait of the
example `gpt.py`'s step off that store.

All read the same samples of 2 to 100 KB in batches of 64 by 2 worker processes, one after the other, from the first sample on; what is
counted begins after 8 batches. TRAINHOUSE_BENCH_STORE_SAMPLES is their number: 4,000 by default, 40,000 are 1 GB.
"""

import math
import os
import random
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.data import DataLoader

from tests.bench import report
from tests.bench.peers import environment
from tests.bench.peers.stateful_loader import as_list, samples_per_s
from tests.support.dataset_versions import manifest
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.s3 import S3ObjectStore, new_client
from trainhouse.deploy.local.servers.seaweedfs import StoreServer
from trainhouse.events.model.dataset_keys import index_key, manifest_key, shard_key
from trainhouse.workers.data.batches import Share
from trainhouse.workers.data.data_loader import MapStyle, Reading, make_loader
from trainhouse.workers.data.published_data import open_split
from trainhouse.workers.data.settings import DataSettings
from trainhouse.workers.data.sharded_dataset import ShardedDataset
from trainhouse.workers.data.shards import Shard, ShardWriter
from trainhouse.workers.examples.gpt import DEFAULTS
from trainhouse.workers.examples.model import ByteGPT

SAMPLES = int(os.environ.get("TRAINHOUSE_BENCH_STORE_SAMPLES", "4000"))
BATCH, WORKERS, SHARD_BYTES, PROJECT = 64, 2, 16 << 20, "bench"
LEAST_BYTES, MOST_BYTES, GET_BYTES, GETS = 2_000, 100_000, 4 << 20, 8
STEPS = 200
SMALL, CONTEXT, GPT_BATCH = 10_000, int(DEFAULTS["context"]), int(DEFAULTS["batch"])


def run() -> None:
    """Prints the rates, the seconds of a resume, and the waits."""
    with TemporaryDirectory() as name, StoreServer(Path(name, "store")) as server:
        folder = Path(name)
        secret: Any = server.secret_key
        settings = StoreSettings(endpoint=server.endpoint, bucket=server.bucket, access_key=server.access_key, secret_key=secret)
        objects = S3ObjectStore(settings)
        shards = written(folder / "shards", sizes())
        version = publish(objects, folder / "shards", shards)
        measured: dict[str, Any] = {"bare_get_mb_s": _bare_get_mb_s(objects, shards)}
        batches = SAMPLES // BATCH - 8
        measured["trainhouse"] = samples_per_s(loader(opened(objects, version, folder / "cache")), batches, BATCH)
        measured |= _peers(server, settings, folder, shards, batches)
        report.line("loader_store", unit="samples/s", samples=SAMPLES, workers=WORKERS, batch=BATCH, **measured)
        _gpt(objects, folder)


def sizes() -> list[int]:
    """Bytes of each sample: even by their logarithm, 25 KB on average."""
    chance = random.Random(1)
    return [int(LEAST_BYTES * math.exp(chance.random() * math.log(MOST_BYTES / LEAST_BYTES))) for _ in range(SAMPLES)]


def written(folder: Path, lengths: list[int], shard_bytes: int = SHARD_BYTES) -> list[Shard]:
    """Shards of random samples of these lengths; beside them the samples in one file."""
    folder.mkdir()
    chance, ends = random.Random(2), array("q", [0])
    with (folder / "samples").open("wb") as data, ShardWriter(folder, shard_bytes) as writer:
        for number, length in enumerate(lengths):
            content = chance.randbytes(length)
            writer.add(f"{number:08}", {"bin": content})
            ends.append(ends[-1] + data.write(content))
    (folder / "offsets").write_bytes(ends.tobytes())
    return writer.shards


def publish(objects: S3ObjectStore, folder: Path, shards: list[Shard]) -> str:
    """Puts shards and their manifest where a publication has them; the version's name by its hash."""
    for shard in dict.fromkeys(shards):
        with (folder / shard.tar_name).open("rb") as tar:
            objects.put_file(shard_key(PROJECT, shard.sha256), tar)
        objects.put(index_key(PROJECT, shard.sha256), (folder / shard.index_name).read_bytes())
    facts = [{"sha256": s.sha256, "index_sha256": s.index_sha256, "bytes": s.size_bytes, "samples": s.samples} for s in shards]
    size, samples = sum(s.size_bytes for s in shards), sum(s.samples for s in shards)
    version = manifest(splits={"train": {"shards": facts, "samples": samples, "bytes": size}}, row_count=samples, bytes=size)
    objects.put(manifest_key(PROJECT, version.sha256()), version.canonical_json())
    return f"bench@sha256:{version.sha256()}"


def opened(objects: S3ObjectStore, version: str, cache: Path) -> ShardedDataset:
    """The split as a session opens it on one node."""
    return open_split(version, PROJECT, "train", objects, DataSettings(cache_dir=cache, cache_gib=8))


def loader(dataset: MapStyle, batch: int = BATCH, workers: int = WORKERS, decode: Any = None) -> Iterator[Any]:
    """As `session.loader` makes it."""
    return make_loader(dataset, Share(batch), 1, True, None, Reading(workers, decode, torch.stack if decode else as_list))


def _bare_get_mb_s(objects: S3ObjectStore, shards: list[Shard]) -> float:
    """Rate of ranged GETs of this process by threads, of 4 MiB each, kept nowhere."""
    places = [(shard.sha256, start) for shard in shards for start in range(0, shard.size_bytes, GET_BYTES)]
    began = time.perf_counter()
    with ThreadPoolExecutor(GETS) as pool:
        size = sum(pool.map(lambda place: len(objects.get_range(shard_key(PROJECT, place[0]), place[1], GET_BYTES)), places))
    return size / 1e6 / (time.perf_counter() - began)


def _peers(server: StoreServer, settings: StoreSettings, folder: Path, shards: list[Shard], batches: int) -> dict[str, float]:
    client = new_client(settings)
    signed = [
        client.generate_presigned_url(
            "get_object", Params={"Bucket": server.bucket, "Key": shard_key(PROJECT, shard.sha256)}, ExpiresIn=36_000
        )
        for shard in shards
    ]
    (folder / "addresses").write_text("\n".join(signed))
    environment.run(
        "store_readers",
        "mds-write",
        *map(str, (folder / "shards" / "samples", folder / "shards" / "offsets", folder / "mds")),
        timeout_s=900,
        name=environment.MDS,
    )
    for path in (folder / "mds").iterdir():
        client.upload_file(str(path), server.bucket, f"mds/{path.name}")
    os.environ |= {
        "S3_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_DEFAULT_REGION": settings.region,
    }
    numbers = map(str, (BATCH, WORKERS, batches))
    found = {}
    counts = list(numbers)
    for peer, name, place in (
        ("webdataset", environment.PEERS, str(folder / "addresses")),
        ("mds", environment.MDS, f"s3://{server.bucket}/mds"),
    ):
        answer = environment.run("store_readers", peer, place, str(folder / "mds-cache"), *counts, timeout_s=900, name=name)
        found[peer] = answer["samples_per_s"]
    return found


def _gpt(objects: S3ObjectStore, folder: Path) -> None:
    """Share of the steps of the example that they wait for data, the first batch left out: its reading starts the workers."""
    version = publish(objects, folder / "windows", written(folder / "windows", [CONTEXT + 1] * 4000, 1 << 20))
    ours = _waits(loader(opened(objects, version, folder / "cache-gpt"), GPT_BATCH, 1, _window))
    dataset = _Decoded(opened(objects, version, folder / "cache-dl"))
    peer = _waits(iter(DataLoader(dataset, GPT_BATCH, shuffle=True, num_workers=1, collate_fn=torch.stack)))
    report.line("gpt_data_wait", unit="share of the step", steps=STEPS, trainhouse=ours, data_loader=peer, aim=0.01)


def _window(sample: dict[str, Any]) -> torch.Tensor:
    return torch.frombuffer(bytearray(sample["bin"]), dtype=torch.uint8).long()


class _Decoded:
    """The samples as DataLoader takes them."""

    def __init__(self, dataset: ShardedDataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> torch.Tensor:
        return _window(self._dataset[index])


def _waits(batches: Iterator[Any]) -> dict[str, float]:
    torch.set_num_threads(1)
    model = ByteGPT(int(DEFAULTS["width"]), int(DEFAULTS["layers"]), int(DEFAULTS["heads"]), CONTEXT)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began = time.perf_counter()
    next(batches)
    first_s, wait_s, whole_s = time.perf_counter() - began, 0.0, 0.0
    for _ in range(STEPS):
        began = time.perf_counter()
        windows = next(batches)
        wait_s += time.perf_counter() - began
        loss = torch.nn.functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        whole_s += time.perf_counter() - began
    return {"share": wait_s / whole_s, "step_ms": whole_s / STEPS * 1000, "first_batch_s": first_s}
