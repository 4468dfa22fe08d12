"""`trainhouse journal repair` on a real broker: a running scheduler halts at a record, the others go on, and the repair sets it free."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import gettempdir

import pytest

from tests.support.fakes.journal_fakes import MemoryStore
from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.events import envelope_of
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.model.ids import JobId
from trainhouse.events.model.job import CancelJob
from trainhouse.events.model.repair import PartitionHalted
from trainhouse.events.runtime.clock import SystemClock
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.codec import HEADERS, decode, encode
from trainhouse.events.wire.journal import record_hash
from trainhouse.events.wire.topics import CONTROL, DECISIONS, VERDICTS
from trainhouse.scheduler.core.protocol.batch import Proposer
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots
from trainhouse.scheduler.stream.kafka.log import KafkaLog

pytestmark = pytest.mark.stack
BROKEN, SOUND = 1, 0
Host = JournalHost[ScheduleState]


def command(kafka: KafkaSettings, *args: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"TRAINHOUSE_KAFKA_BOOTSTRAP": kafka.bootstrap, "TRAINHOUSE_S3_ENDPOINT": "http://127.0.0.1:1"}
    line = [sys.executable, "-m", "trainhouse.cli.main", "journal", "repair", *args]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, check=False, cwd=gettempdir())


def a_host(kafka: KafkaSettings, log: KafkaLog) -> Host:
    machine = ScheduleMachine()
    settings = HostSettings(DECISIONS, CONTROL, "a", transactional=True)
    return JournalHost(settings, log, machine, Snapshots(log, MemoryStore(), DECISIONS, machine), SystemClock())


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {timeout_s} s: {what}") from None


async def halts(log: KafkaLog) -> list[PartitionHalted]:
    events = [decode(value, HEADERS).event for value in await log.whole(VERDICTS)]
    return [event for event in events if isinstance(event, PartitionHalted)]


@pytest.fixture
def kafka_settings(tmp_path: Path) -> Iterator[KafkaSettings]:
    """A broker of its own: the journal's own topic is broken here."""
    with KafkaServer(tmp_path / "kafka") as server:
        settings = KafkaSettings(bootstrap=server.bootstrap)
        create_topics(settings)
        yield settings


def test_a_record_that_cannot_be_read_is_found_and_emptied_and_its_partition_goes_on(kafka_settings: KafkaSettings) -> None:
    kafka = kafka_settings

    async def story() -> None:
        log = KafkaLog(kafka)
        host = a_host(kafka, log)
        task = asyncio.create_task(host.run())
        try:
            await asyncio.wait_for(host.ready.wait(), 60)
            host.on_assigned({SOUND, BROKEN})
            await until(lambda: all(host.followers[p].own_seq > 0 for p in (SOUND, BROKEN)), "both partitions are claimed")
            bad, offset = await broken_record(host, log)
            await until(lambda: bool(host.followers[BROKEN].halted), "the partition halts")
            await ask_something(log)
            await until(lambda: host.followers[SOUND].folded.cursor >= 0, "the other partition decides")
            assert not task.done()
            while not (reported := await halts(log)):
                await asyncio.sleep(0.2)
            assert {(h.partition, h.fault) for h in reported} == {(BROKEN, "STOPPED")}
            await repair(bad, offset)
            await until(lambda: not host.followers[BROKEN].halted and host.followers[BROKEN].folded.cursor >= 0, "the partition goes on")
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await log.close()

    async def broken_record(host: Host, log: KafkaLog) -> tuple[bytes, int]:
        """Written by another process in time for its seq: until then the owner is quicker now and then."""
        sent: dict[int, bytes] = {}
        while not host.followers[BROKEN].halted:
            claim = Proposer(ScheduleMachine(), "b").claim(host.followers[BROKEN].folded, 0).value
            bad = claim.replace(b'"decisions":[]', b'"decisions":[{"type":"trainhouse.job.status.v1","data":{"job_id":7}}]')
            sent[(await log.append(DECISIONS, BROKEN, bad)).offset] = bad
            await asyncio.sleep(0.2)
        offset = int(host.followers[BROKEN].halted.split(":")[0].removeprefix("offset "))
        return sent[offset], offset

    async def ask_something(log: KafkaLog) -> None:
        for partition in (SOUND, BROKEN):
            event = CancelJob(job_id=JobId("none"), reason="", user="u")
            await log.append(CONTROL, partition, encode(envelope_of(event, id=f"c{partition}", source="test", now_ms=1)))

    async def repair(bad: bytes, offset: int) -> None:
        dry = await asyncio.to_thread(command, kafka)
        place = f"{DECISIONS}-{BROKEN}@{offset}"
        assert dry.returncode == 1 and f"{place}: cannot be folded" in dry.stdout and record_hash(bad) in dry.stdout, dry
        assert f"{DECISIONS}-{SOUND}: can be folded to its end" in dry.stdout
        (row,) = map(json.loads, (await asyncio.to_thread(command, kafka, "--json")).stdout.splitlines())
        assert (row["hash"], row["owner"], row["decisions"]) == (record_hash(bad), "b", {"trainhouse.job.status.v1": 1})
        for refused, words in (
            ((place,), "--reason"),
            ((place, "--hash", "0" * 64, "--reason", "x"), "nothing was written"),
            ((f"{DECISIONS}-{SOUND}@0", "--hash", row["hash"], "--reason", "x"), "can be folded"),
            (("junk", "--hash", row["hash"], "--reason", "x"), "names no record"),
        ):
            found = await asyncio.to_thread(command, kafka, *refused)
            assert found.returncode in (2, 3) and words in found.stderr and "Traceback" not in found.stderr, found
        done = await asyncio.to_thread(command, kafka, place, "--hash", row["hash"], "--reason", "a broken build wrote it")
        assert done.returncode == 0 and f"{place} counts as empty" in done.stdout, done
        assert (await asyncio.to_thread(command, kafka)).returncode == 0

    asyncio.run(story())
