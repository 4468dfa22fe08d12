"""The peers' own environments in `.bench`, made once with uv, so that their dependencies never meet ours."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".bench"
PEERS = "peers"
PREPARING = "preparing"
TRACKING = "tracking"
CONSOLES = "consoles"
DRIFT = "drift"
MDS = "mds"  # its transformers is older than the other peers' hub
PACKAGES = {
    PEERS: (
        *("torch", "numpy", "torchft>=0.2,<1", "tensorboard>=2.20,<3", "trackio>=0.40,<1", "mlflow>=3.10,<4", "torchdata>=0.11,<1"),
        "webdataset>=1,<2",
    ),
    PREPARING: ("torch", "numpy", "datasets>=4,<5", "litdata>=0.2,<1", "tokenizers"),
    TRACKING: ("mlflow>=3.10,<4",),
    CONSOLES: ("dstack[server]>=0.20,<1", "skypilot[server]>=0.10,<1"),
    DRIFT: ("evidently>=0.7,<1", "pandas>=2,<3"),  # its releases do not read newer ones yet
    MDS: ("torch", "numpy", "mosaicml-streaming>=0.13,<1"),
}


def python(name: str = PEERS) -> Path:
    """The interpreter of one of the environments; installs it on the first call and when its packages are others (blocks for minutes)."""
    folder = FOLDER / name
    found = folder / "bin" / "python"
    stamp = folder / ".installed"
    packages = "\n".join(PACKAGES[name])
    if not stamp.exists() or stamp.read_text() != packages:
        uv = [str(Path(sys.executable).parent / "uv")]
        subprocess.run([*uv, "venv", "-q", "--clear", "--python", sys.executable, str(folder)], check=True)
        subprocess.run([*uv, "pip", "install", "-q", "--python", str(found), *PACKAGES[name]], check=True)
        stamp.write_text(packages)
    return found


def run(script: str, *arguments: str, timeout_s: float = 300, name: str = PEERS) -> dict[str, Any]:
    """Runs a module of this folder there; its last line of output is a JSON object."""
    command = [str(python(name)), "-m", f"tests.bench.peers.{script}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the peer failed with {done.returncode}: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer
