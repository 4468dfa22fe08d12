"""The peers' own environment: `.bench/peers`, made once with uv, so that their dependencies never meet ours."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".bench" / "peers"
PACKAGES = ("torch", "numpy", "torchft>=0.2,<1", "tensorboard>=2.20,<3", "trackio>=0.40,<1", "mlflow>=3.10,<4")


def python() -> Path:
    """The peers' interpreter; installs them on the first call (blocks for seconds to minutes)."""
    found = FOLDER / "bin" / "python"
    stamp = FOLDER / ".installed"
    if not stamp.exists():
        uv = [str(Path(sys.executable).parent / "uv")]
        subprocess.run([*uv, "venv", "-q", "--clear", "--python", sys.executable, str(FOLDER)], check=True)
        subprocess.run([*uv, "pip", "install", "-q", "--python", str(found), *PACKAGES], check=True)
        stamp.touch()
    return found


def run(script: str, *arguments: str, timeout_s: float = 300) -> dict[str, Any]:
    """Runs a script of this folder there; its last line of output is a JSON object."""
    command = [str(python()), str(Path(__file__).parent / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the peer failed with {done.returncode}: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer
