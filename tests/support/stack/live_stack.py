"""A whole running stack as tests see it: its command line, its client, its processes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.stack import warm_cli
from tests.support.waiting import PATIENCE_S, answered, until
from trainhouse.client import TrainhouseClient
from trainhouse.client.code_archive import PackedCode
from trainhouse.client.kafka.backend import ByKafka
from trainhouse.client.sql import SqlEndpoint
from trainhouse.deploy.local.layout import StackPorts, read_toml
from trainhouse.deploy.local.stack import down, up
from trainhouse.deploy.local.stack_state import PartRow, ps
from trainhouse.events import CodeArchive
from trainhouse.events.settings import KafkaSettings

# A command that hangs; one that waits for a job to end has its own limits.
COMMAND_TIMEOUT_S = 2 * PATIENCE_S
# How long clients wait for brokers, intake and scheduler at the least: those of a machine that has much else to do.
MIN_TIMEOUT_S = 180.0


@dataclass(frozen=True)
class LiveStack:
    """One stack that everything runs in. Shared by many tests: use job names and users of your own, kill nothing."""

    data_dir: Path
    slots: int

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment without settings of another Trainhouse; the stack is named by its folder."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHOUSE_") or k == "TRAINHOUSE_CACHE_DIR"}
        patient = {"TRAINHOUSE_KAFKA_MIN_TIMEOUT_S": str(MIN_TIMEOUT_S)}
        return kept | patient | {"TRAINHOUSE_DATA_DIR": str(self.data_dir), "COLUMNS": "200"}

    def run(self, *arguments: str, cwd: Path | None = None, stdin: str = "", timeout_s: float = COMMAND_TIMEOUT_S) -> Done:
        """Runs one command of the command line to its end, whatever its exit code."""
        done = warm_cli.run(arguments, self.environment, cwd or self.data_dir, stdin, timeout_s)
        return Done(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str, **more: Any) -> str:
        """Standard output of a command that must succeed."""
        done = self.run(*arguments, **more)
        assert done.code == 0, f"trainhouse {' '.join(arguments)} ended with {done.code}:\n{done.out[-3000:]}\n{done.err[-3000:]}"
        return done.out

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Rows of a query, over HTTP; waits for a projector that does not answer, or is on its way back."""
        return answered(lambda: self.client().sql.table(query).dicts())

    def status(self, job: str) -> dict[str, Any]:
        """What `trainhouse status JOB --json` prints once the tables, which it asks, have the newest status on the topic."""
        newest = self.client().status(job)
        query = f"SELECT status_seq FROM jobs WHERE job_id = '{job}' AND status_seq >= {int(newest.status_seq)}"
        until(lambda: self.rows(query), f"the tables to have {newest}")
        found: dict[str, Any] = json.loads(self.ok("status", job, "--json"))
        return found

    def client_kafka(self) -> KafkaSettings:
        """The brokers, for clients that wait for them."""
        found = read_toml(self.data_dir / "trainhouse.toml")["kafka"]
        return KafkaSettings.model_validate(found | {"min_timeout_s": MIN_TIMEOUT_S})

    def client(self) -> TrainhouseClient:
        """A client of its own; it packs no code."""
        found = read_toml(self.data_dir / "trainhouse.toml")
        where = found["clickhouse"]
        return TrainhouseClient(ByKafka(self.client_kafka(), SqlEndpoint(where["url"], where["user"], where["password"]), _no_code))

    def part(self, name: str) -> PartRow:
        """One process of the stack, as it is now."""
        return next(row for row in ps(self.data_dir) if row.name == name)

    def log(self, name: str) -> str:
        """The last lines that a part wrote, for messages of failed tests."""
        return Path(self.part(name).log).read_text(errors="replace")[-4000:]


@dataclass(frozen=True)
class Done:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def objects(self) -> list[dict[str, Any]]:
        """Standard output as one JSON object a line."""
        return [json.loads(line) for line in self.lines]


@contextmanager
def running_stack(data_dir: Path, slots: int, ports: StackPorts | None = None) -> Iterator[LiveStack]:
    """A whole stack on free ports, or on these; it ends with the block, and with its caller when that is killed."""
    told: list[str] = []
    try:
        up(data_dir, slots=slots, ports=ports or StackPorts.free(), attached=True, say=told.append)
    except Exception as error:
        error.add_note("\n".join(told))
        raise
    try:
        yield LiveStack(data_dir, slots)
    finally:
        down(data_dir)


def _no_code(_: PackedCode) -> CodeArchive:
    raise AssertionError("this client packs no code; use the command line")
