"""The reader of docs/internals/checkpoints.md, which knows nothing of this package, on real saves."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.documentation.blocks import ROOT, blocks_of
from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.chain.chunks import chunks_prefix
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings

PAGE = ROOT / "docs" / "internals" / "checkpoints.md"
MAX_LINES = 50


def reader() -> str:
    (block,) = [b for b in blocks_of(PAGE) if b.language == "python"]
    return block.text


def written(folder: Path) -> dict[str, torch.Tensor]:
    """Files of a store with one save, by key; returns the tensors by name."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(30, 4000), torch.nn.Linear(4000, 20).bfloat16())
    other = {"scalar": torch.tensor(7), "empty": torch.empty(0, 3), "täg": torch.ones(2, 3, dtype=torch.bool)}
    objects = MemoryObjectStore()
    at = Checkpointer(CheckpointerSettings("gpt", 1, 0, "spec"), objects)
    at.save({"model": model, "other": other}, {}, 10, 1.0, metrics={"loss": 0.1 + 0.2, "small": 1e-07, "large": 1e22})
    for found in objects.list(""):
        path = folder / found.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(objects.get(found.key))
    names = {f"model.{name.replace('.', chr(92) + '.')}": tensor for name, tensor in model.state_dict().items()}
    return names | {f"other.{name}": tensor for name, tensor in other.items()}


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the reader in a process without this package; leaves an array for each tensor."""
    script = (
        reader().partition("if __name__")[0]
        + f"""
import pathlib, sys
assert not any(name.startswith(("trainhouse", "torch")) for name in sys.modules)
get = lambda key: (pathlib.Path({str(folder)!r}) / key).read_bytes()
manifest = read_manifest(get, "gpt", 1)
np.savez({str(folder / "read.npz")!r}, **{{name: read_tensor(get, manifest, name) for name in manifest["tensors"]}})
"""
    )
    return subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=60)


def test_it_reads_every_tensor_and_is_short(tmp_path: Path) -> None:
    tensors = written(tmp_path)
    assert len(reader().splitlines()) <= MAX_LINES
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    read = np.load(tmp_path / "read.npz")
    assert sorted(read.files) == sorted(tensors)
    for name, tensor in tensors.items():
        expected = tensor.detach().view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor.detach()
        assert read[name].dtype == expected.numpy().dtype and np.array_equal(read[name], expected.numpy()), name


@pytest.mark.parametrize("place", ["jobs/gpt/commits/0000000001", chunks_prefix("gpt")])
def test_it_finds_damage(tmp_path: Path, place: str) -> None:
    written(tmp_path)
    path = tmp_path / place if (tmp_path / place).is_file() else max((tmp_path / place).rglob("??*"), key=lambda p: p.stat().st_size)
    content = path.read_bytes()
    changed = content.replace(b'"step":10', b'"step":11') if b'"step"' in content else content[:-1] + bytes([content[-1] ^ 1])
    assert hashlib.sha256(changed).digest() != hashlib.sha256(content).digest()
    path.write_bytes(changed)
    done = run(tmp_path)
    assert done.returncode != 0 and "is damaged" in done.stderr
