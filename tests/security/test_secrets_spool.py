"""A job's program logs its secrets: as names of metrics, in what its session tells of checkpoints, of its environment. None gets to Kafka.

Values that were rotated count, and those of an attempt that is over: its keeper removed its files before the agent came to read.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.security.test_secrets_projects import NAME, gang
from tests.support.waiting import until
from tests.unit.workers.agent.test_agent_outbox import FakeProducer, data
from trainhouse.events import GangAllocated
from trainhouse.workers.agent.core import AttemptKey
from trainhouse.workers.agent.errors import NotLaunchableError
from trainhouse.workers.agent.launch.secretfiles import SecretFiles, runtime_folder
from trainhouse.workers.agent.ship.outbox import Outbox
from trainhouse.workers.agent.ship.shipper import Shipper
from trainhouse.workers.agent.ship.spool_cover import SpoolCovers
from trainhouse.workers.launcher import AttemptPaths
from trainhouse.workers.secretstore.records import SecretRecord
from trainhouse.workers.secretstore.store import SecretStore
from trainhouse.workers.spool import SpoolWriter

FIRST, SECOND = "first-value-8471", "second-value-9362"
KEY = AttemptKey("j", 0)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SecretFiles]:
    try:
        runtime_folder(None)
    except NotLaunchableError as error:
        pytest.skip(str(error))
    store = SecretStore(tmp_path / "secrets", tmp_path / "secrets.key")
    store.put(SecretRecord(NAME, FIRST.encode()))
    made = SecretFiles(store, tmp_path / "agent")
    yield made
    made.sweep(())
    made.root().rmdir() if made.root().is_dir() else None


class Node:
    """An agent's shipper over a producer that takes all, and the spool of one rank."""

    def __init__(self, folder: Path, files: SecretFiles, allocation: GangAllocated) -> None:
        self.producer = FakeProducer()
        self.covers = SpoolCovers(files)
        outbox = Outbox(lambda: self.producer)  # type: ignore[arg-type, return-value]
        self.shipper = Shipper(folder / "agent", "n", outbox, lambda: 0, 10**9, self.covers.of)
        self.shipper.follow(allocation)
        self.outbox = outbox
        rank = AttemptPaths.of(folder / "agent", "j", int(allocation.epoch)).rank(0).folder
        rank.mkdir(parents=True, exist_ok=True)
        self.spool = SpoolWriter(rank / "spool.jsonl")

    def ship(self) -> bytes:
        """All that brokers hold, once they hold all."""
        self.shipper.writers_gone(KEY)

        def done() -> bool:
            self.shipper.pump(time.time_ns() // 1_000_000)
            self.outbox.flush(1.0)
            return bool(self.shipper.take_shipped(0))

        until(done)
        return b"\n".join(value for _, value in self.producer.taken)


def tell(spool: SpoolWriter, value: str) -> None:
    """Whatever a session tells, with the value in each text."""
    encoded = base64.b64encode(b"x" + value.encode()).decode()
    spool.metrics(1, 2, {"loss": 0.5, f"lr/{value}": 1.0, value[::-1]: 2.0})
    spool.event("CheckpointFailed", {"step": 1, "reason": f"the store said no to {value}"}, f"j:{value}:1")
    spool.event("CheckpointRestored", {"commit": 1, "step": 1, "uri": f"s3://b/{value}", "damaged": [f"2: {value.encode().hex()}"]})
    environment = {"git_remote": f"https://{value}@git.example/x", "command": ["python", encoded], "packages": {value: value}}
    spool.event("EnvironmentCaptured", environment | {"git_diff": f"+a\n+token = {value}\n", "at_ms": 1})
    spool.event(f"No{value}", {"text": value})


def forms(value: str) -> list[bytes]:
    raw = value.encode()
    return [raw, raw[::-1], raw.hex().encode(), base64.b64encode(b"x" + raw)[4:-4]]


def test_no_text_of_a_session_carries_a_secret(tmp_path: Path, files: SecretFiles, capfd: pytest.CaptureFixture[str]) -> None:
    allocation = gang("vision", "HUB_TOKEN")
    node = Node(tmp_path, files, allocation)
    files.hand_out(allocation)
    tell(node.spool, FIRST)
    node.shipper.pump(0)
    files.store.put(SecretRecord(NAME, SECOND.encode()))
    assert files.refresh([allocation]) == 1
    tell(node.spool, FIRST)
    tell(node.spool, SECOND)
    files.remove(KEY)
    told = node.ship()
    assert not [form for value in (FIRST, SECOND) for form in forms(value) if form in told]
    assert FIRST not in "".join(capfd.readouterr())
    points = [d["metrics"] for d in data(node.producer, "trainhouse.metrics")]
    assert {name for point in points for name in point} == {"loss", "lr/***", "***"} and sum(len(p["loss"]) for p in points) == 3
    (first, *_) = data(node.producer, "trainhouse.environments")
    assert first["git_remote"] == "https://***@git.example/x" and first["git_diff"] == "+a\n+token = ***\n"


def test_an_agent_that_starts_after_the_attempts_end_covers_as_well(tmp_path: Path, files: SecretFiles) -> None:
    allocation = gang("vision", "HUB_TOKEN")
    files.hand_out(allocation)
    files.remove(KEY)
    again = Node(tmp_path, SecretFiles(files.store, tmp_path / "agent"), allocation)
    tell(again.spool, FIRST)
    told = again.ship()
    assert b"***" in told and not [form for form in forms(FIRST) if form in told]


def test_where_a_value_is_lost_nothing_but_numbers_is_told(tmp_path: Path, files: SecretFiles) -> None:
    allocation = gang("vision", "HUB_TOKEN")
    files.hand_out(allocation)
    files.remove(KEY)
    files.store.remove(NAME)
    again = Node(tmp_path, SecretFiles(files.store, tmp_path / "agent"), allocation)
    tell(again.spool, FIRST)
    told = again.ship()
    assert not [form for form in forms(FIRST) if form in told] and not data(again.producer, "trainhouse.metrics")
    assert [d["commit"] for d in data(again.producer, "trainhouse.checkpoints") if "commit" in d] == [1]


def test_a_server_that_answers_nonsense_holds_no_file_back(tmp_path: Path, files: SecretFiles) -> None:
    class Nonsense:
        def value(self, record: SecretRecord) -> str:
            raise KeyError(f"data: {FIRST}")

    allocation = gang("vision", "HUB_TOKEN")
    again = Node(tmp_path, SecretFiles(files.store, tmp_path / "agent", Nonsense()), allocation)  # type: ignore[arg-type]
    tell(again.spool, FIRST)
    told = again.ship()
    assert not [form for form in forms(FIRST) if form in told]


def test_columns_that_become_one_keep_every_point(tmp_path: Path, files: SecretFiles) -> None:
    allocation = gang("vision", "HUB_TOKEN")
    node = Node(tmp_path, files, allocation)
    files.hand_out(allocation)
    node.spool.metrics(1, 1, {FIRST: 1.0})
    node.spool.metrics(2, 2, {FIRST.encode().hex(): 2.0})
    node.ship()
    (batch,) = data(node.producer, "trainhouse.metrics")
    assert batch["metrics"] == {"***": [1.0, 2.0]} and batch["steps"] == [1, 2]


def test_a_job_without_secrets_has_no_cover(tmp_path: Path, files: SecretFiles) -> None:
    covers = SpoolCovers(files)
    assert covers.of(gang("vision")) is None


def test_the_cost_is_bounded(tmp_path: Path, files: SecretFiles) -> None:
    """A whole environment of 5,000 packages, and 40,000 points, within what the agent's loop can give."""
    allocation = gang("vision", "HUB_TOKEN")
    node = Node(tmp_path, files, allocation)
    files.hand_out(allocation)
    packages: dict[str, Any] = {f"package-{n}": f"1.{n}" for n in range(4_000)}
    node.spool.event("EnvironmentCaptured", {"packages": packages, "at_ms": 1})
    for step in range(40_000):
        node.spool.metrics(step, step, {"loss": 0.5})
    began_s = time.process_time()
    node.ship()
    assert time.process_time() - began_s < 20
    assert orjson.loads(node.producer.taken[0][1])
