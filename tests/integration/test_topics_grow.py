"""Partition counts on a real broker: recorded with the topics, adopted where they were not, refused when they differ, and grown in use."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from tempfile import gettempdir

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from tests.support.fakes.journal_fakes import MemoryStore
from tests.support.waiting import until
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.events import CancelJob, JobId, PoolCreated, envelope_of
from trainhouse.events.bus.admin import create_project_topics, create_topics
from trainhouse.events.bus.topology_log import checked_topology, read_topology, watch
from trainhouse.events.model.errors import TopicsDifferError
from trainhouse.events.runtime.clock import SystemClock
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.codec import encode
from trainhouse.events.wire.project_topics import jobs_topic, status_topic
from trainhouse.events.wire.topics import (
    ADMISSION,
    ALLOCATIONS,
    CONTROL,
    DECISIONS,
    DIRECTORY,
    HEARTBEATS,
    POOLS,
    PROGRESS,
    TOPICS,
    TOPOLOGY,
)
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots
from trainhouse.scheduler.stream.kafka.log import KafkaLog

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    with KafkaServer(tmp_path_factory.mktemp("broker") / "kafka") as server:
        yield KafkaSettings(bootstrap=server.bootstrap)


def command(kafka: KafkaSettings, *args: str, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"TRAINHOUSE_KAFKA_BOOTSTRAP": kafka.bootstrap, "TRAINHOUSE_S3_ENDPOINT": "http://127.0.0.1:1"} | more
    line = [sys.executable, "-m", "trainhouse.cli.main", *args]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, check=False, cwd=gettempdir())


def add(kafka: KafkaSettings, topic: str, partitions: int) -> None:
    """By other means than ours."""
    admin = AdminClient(kafka.client_config())
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def test_1_topics_of_before_are_adopted_as_the_brokers_have_them(broker: KafkaSettings) -> None:
    admin = AdminClient(broker.client_config())
    old = [NewTopic(name, 2, 1) for name in (ADMISSION, DIRECTORY, CONTROL, DECISIONS, ALLOCATIONS)]
    for future in admin.create_topics(old).values():
        future.result(30)
    with pytest.raises(TopicsDifferError, match="is 3, but the topics have 2 partitions"):
        create_topics(KafkaSettings(bootstrap=broker.bootstrap, partitions=3))
    assert TOPOLOGY in create_topics(broker)
    topology, found = read_topology(broker)
    assert topology.counts == found and set(found) == {t.name for t in TOPICS}
    assert found[HEARTBEATS] == 2 and found[POOLS] == 1, "the default setting is 4, but these topics are made with what is there"
    assert create_topics(broker) == [] and checked_topology(broker).counts == found
    assert len(create_project_topics(broker, "vision")) == 2
    counts = read_topology(broker)[0].counts
    assert counts[jobs_topic("vision")] == counts[status_topic("vision")] == 2


def test_2_each_part_refuses_another_setting_in_one_sentence(broker: KafkaSettings) -> None:
    for role in ("scheduler", "intake", "agent", "gateway"):
        refused = command(
            broker, "run", role, TRAINHOUSE_KAFKA_PARTITIONS="6", TRAINHOUSE_S3_ACCESS_KEY="k", TRAINHOUSE_S3_SECRET_KEY="s"
        )  # pragma: allowlist secret
        assert refused.returncode == 78 and "Traceback" not in refused.stderr, (role, refused)
        assert "is 6, but the topics have 2 partitions" in refused.stderr and "topics grow --partitions 6" in refused.stderr, (
            role,
            refused,
        )


def test_3_the_schedulers_topics_grow_while_one_decides(broker: KafkaSettings) -> None:
    async def story() -> None:
        log, machine = KafkaLog(broker), ScheduleMachine()
        settings = HostSettings(DECISIONS, CONTROL, "a", transactional=True, grows=True)
        host = JournalHost(settings, log, machine, Snapshots(log, MemoryStore(), DECISIONS, machine), SystemClock())
        task = asyncio.create_task(host.run())
        try:
            await asyncio.wait_for(host.ready.wait(), 60)
            host.on_assigned({0, 1, 2, 3})
            while not all(f.own_seq > 0 for f in host.followers.values()):
                await asyncio.sleep(0.1)
            dry = await asyncio.to_thread(command, broker, "topics", "grow", "--partitions", "4", "--dry-run")
            assert dry.returncode == 0 and f"{CONTROL} would get 4 for 2" in dry.stdout, dry
            assert (await asyncio.to_thread(read_topology, broker))[1][CONTROL] == 2
            await asyncio.to_thread(add, broker, DECISIONS, 3)  # somebody was quicker, in part
            grown = await asyncio.to_thread(command, broker, "topics", "grow", "--partitions", "4", "--json")
            assert grown.returncode == 0, grown
            assert {r["topic"]: (r["from"], r["to"]) for r in map(json.loads, grown.stdout.splitlines())} == {
                CONTROL: (2, 4),
                DECISIONS: (3, 4),
                ALLOCATIONS: (2, 4),
                PROGRESS: (2, 4),
            }
            for partition in range(4):
                made = PoolCreated.model_validate({"pool": f"p{partition}", "partition": partition})
                await log.append(CONTROL, partition, encode(envelope_of(made, id=f"p{partition}", source="test", now_ms=1)))
                event = CancelJob(job_id=JobId("none"), reason="", user="u")
                await log.append(CONTROL, partition, encode(envelope_of(event, id=f"c{partition}", source="test", now_ms=1)))
            async with asyncio.timeout(120):
                while len(host.followers) < 4 or any(f.folded.cursor < 1 for f in host.followers.values()):
                    await asyncio.sleep(0.1)
            assert {p for f in host.followers.values() for p in f.folded.state.pools} == {"p0", "p1", "p2", "p3"}
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await log.close()

    asyncio.run(story())
    topology = checked_topology(KafkaSettings(bootstrap=broker.bootstrap, partitions=4))
    assert (topology.scheduling(0), topology.made_with(0)) == (4, 2)
    fewer = command(broker, "topics", "grow", "--partitions", "3")
    assert fewer.returncode == 2 and "give --partitions 4 or more" in fewer.stderr, fewer
    assert create_topics(broker) == []


def test_4_partitions_that_somebody_else_added_are_noticed(broker: KafkaSettings) -> None:
    stop, refusals = threading.Event(), list[str]()
    watching = threading.Thread(target=watch, args=(broker, "trainhouse-reader", stop, refusals.append, 0.2))
    watching.start()
    try:
        add(broker, CONTROL, 5)
        shown = command(broker, "topics")
        assert shown.returncode == 1 and "run `trainhouse topics grow --partitions 5`" in shown.stderr, shown
        with pytest.raises(TopicsDifferError, match="somebody added partitions"):
            checked_topology(broker)
        assert command(broker, "topics", "grow", "--partitions", "5").returncode == 0
        assert command(broker, "topics").returncode == 0 and not refusals
        add(broker, HEARTBEATS, 3)
        until(lambda: bool(refusals), "the watch refuses")
        assert f"{HEARTBEATS} has 3 partitions, and 2 are recorded" in refusals[0]
        with pytest.raises(TopicsDifferError, match="make it anew with 2"):
            checked_topology(broker)
    finally:
        stop.set()
        watching.join(60)
