"""Peers of the bench `preparing`: python datasets|litdata|mds ROWS.jsonl TOKENIZER OUT PROCESSES.

Each cleans a text (NFC, one space for each run, none at the ends), tokenises it, and writes ids and the row's number in its own format.
"""

import json
import multiprocessing
import re
import resource
import sys
import time
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 256
SPACE = re.compile(r"\s+")


def clean(text: str) -> str:
    """The same steps as the preparation's nfc, collapse and strip."""
    return SPACE.sub(" ", unicodedata.normalize("NFC", text)).strip()


class Tokens:
    """Ids of cleaned texts; the tokenizer is opened in the process that uses it."""

    def __init__(self, path: str) -> None:
        self._path, self._tokenizer = path, None

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path, "_tokenizer": None}

    def of(self, texts: list[str]) -> list[Any]:
        if self._tokenizer is None:
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(self._path)
        return [np.array(found.ids, np.uint32) for found in self._tokenizer.encode_batch([clean(text) for text in texts])]


def with_datasets(rows: str, tokenizer: str, out: str, processes: int) -> None:
    import datasets

    tokens = Tokens(tokenizer)

    def step(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"n": batch["n"], "tokens": tokens.of(batch["text"])}

    loaded = datasets.load_dataset("json", data_files=rows, split="train", cache_dir=f"{out}/cache")
    mapped = loaded.map(step, batched=True, batch_size=BATCH, num_proc=processes, remove_columns=["text"])
    mapped.save_to_disk(f"{out}/written", num_proc=processes)


def batches(rows: str, part: int, parts: int) -> Any:
    """Batches of the rows of one process: each takes every so many batches."""
    with open(rows) as lines:
        held, number = [], 0
        for line in lines:
            held.append(line)
            if len(held) == BATCH:
                if number % parts == part:
                    yield [json.loads(each) for each in held]
                held, number = [], number + 1
        if held and number % parts == part:
            yield [json.loads(each) for each in held]


class LitdataStep:
    """What litdata's optimize calls for each part."""

    def __init__(self, rows: str, tokenizer: str, parts: int) -> None:
        self._rows, self._parts, self._tokens = rows, parts, Tokens(tokenizer)

    def __call__(self, part: int) -> Any:
        for batch in batches(self._rows, part, self._parts):
            for row, ids in zip(batch, self._tokens.of([row["text"] for row in batch]), strict=True):
                yield {"n": row["n"], "tokens": ids}


def with_litdata(rows: str, tokenizer: str, out: str, processes: int) -> None:
    import litdata

    litdata.optimize(
        fn=LitdataStep(rows, tokenizer, processes),
        inputs=list(range(processes)),
        output_dir=f"{out}/written",
        num_workers=processes,
        chunk_bytes="128MB",
    )


def mds_part(rows: str, tokenizer: str, out: str, part: int, processes: int) -> None:
    from streaming import MDSWriter

    tokens = Tokens(tokenizer)
    with MDSWriter(
        out=f"{out}/{part}", columns={"n": "int", "tokens": "ndarray:uint32"}, size_limit=128 << 20, hashes=["sha256"]
    ) as writer:
        for batch in batches(rows, part, processes):
            for row, ids in zip(batch, tokens.of([row["text"] for row in batch]), strict=True):
                writer.write({"n": row["n"], "tokens": ids})


def with_mds(rows: str, tokenizer: str, out: str, processes: int) -> None:
    import streaming  # noqa: F401 - imported before the processes begin, as by the others

    started = [multiprocessing.Process(target=mds_part, args=(rows, tokenizer, out, n, processes)) for n in range(processes)]
    for process in started:
        process.start()
    for process in started:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a writer exited with {process.exitcode}")


def main() -> None:
    kind, rows, tokenizer, out, processes = sys.argv[1:]
    began = time.perf_counter()
    {"datasets": with_datasets, "litdata": with_litdata, "mds": with_mds}[kind](rows, tokenizer, out, int(processes))
    seconds = time.perf_counter() - began
    usages = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    written = sum(path.stat().st_size for path in Path(out).rglob("*") if path.is_file() and "cache" not in path.parts)
    cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    print(json.dumps({"seconds": round(seconds, 2), "cpu_s": round(cpu_s, 2), "written_mb": round(written / 1e6, 1)}))


if __name__ == "__main__":
    main()
