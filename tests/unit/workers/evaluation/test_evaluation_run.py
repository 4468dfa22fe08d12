"""A whole evaluation from a YAML file, in a process of its own: equal bytes in a rerun, every sample or no result, results of others."""

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from trainhouse.workers.data.shards import ShardWriter
from trainhouse.workers.evaluation.__main__ import main as evaluation_main
from trainhouse.workers.evaluation.errors import InvalidEvaluationError
from trainhouse.workers.evaluation.evaluation_spec import read_spec
from trainhouse.workers.evaluation.result import EvaluationResult, load_result

SAMPLES = 150
PROGRAM = """
import json
import torch


def load(path, device):
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.5), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    model.load_state_dict(torch.load(path / "weights.pt", weights_only=True))
    return model.to(device)


def decode(sample):
    row = json.loads(sample["json"])
    return {"input": torch.tensor(row["x"]), "target": row["y"], "lang": row["lang"]}
"""
WRITER = """
import json, os, pathlib, sys
given = {name.rpartition("_")[2].lower(): value for name, value in os.environ.items() if name.startswith("TRAINHOUSE_EVALUATION_")}
document = {"suite": given["suite"], "kind": "command", "version": given["version"], "seed": int(given["seed"]),
            "batch_size": int(os.environ["TRAINHOUSE_EVALUATION_BATCH_SIZE"]), "device_kind": "cpu", "samples": 3,
            "metrics": {"pass_rate": {"value": float(sys.argv[1]), "samples": 3}}}
pathlib.Path(given["out"], "result.json").write_text(json.dumps(document))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Shards, weights and a program in one folder."""
    (tmp_path / "shards").mkdir()
    generator = torch.Generator().manual_seed(1)
    with ShardWriter(tmp_path / "shards") as shards:
        for n in range(SAMPLES):
            x = torch.randn(8, generator=generator)
            row = {"x": x.tolist(), "y": int(x.sum() > 0), "lang": "de" if n % 3 else "en"}
            shards.add(f"s{n}", {"json": json.dumps(row).encode()})
        shards.cut()
    (tmp_path / "model").mkdir()
    sizes = {"0.weight": (32, 8), "0.bias": (32,), "3.weight": (2, 32), "3.bias": (2,)}
    torch.save({name: torch.randn(size, generator=generator) for name, size in sizes.items()}, tmp_path / "model" / "weights.pt")
    (tmp_path / "classifier.py").write_text(PROGRAM)
    (tmp_path / "writer.py").write_text(WRITER)
    return tmp_path


def described(at: Path, /, **more: Any) -> None:
    fields = {"suite": "signs", "kind": "classification", "model": "model", "program": "classifier", "folder": "shards"}
    fields |= {"batch_size": 64, "seed": 3, "groups": ["lang"], "resamples": 999}
    (at / "evaluation.yaml").write_text(yaml.safe_dump({k: v for k, v in (fields | more).items() if v is not None}))


# Processes of it are forked from one that has imported what the program imports, which takes it ten times as long as its work.
_imported = multiprocessing.get_context("forkserver")
_imported.set_forkserver_preload(["trainhouse.workers.evaluation.__main__", "trainhouse.workers.evaluation.evaluation_run"])


def ran(folder: Path, out: str = "out") -> tuple[int, str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRAINHOUSE_")}
    process = _imported.Process(target=_become, args=(environ, folder, ["run", "evaluation.yaml", "--out", out]))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode, (folder / "stdout").read_text(), (folder / "stderr").read_text()


def _become(environ: dict[str, str], folder: Path, words: list[str]) -> None:
    """The program, in a process of its own."""
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    for number, name in ((1, "stdout"), (2, "stderr")):
        with open(name, "wb") as stream:
            os.dup2(stream.fileno(), number)
    sys.exit(evaluation_main(words))


def started_anew(folder: Path, out: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "trainhouse.workers.evaluation", "run", "evaluation.yaml", "--out", out]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRAINHOUSE_")}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def result_of(folder: Path, out: str = "out", by: Callable[[Path, str], tuple[int, str, str]] = ran) -> EvaluationResult:
    code, output, errors = by(folder, out)
    assert code == 0, errors
    found = load_result(folder / out / "result.json")
    assert f"result sha256 {found.sha256}" in output
    return found


def test_a_rerun_gives_the_same_bytes_and_every_sample_once(folder: Path) -> None:
    described(folder)
    found = result_of(folder)
    assert found.samples == SAMPLES and found.groups["lang"].groups["en"].samples == 50 and found.device_kind.startswith("cpu ")
    assert found == result_of(folder, "again", started_anew)
    for name in ("result.json", "samples.parquet"):
        assert (folder / "out" / name).read_bytes() == (folder / "again" / name).read_bytes()


def test_a_sample_that_cannot_be_decoded_leaves_no_result(folder: Path) -> None:
    described(folder)
    (folder / "classifier.py").write_text(
        PROGRAM.replace(
            'row = json.loads(sample["json"])', 'row = json.loads(sample["json"]); row["x"][7]; 1 / (sample["__key__"] != "s70")'
        )
    )
    code, _, errors = ran(folder)
    assert code == 2 and "sample 70 of shards is left out" in errors and not (folder / "out" / "result.json").exists(), errors


def test_times_and_memory_are_measured(folder: Path) -> None:
    described(folder, kind="latency", groups=None, repeats=20, batch_size=8)
    found = result_of(folder)
    assert not found.repeatable and found.by_sample is None
    assert {"cold_load_ms", "batch_1_p50_ms", "batch_1_p99_ms", "batch_8_p50_ms", "batch_8_p99_ms", "peak_memory_bytes"} == set(
        found.metrics
    )
    assert found.metrics["batch_1_p50_ms"].value <= found.metrics["batch_1_p99_ms"].value


def test_a_command_writes_the_documented_result_or_there_is_none(folder: Path) -> None:
    described(folder, kind="command", program=None, folder=None, groups=None, command=[sys.executable, "writer.py", "0.5"])
    assert result_of(folder).metrics["pass_rate"].value == 0.5
    for argument, reason in (("nan", "NaN"), ("none", "ended with code 1")):
        described(folder, kind="command", program=None, folder=None, groups=None, command=[sys.executable, "writer.py", argument])
        code, _, errors = ran(folder)
        assert code == 2 and reason in errors, errors


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "accuracy"}, "kind"),
        ({"folder": None}, "either `split`"),
        ({"split": "test"}, "either `split`"),
        ({"program": None}, "needs `program`"),
        ({"command": ["x"]}, "needs `command`"),
        ({"batchsize": 3}, "batchsize"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_description_that_is_none_names_the_field(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    described(tmp_path, **change)
    with pytest.raises(InvalidEvaluationError, match=reason):
        read_spec(tmp_path / "evaluation.yaml")
    (tmp_path / "evaluation.yaml").write_text("- a list")
    with pytest.raises(InvalidEvaluationError, match="describes no evaluation"):
        read_spec(tmp_path / "evaluation.yaml")
