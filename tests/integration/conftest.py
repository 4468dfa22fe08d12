"""What tests of one part share: topics on the shared broker, an embedded engine, a launcher that is warm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.session_support import Runs
from tests.waiting import until
from trainhouse.workers.launcher import Launcher

if TYPE_CHECKING:
    from trainhouse.deploy.local.store import StoreServer
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.projections.store.clickhouse import ConnectClickHouse


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


@pytest.fixture(scope="session")
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
