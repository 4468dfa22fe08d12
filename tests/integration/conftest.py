"""One whole stack for all integration tests of a run: every process real, on free ports, in a fresh folder.

It starts when the first test asks for it, and ends with the run, even if the run is killed (its supervisor dies with it).
Tests that kill parts, or need a stack to be down, start one of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.session_support import Runs
from tests.live_stack import LiveStack, running_stack
from tests.waiting import until
from trainhouse.workers.launcher import Launcher

if TYPE_CHECKING:
    from trainhouse.deploy.local.store import StoreServer
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.projections.clickhouse import ConnectClickHouse

SLOTS = 4


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    """The shared stack. TRAINHOUSE_TEST_STACK may name the data folder of one that is up, to write tests without its start."""
    if running := os.environ.get("TRAINHOUSE_TEST_STACK"):
        yield LiveStack(Path(running), SLOTS)
        return
    with running_stack(tmp_path_factory.mktemp("stack") / "data", SLOTS) as started:
        yield started


@pytest.fixture(scope="session")
def settings(kafka: str) -> KafkaSettings:
    """The shared broker, with its topics."""
    from trainhouse.events.admin import create_topics
    from trainhouse.events.settings import KafkaSettings

    found = KafkaSettings(bootstrap=kafka)
    create_topics(found)
    return found


@pytest.fixture
def clickhouse(tmp_path: Path) -> Iterator[ConnectClickHouse]:
    """An embedded engine with the newest tables."""
    from tests.projecting import engine_in

    with engine_in(tmp_path / "clickhouse") as made:
        yield made


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    """A launcher whose warm process has imported what it will."""
    launcher = Launcher(warm_wait_s=120)
    launcher.prepare()
    until(launcher.warm_ready)
    yield launcher
    launcher.close()


@pytest.fixture
def runs(tmp_path: Path, launcher: Launcher, object_store_endpoint: StoreServer) -> Iterator[Runs]:
    """Attempts whose ranks use the session, with a real object store."""
    runs = Runs(tmp_path, launcher, object_store_endpoint)
    yield runs
    runs.close()
