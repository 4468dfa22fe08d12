"""Servers that tests share: a real Kafka and a real S3, one each for a whole run, on free ports in fresh folders.

They start when the first test asks for them, and end with the run, even if it is killed.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support import cpu_time, time_left, totals
from tests.support.last_use import after
from tests.support.profiles import register

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

# A broker that lives for a minute never earns back what the optimizing compiler takes: without it, it starts in half the CPU time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# Threads of OpenMP spin while they wait for each other: on a machine that is busy with other tests, twice the CPU time, and eight times
# as long. Set before torch is imported; ranks have their own setting from their agent.
os.environ.setdefault("OMP_NUM_THREADS", "1")

register()


def pytest_configure(config: pytest.Config) -> None:
    """Measures, ends in time, and counts, where the environment asks for it."""
    cpu_time.register(config)
    time_left.register(config)
    totals.register(config)


def pytest_collection_finish() -> None:
    """Leaves what was imported and collected out of looks for cycles: it stays to the end. Trainers look at all objects after each run."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Ends what no later test needs."""
    after(item)


def pytest_unconfigure() -> None:
    """Lets the end of the process find it again: libraries in C complain of objects that are left."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """The shared broker itself; do not kill it: make your own `KafkaServer` for that."""
    from trainhouse.deploy.local.servers.kafka_broker import KafkaServer

    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(kafka_server: KafkaServer) -> str:
    """Bootstrap address of the shared broker; it has no topics until a test makes some."""
    return kafka_server.bootstrap


@pytest.fixture(scope="session")
def object_store_with_sts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """A store that gives keys which end by themselves."""
    from tests.support.stack.sts_store import StsStore

    with StsStore(tmp_path_factory.mktemp("sts")) as server:
        yield server


@pytest.fixture(scope="session")
def object_store_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """The shared object store: `endpoint`, `access_key`, `secret_key`, `bucket`."""
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

    with StoreServer(tmp_path_factory.mktemp("store")) as server:
        yield server
