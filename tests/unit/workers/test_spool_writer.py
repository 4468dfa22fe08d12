"""The spool's writer: what a line looks like, what survives, and where it ends."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from trainhouse.events import ProgressReported
from trainhouse.workers.agent.core.spool import cut_spool
from trainhouse.workers.agent.ship.file_tail import PAGE_BYTES, FileTail
from trainhouse.workers.spool import SpoolError, SpoolFullError, SpoolWriter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.jsonl"


def lines(path: Path) -> list[object]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_kind_of_line(path: Path) -> None:
    spool = SpoolWriter(path)
    spool.metrics(3, 1700, {"loss": 2.5, "tokens": 7})
    spool.progress({"step": 3, "loss": math.nan})
    spool.event("CheckpointCompleted", {"commit": 2, "damaged": ("a",)}, "job:commit:2")
    spool.event("CheckpointStarted", {"step": 3})
    assert lines(path) == [
        ["m", 3, 1700, {"loss": 2.5, "tokens": 7}],
        ["p", {"step": 3, "loss": "NaN"}],
        ["e", "CheckpointCompleted", {"commit": 2, "damaged": ["a"]}, "job:commit:2"],
        ["e", "CheckpointStarted", {"step": 3}, None],
    ]


def test_values_that_json_lacks_and_tensors(path: Path) -> None:
    spool = SpoolWriter(path)
    spool.metrics(0, 1, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.5})
    spool.metrics(0, 1, {"a": torch.tensor(1.25), "b": np.float32(0.5), "c": torch.tensor([math.nan]), "null": 1, "d": True, "e": None})
    assert lines(path) == [
        ["m", 0, 1, {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1.5}],
        ["m", 0, 1, {"a": 1.25, "b": 0.5, "c": "NaN", "null": 1, "d": True, "e": None}],
    ]


@pytest.mark.parametrize("value", ["text", [1.0], {"x": 1.0}, object()], ids=["text", "list", "dict", "object"])
def test_what_is_no_number_is_refused_by_name(path: Path, value: object) -> None:
    with pytest.raises(TypeError, match="'accuracy'"):
        SpoolWriter(path).metrics(0, 1, {"loss": 1.0, "accuracy": value})
    assert path.read_bytes() == b""


def test_the_agents_reader_gets_every_point_exactly(path: Path) -> None:
    spool = SpoolWriter(path)
    values = [1 / 3, 1e-300, 1e300, -0.0, math.nan, math.inf, 123456789.123456789]
    for step, value in enumerate(values):
        spool.metrics(step, 1_700_000_000_000 + step, {"x": value})
    cut = cut_spool(path.read_bytes(), 0)
    assert cut.unreadable == 0 and cut.batches[0].steps == list(range(len(values)))
    got = cut.batches[0].metrics["x"]
    assert [repr(v) for v in got] == [repr(v) for v in values]


def test_progress_has_the_fields_of_its_event() -> None:
    from trainhouse.workers.session.steps.progress import Progress

    written: list[dict[str, object]] = []
    progress = Progress(1, lambda fields: written.append(dict(fields)))
    progress.latest.update(loss=2.0, lr=0.1)
    progress.begin(5, 10, now=1.0, now_ms=1000)
    ids = {"job_id": "j", "attempt": 0, "epoch": 0, "node_id": "n", "pool": "p"}
    own = {"step_at_ms"}  # for heartbeats alone
    event = ProgressReported.model_validate({k: v for k, v in written[0].items() if k not in own} | ids)
    assert (event.rank, event.step, event.total_steps, event.loss, event.learning_rate) == (1, 5, 10, 2.0, 0.1)


def test_the_limit_names_the_file_and_the_setting(path: Path) -> None:
    spool = SpoolWriter(path, limit_bytes=200)
    with pytest.raises(SpoolFullError) as caught:
        for step in range(100):
            spool.metrics(step, 1, {"loss": 0.5})
    assert str(path) in str(caught.value) and "TRAINHOUSE_SPOOL_LIMIT_BYTES" in str(caught.value)
    assert 170 < path.stat().st_size <= 200
    assert all(line[0] == "m" for line in lines(path))  # type: ignore[index]


def test_what_the_agent_has_shipped_and_freed_does_not_count(path: Path) -> None:
    limit = 3 * PAGE_BYTES
    spool, tail = SpoolWriter(path, limit), FileTail(path)
    with pytest.raises(SpoolFullError):
        for step in range(10_000):
            spool.metrics(step, 1, {"loss": 0.5})
    tail.free(path.stat().st_size, at_least=1)
    if path.stat().st_blocks * 512 >= limit:
        pytest.skip("this file system cannot free a part of a file")
    with pytest.raises(SpoolFullError):
        for step in range(10_000):
            spool.metrics(step, 1, {"loss": 0.25})
    assert limit + PAGE_BYTES < path.stat().st_size <= limit + 2 * PAGE_BYTES
    assert json.loads(path.read_bytes().splitlines()[-1])[3] == {"loss": 0.25}


def test_the_limit_counts_what_was_there(path: Path) -> None:
    path.write_bytes(b'["p",{}]\n' * 1000)
    with pytest.raises(SpoolFullError):
        SpoolWriter(path, limit_bytes=9000).progress({})


@pytest.mark.parametrize("count", [1, 2, 77])
def test_a_point_survives_a_sigkill_right_after_the_call(path: Path, count: int) -> None:
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom trainhouse.workers.spool import SpoolWriter\n"
        "spool = SpoolWriter(Path(sys.argv[1]))\n"
        "for step in range(int(sys.argv[2])): spool.metrics(step, step, {'loss': step / 3})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(path), str(count)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert lines(path) == [["m", step, step, {"loss": step / 3}] for step in range(count)]
    assert os.path.getsize(path) == len(path.read_bytes())


def test_a_closed_spool_takes_nothing_and_writes_into_nobody_elses_file(path: Path, tmp_path: Path) -> None:
    spool = SpoolWriter(path)
    spool.close()
    spool.close()
    with (tmp_path / "other").open("wb") as other, pytest.raises(SpoolError, match="closed: log before the session ends"):
        assert other.fileno() >= 0
        spool.metrics(0, 1, {"loss": 1.0})
    assert (tmp_path / "other").read_bytes() == b""
