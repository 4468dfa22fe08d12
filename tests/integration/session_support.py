"""Help for tests of the session: a job of the example program on this node, attempt by attempt, with a real object store."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.launcher_support import Attempt
from tests.support.waiting import until
from trainhouse.events import JobSpec
from trainhouse.events.model.spec import Runtime
from trainhouse.workers.launcher import Launcher, attempt_alive, kill_tree, ports

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

GPT = ("python", "-m", "trainhouse.workers.examples.gpt")
SMALL = ("--width", "32", "--layers", "1", "--context", "32", "--batch", "4", "--eval-windows", "16")


def store_environment(store: "StoreServer") -> dict[str, str]:
    """How ranks reach the store."""
    return {
        "TRAINHOUSE_S3_ENDPOINT": store.endpoint,
        "TRAINHOUSE_S3_BUCKET": store.bucket,
        "TRAINHOUSE_S3_ACCESS_KEY": store.access_key,
        "TRAINHOUSE_S3_SECRET_KEY": store.secret_key,
    }


class JobRun(Attempt):
    """One attempt of a job whose ranks use the session."""

    def __init__(
        self, folder: Path, job_id: str, epoch: int, command: Sequence[str], ranks: int, store: "StoreServer", **spec: object
    ) -> None:
        super().__init__(folder / str(epoch), "", ranks)
        self.spec = JobSpec.model_validate({"runtime": Runtime(command=tuple(command)), "gang": ranks, **spec})
        self.paths.spec.write_bytes(self.spec.canonical_json())
        self._more = store_environment(store) | {
            ports.JOB_ID: job_id,
            ports.ATTEMPT: str(epoch),
            ports.EPOCH: str(epoch),
            ports.SPEC_SHA256: self.spec.sha256(),
            ports.ATTEMPT_DIR: str(self.paths.folder),
            ports.BACKEND: "gloo",
        }

    def _env(self, rank: int) -> dict[str, str]:
        return super()._env(rank) | self._more | {ports.RANK_DIR: str(self.paths.rank(rank).folder)}

    def start(self, launcher: Launcher) -> "JobRun":
        launcher.start(self.paths, self.launches(self.spec.runtime.command), self.store)
        return self

    def lines(self, rank: int = 0) -> list[list[object]]:
        """The whole lines of a rank's spool."""
        path = self.paths.rank(rank).spool
        raw = path.read_bytes() if path.exists() else b""
        return [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]

    def events(self, name: str) -> list[list[object]]:
        return [line for line in self.lines() if line[0] == "e" and line[1] == name]

    def losses(self) -> dict[int, float]:
        """Loss by step, as rank 0 logged it."""
        return {line[1]: line[3]["loss"] for line in self.lines() if line[0] == "m" and "loss" in line[3]}  # type: ignore[index, misc, operator]

    def end(self) -> None:
        """Kill what runs, and wait until nothing of the attempt is left."""
        kill_tree(self.paths)
        until(lambda: not attempt_alive(self.paths))
        self.listener.close()

    def weights(self) -> str:
        found = re.search(r"weights sha256 ([0-9a-f]{64})", self.stdout())
        assert found, self.stdout() + self.stderr()
        return found.group(1)


class Runs:
    """Attempts of one test, started by a warm launcher; all are ended with it."""

    def __init__(self, folder: Path, launcher: Launcher, store: "StoreServer") -> None:
        self.folder, self.launcher, self.store = folder, launcher, store
        self.all: list[JobRun] = []

    def start(
        self,
        script: str,
        arguments: Sequence[str],
        epoch: int = 0,
        ranks: int = 2,
        name: str = "job",
        environment: Mapping[str, str] | None = None,
        **spec: object,
    ) -> JobRun:
        """An attempt of the job `name` with `script` as its program. `environment`: what the agent would set beside the usual."""
        command = ("python", "train.py", *arguments)
        run = JobRun(self.folder / name, f"{name}-{self.folder.name}", epoch, command, ranks, self.store, **spec)
        run._more |= environment or {}
        (run.paths.code / "train.py").write_text(script)
        self.all.append(run)
        return run.start(self.launcher)

    def close(self) -> None:
        for run in self.all:
            run.close()
