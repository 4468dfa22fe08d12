"""Starts a stack for a campaign, in a folder and on ports of its own."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.stack import ChaosStack
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.events.settings import KafkaSettings


@contextmanager
def started(data_dir: Path, slots: int = 2) -> Iterator[ChaosStack]:
    """A running stack; stopped at the end."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHOUSE_")} | {"TRAINHOUSE_DATA_DIR": str(data_dir)}
    command = [sys.executable, "-m", "trainhouse.cli.main"]
    up = subprocess.run(
        [*command, "up", "--detach", "--ports", "auto", "--slots", str(slots)], env=environment, capture_output=True, text=True, check=False
    )
    try:
        if up.returncode != 0:
            raise RuntimeError(f"the stack did not start: {up.stdout[-2000:]}\n{up.stderr[-2000:]}")
        yield attached(data_dir, environment)
    finally:
        subprocess.run([*command, "down"], env=environment, capture_output=True, check=False, timeout=120)


def attached(data_dir: Path, environment: dict[str, str]) -> ChaosStack:
    """A stack that runs already."""
    settings = tomllib.loads((data_dir / "trainhouse.toml").read_text())
    kafka = KafkaSettings(**settings["kafka"])
    store = StoreSettings.model_validate(settings["s3"])
    return ChaosStack(data_dir, environment, kafka, store, Path(settings["agent"]["dir"]) / "attempts")
