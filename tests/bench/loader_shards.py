"""Samples a second of `session.loader` over local shards, beside WebDataset, mosaicml-streaming's MDS and bare `pread`.

All read the same 40,000 samples of 2 to 100 KB (1 GB) in batches of 64 by 2 worker processes, one after the other; each peer from its own
format. TRAINHOUSE_BENCH_SAMPLES makes fewer.
"""

import math
import os
import random
import shutil
import time
from array import array
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench import report
from tests.bench.peers import environment
from tests.bench.peers.stateful_loader import Blob, as_list, samples_per_s
from trainhouse.workers.data import open_folder
from trainhouse.workers.data.batches import Share
from trainhouse.workers.data.data_loader import Loader, MapStyle, Reading, make_loader
from trainhouse.workers.data.shards import ShardWriter

SAMPLES = int(os.environ.get("TRAINHOUSE_BENCH_SAMPLES", "40000"))
BATCH, WORKERS, SHARD_BYTES = 64, 2, 128 << 20
LEAST_BYTES, MOST_BYTES = 2_000, 100_000


def run() -> None:
    """Prints the rates, and the seconds of a resume at 90 % of a pass."""
    batches = SAMPLES // BATCH - 8
    with TemporaryDirectory() as folder:
        shards, file, offsets = (Path(folder, name) for name in ("shards", "samples", "offsets"))
        _write(shards, file, offsets)
        measured: dict[str, Any] = {"trainhouse": samples_per_s(_loader(open_folder(shards)), batches, BATCH)}
        measured["bare_pread"] = samples_per_s(_loader(Blob(str(file), str(offsets))), batches, BATCH)
        arguments = [str(each) for each in (file, offsets, shards, Path(folder, "mds"), BATCH, WORKERS, batches)]
        for peer, name in (("webdataset", environment.PEERS), ("mds", environment.MDS)):
            measured[peer] = environment.run("shard_readers", peer, *arguments, timeout_s=900, name=name)["samples_per_s"]
        resume_s = _resume_s(shards)
        shutil.rmtree(shards)
    report.line("loader_shards", unit="samples/s", samples=SAMPLES, workers=WORKERS, batch=BATCH, **measured)
    report.line("loader_shards_resume", unit="s", samples=SAMPLES, trainhouse=resume_s, aim=0.1)


def _loader(dataset: MapStyle) -> Loader:
    return make_loader(dataset, Share(BATCH), 1, True, None, Reading(WORKERS, None, as_list))


def _resume_s(shards: Path) -> float:
    """From the state to the first batch, the dataset opened anew; without worker processes, whose start is torch's."""

    def anew() -> Loader:
        return make_loader(open_folder(shards), Share(BATCH), 1, True, None, Reading(0, None, as_list))

    state = anew().state_dict() | {"position": SAMPLES * 9 // 10}
    began = time.perf_counter()
    after = anew()
    after.load_state_dict(state)
    next(after)
    return time.perf_counter() - began


def _write(shards: Path, file: Path, offsets: Path) -> None:
    """The samples as shards, and in one file; sizes are even by their logarithm, 25 KB on average."""
    shards.mkdir()
    chance = random.Random(1)
    ends = array("q", [0])
    with file.open("wb") as data, ShardWriter(shards, SHARD_BYTES) as writer:
        for number in range(SAMPLES):
            content = chance.randbytes(int(LEAST_BYTES * math.exp(chance.random() * math.log(MOST_BYTES / LEAST_BYTES))))
            writer.add(f"{number:08}", {"bin": content})
            ends.append(ends[-1] + data.write(content))
    offsets.write_bytes(ends.tobytes())
