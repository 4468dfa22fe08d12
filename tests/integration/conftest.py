"""What tests of one part share: topics on the shared broker, an embedded engine, a launcher that is warm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.session_support import Runs
from tests.support.last_use import end_after_last_use
from tests.support.waiting import until
from trainhouse.workers.launcher import Launcher

if TYPE_CHECKING:
    from tests.chaos.stack import ChaosStack
    from tests.integration.own_stack import OwnStack
    from tests.support.stack.namespace import Namespace
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.projections.store.clickhouse import ConnectClickHouse


@pytest.fixture(scope="session")
def settings(kafka: str) -> KafkaSettings:
    """The shared broker, with its topics."""
    from trainhouse.events.bus.admin import create_topics
    from trainhouse.events.settings import KafkaSettings

    found = KafkaSettings(bootstrap=kafka)
    create_topics(found)
    return found


@pytest.fixture
def clickhouse(tmp_path: Path) -> Iterator[ConnectClickHouse]:
    """An embedded engine with the newest tables."""
    from tests.support.tables.projecting import engine_in

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


@pytest.fixture(scope="session")
def own_stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnStack]:
    """A whole stack that tests may kill parts of, and stop: one that needs it up asks `runs` first. It ends after its last test."""
    from tests.integration.own_stack import SLOTS, OwnStack

    it = OwnStack(tmp_path_factory.mktemp("stack") / "data")
    with ExitStack() as held:
        held.callback(it.run, "down")
        it.up("--ports", "auto", "--slots", str(SLOTS))
        end_after_last_use(request, Path(__file__).parent, held.close)
        yield it


@pytest.fixture(scope="session")
def namespace() -> Iterator[Namespace | None]:
    """A network that can be taken away; None where none can be made."""
    from tests.support.stack.namespace import Namespace, allowed

    if not allowed():
        yield None
        return
    with Namespace() as made:
        yield made


@pytest.fixture(scope="session")
def bootstrap_afar(namespace: Namespace | None) -> str:
    """Where brokers of `two_nodes` are found from that network; empty where none can be made."""
    from trainhouse.deploy.local.free_ports import free_port

    return "" if namespace is None else f"{namespace.address}:{free_port()}"


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory, bootstrap_afar: str) -> Iterator[ChaosStack]:
    """A whole stack for faults, with a second node behind a proxy and a standby scheduler; each file has a fresh one, since what a campaign
    leaves in a journal (records that lost, owners that were killed) is not what a measured takeover begins with."""
    from tests.chaos.start import started

    listeners = {"AFAR": bootstrap_afar} if bootstrap_afar else {}
    with started(tmp_path_factory.mktemp("two-nodes") / "data", listeners=listeners) as stack:
        yield stack
