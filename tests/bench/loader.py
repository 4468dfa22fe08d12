"""Samples a second of `session.loader` from a local file, and seconds of a resume at 90 % of a pass, beside StatefulDataLoader.

Both read the same 10,000 samples of 2 to 50 KB by `pread`, in batches of 64, by 2 worker processes, one after the other.
The peer resumes in 10 million samples at most: its permutation of 100 million takes 5 GB of memory.
"""

import random
import time
from array import array
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench import report
from tests.bench.peers import environment
from tests.bench.peers.stateful_loader import Blob, as_list, samples_per_s
from trainhouse.workers.data.batches import Share
from trainhouse.workers.data.data_loader import Loader, MapStyle, Reading, make_loader

SAMPLES, BATCH, WORKERS, PASSES = 10_000, 64, 2, 3
SIZES, OF_PEER = (10**4, 10**8), (10**4, 10**7)


def run() -> None:
    """Prints both figures."""
    with TemporaryDirectory() as folder:
        file, offsets = Path(folder, "samples"), Path(folder, "offsets")
        _write(file, offsets)
        ours = samples_per_s(_loader(Blob(str(file), str(offsets)), WORKERS), PASSES * (SAMPLES // BATCH), BATCH)
        peer = environment.run("stateful_loader", *map(str, (file, offsets, BATCH, WORKERS, PASSES, *OF_PEER)))
    report.line("loader", unit="samples/s", trainhouse=ours, stateful_data_loader=peer["samples_per_s"], workers=WORKERS, batch=BATCH)
    report.line(
        "loader_resume",
        unit="s",
        trainhouse={str(size): _resume_s(size) for size in SIZES},
        stateful_data_loader={str(size): peer[f"resume_{size}_s"] for size in OF_PEER},
        aim=0.1,
    )


def _loader(dataset: MapStyle, workers: int) -> Loader:
    return make_loader(dataset, Share(BATCH), 1, True, None, Reading(workers, None, as_list))


def _resume_s(size: int) -> float:
    """From the state to the first batch."""
    state = _loader(range(size), 0).state_dict() | {"position": size * 9 // 10}
    began = time.perf_counter()
    after = _loader(range(size), 0)
    after.load_state_dict(state)
    next(after)
    return time.perf_counter() - began


def _write(file: Path, offsets: Path) -> None:
    sizes = random.Random(1)
    ends = array("q", [0])
    with file.open("wb") as data:
        for _ in range(SAMPLES):
            ends.append(ends[-1] + data.write(sizes.randbytes(sizes.randint(2_000, 50_000))))
    offsets.write_bytes(ends.tobytes())
