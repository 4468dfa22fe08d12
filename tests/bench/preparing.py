"""Seconds of a preparation (clean, tokenise, write) of rows by 2 processes, beside `datasets.map`, litdata's `optimize` and MDSWriter.

Ours reads a published version from a folder as object store and makes both passes, with hashes, distributions and records, without the job
around it; peers read the same rows as JSONL. Each is one run; TRAINHOUSE_BENCH_PREPARE_MB is the size of the texts (1,000 by default).
"""

import json
import multiprocessing
import multiprocessing.synchronize
import os
import random
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench import report
from tests.bench.peers import environment
from tests.support.fakes.folder_store import FolderObjectStore
from trainhouse.events.model.output_names import work_prefix
from trainhouse.workers.data.outputs.sealing import seal
from trainhouse.workers.data.outputs.staged_shard import MOST_SHARD_BYTES
from trainhouse.workers.data.outputs.written_output import JobOutputStore, Output
from trainhouse.workers.data.prepare.preparation import Preparation
from trainhouse.workers.data.prepare.row_runs import WorkStore
from trainhouse.workers.data.prepare.source_units import UnitReader
from trainhouse.workers.data.prepare.tokens import open_tokenizer
from trainhouse.workers.data.prepare.unit_steps import UnitSteps, moments_of, pieces_of

MEGABYTES, PROCESSES = int(os.environ.get("TRAINHOUSE_BENCH_PREPARE_MB", "1000")), 2
WORDS, CHARS = 8000, 2000


def run() -> None:
    """Prints the seconds of each, with CPU seconds and megabytes written."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        _write(root)
        ours = _ours(root)
        names = {"datasets": environment.PREPARING, "litdata": environment.PREPARING, "mds": environment.MDS}
        found = {}
        for kind, name in names.items():
            (root / kind).mkdir()
            arguments = (kind, *map(str, (root / "rows.jsonl", root / "tokenizer.json", root / kind, PROCESSES)))
            found[kind] = environment.run("preparing", *arguments, timeout_s=1800, name=name)
    report.line("preparing", unit="s", megabytes=MEGABYTES, processes=PROCESSES, trainhouse=ours, **found)


def _write(root: Path) -> None:
    """Texts of about 2,000 characters, of words by Zipf's law, and a tokenizer of these words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    chance = random.Random(1)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(WORDS)]
    weights = [1 / (place + 1) for place in range(WORDS)]
    with (root / "rows.jsonl").open("w") as rows:
        for n in range(MEGABYTES * 1_000_000 // CHARS):
            text = "  ".join(chance.choices(words, weights, k=CHARS // 6))
            rows.write(json.dumps({"n": n, "text": f" {text} "}) + "\n")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment, unused-ignore]
    tokenizer.train_from_iterator(words, trainers.BpeTrainer(vocab_size=4000, show_progress=False))
    tokenizer.save(str(root / "tokenizer.json"))


def _ours(root: Path) -> dict[str, float]:
    store = FolderObjectStore(root / "store")
    out = Output(JobOutputStore(store, "source", "raw", 0, 0), 0)
    with out, (root / "rows.jsonl").open("rb") as rows:
        for line in rows:
            out.add({"json": json.loads(line)})
    version = f"raw@sha256:{seal(store, 'source', 'bench', 'raw', 0).sha256}"
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(PROCESSES)
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    started = [context.Process(target=_rank, args=(root, version, rank, barrier)) for rank in range(PROCESSES)]
    for process in started:
        process.start()
    for process in started:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a rank exited with {process.exitcode}")
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    written = sum(stat.size_bytes for stat in store.list("jobs/ours/outputs/tokens/shards/"))
    return {"seconds": round(seconds, 2), "cpu_s": round(cpu_s, 2), "written_mb": round(written / 1e6, 1)}


def _rank(root: Path, version: str, rank: int, barrier: "multiprocessing.synchronize.Barrier") -> None:
    """Both passes of one rank, as the job's program makes them."""
    store = FolderObjectStore(root / "store")
    steps_of = {"clean": {"text": ["nfc", "collapse", "strip"]}, "tokenise": {"column": "text", "tokenizer": "tokenizer.json"}}
    rules = Preparation.parse({"source": version, "output": "tokens"} | steps_of)
    steps = UnitSteps(rules, open_tokenizer(rules, root))
    source, work = UnitReader(store, "bench", version, steps.shard_bytes), WorkStore(store, work_prefix("ours", "tokens"))
    for unit in source.units[rank::PROCESSES]:
        steps.keep(source.samples(unit), source.source_bytes, work, unit)
    barrier.wait()
    records = [work.record(unit.name) for unit in source.units]
    out = Output(JobOutputStore(store, "ours", "tokens", 0, rank), rank, MOST_SHARD_BYTES)
    for piece in pieces_of(records, steps)[rank::PROCESSES]:
        with out.piece(piece.name) as writer:
            steps.write(piece, source.units, work, moments_of(records, rules), writer)
