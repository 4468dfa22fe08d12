"""A stack of its own for the benches, driven as a user would: by the command line."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainhouse.events.settings import KafkaSettings


@dataclass(frozen=True)
class BenchStack:
    """A running stack: its data folder and the environment in which `trainhouse` finds it."""

    data_dir: Path
    environment: dict[str, str]

    def trainhouse(self, *arguments: str, timeout_s: float = 300, cwd: Path | None = None) -> str:
        """Runs one command and returns its standard output; raises RuntimeError with its words when it fails."""
        command = [sys.executable, "-m", "trainhouse.cli.main", *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=cwd)
        if done.returncode != 0:
            raise RuntimeError(f"trainhouse {' '.join(arguments)}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return done.stdout

    def rows(self, query: str) -> list[dict[str, Any]]:
        """A query's rows."""
        return [json.loads(line) for line in self.trainhouse("sql", query, "--json").splitlines()]

    @property
    def kafka(self) -> KafkaSettings:
        prefix = "TRAINHOUSE_KAFKA_"
        told = {name.removeprefix(prefix).lower(): value for name, value in self.environment.items() if name.startswith(prefix)}
        return KafkaSettings.model_validate(told)


@contextmanager
def bench_stack(slots: int = 2, **settings: str) -> Iterator[BenchStack]:
    """Starts a stack in a temporary folder on free ports, with more environment variables; stops and removes it."""
    folder = Path(tempfile.mkdtemp(prefix="trainhouse-bench-"))
    base = (
        {k: v for k, v in os.environ.items() if not k.startswith("TRAINHOUSE_")} | {"TRAINHOUSE_DATA_DIR": str(folder / "data")} | settings
    )
    stack = BenchStack(folder / "data", base)
    try:
        stack.trainhouse("up", "--detach", "--ports", "auto", "--slots", str(slots))
        yield BenchStack(stack.data_dir, base | _exports(stack.trainhouse("env")))
    finally:
        subprocess.run([sys.executable, "-m", "trainhouse.cli.main", "down"], env=base, capture_output=True, check=False, timeout=120)
        shutil.rmtree(folder, ignore_errors=True)


def _exports(text: str) -> dict[str, str]:
    """`export NAME=value` lines as a dict."""
    pairs = (line.removeprefix("export ").split("=", 1) for line in text.splitlines() if line.startswith("export "))
    return {name: value.strip("'\"") for name, value in pairs}
