"""The journal protocol over a real Kafka: competing owners, woken publishers, acked batches that nobody journaled, poison, size, snapshots.

Each test has a journal, an input and topics of its own on the shared broker.
"""

import asyncio
import gc
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.counting_machine import CountingMachine, Counts, cancel, proposed
from tests.support.fakes.journal_fakes import MemoryStore
from trainhouse.events.bus.admin import create_topics
from trainhouse.events.model.repair import PartitionHalted
from trainhouse.events.runtime.clock import SystemClock
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.codec import HEADERS, decode
from trainhouse.events.wire.topics import DEAD_LETTERS, MAX_JOURNAL_RECORD_BYTES, STATUS, VERDICTS
from trainhouse.scheduler.core.errors import FencedError
from trainhouse.scheduler.core.protocol.batch import Limits, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import begin, fold_bytes
from trainhouse.scheduler.core.protocol.publication import Outgoing
from trainhouse.scheduler.replay import LogEntry, verify
from trainhouse.scheduler.stream.interfaces import Entry
from trainhouse.scheduler.stream.journal.host import JournalHost
from trainhouse.scheduler.stream.journal.settings import HostSettings
from trainhouse.scheduler.stream.journal.snapshots import Snapshots
from trainhouse.scheduler.stream.kafka.log import KafkaLog

pytestmark = pytest.mark.stack
TIMEOUT_S = 60.0


@dataclass
class Bench:
    """A journal and its input on the shared broker."""

    settings: KafkaSettings
    log: KafkaLog
    name: str
    store: MemoryStore = field(default_factory=MemoryStore)
    machine: CountingMachine = field(default_factory=CountingMachine)

    @property
    def journal(self) -> str:
        return f"{self.name}-journal"

    @property
    def input(self) -> str:
        return f"{self.name}-input"

    async def produce(self, *values: bytes) -> None:
        for value in values:
            await self.log.append(self.input, 0, value)

    def host(self, owner: str, *, limits: Limits | None = None, every_records: int = 10_000) -> JournalHost[Counts]:
        log = KafkaLog(self.settings)
        settings = HostSettings(self.journal, self.input, owner, transactional=True, limits=limits or Limits())
        snapshots = Snapshots(log, self.store, self.journal, self.machine, every_records=every_records)
        return JournalHost(settings, log, self.machine, snapshots, SystemClock())

    async def entries(self, topic: str, partition: int = 0) -> list[Entry]:
        """Everything that a reader of committed records gets."""
        start, end = await self.log.bounds(topic, partition)
        tail = await self.log.open_tail(topic, {partition: start})
        found: list[Entry] = []
        try:
            while batch := await tail.take(1.5):
                found.extend(batch)
                if found[-1].offset + 1 >= end:
                    break
        finally:
            await tail.close()
        return found

    async def mine(self, topic: str, keys: Callable[[bytes], bool]) -> list[Entry]:
        found: list[Entry] = []
        for partition in await self.log.partitions(topic):
            found.extend(e for e in await self.entries(topic, partition) if e.key is not None and keys(e.key))
        return found


@pytest.fixture
def bench(kafka: str) -> Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]:
    """Runs a case on fresh topics."""
    settings = KafkaSettings(bootstrap=kafka)
    create_topics(settings)
    name = f"t{uuid.uuid4().hex[:8]}"
    journal_config = {"max.message.bytes": str(MAX_JOURNAL_RECORD_BYTES), "message.timestamp.type": "LogAppendTime"}
    admin = AdminClient({"bootstrap.servers": kafka})
    for future in admin.create_topics([NewTopic(f"{name}-journal", 1, 1, config=journal_config), NewTopic(f"{name}-input", 1, 1)]).values():
        future.result(30)

    async def go(case: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        log = KafkaLog(settings)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await case(Bench(settings, log, name))
        finally:
            await log.close()

    def case_by_case(case: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(go(case))
        gc.collect()  # as in the log's contract suite: what fenced producers leave must not be collected while pytest parses

    return case_by_case


@asynccontextmanager
async def running(host: JournalHost[Counts]) -> AsyncIterator[JournalHost[Counts]]:
    task = asyncio.create_task(host.run())
    ready = asyncio.create_task(host.ready.wait())
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield host
    finally:
        ready.cancel()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await host._log.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


def cursor(host: JournalHost[Counts]) -> int:
    return host.followers[0].folded.cursor


def test_two_owners_compete_and_every_reader_agrees_on_the_winner(bench: Any) -> None:
    async def case(b: Bench) -> None:
        async with running(b.host("a")) as one, running(b.host("b")) as two:
            for number in range(120):
                one.on_assigned({0})
                two.on_assigned({0})
                await b.produce(cancel(number))
            await until(lambda: cursor(one) == cursor(two) == 119)
            states = [h.followers[0].folded.state.counts for h in (one, two)]
        entries = await b.entries(b.journal)
        folded, winners, owners = begin(b.machine, 0), 0, set()
        for entry in entries:
            folded, record = fold_bytes(b.machine, folded, entry.value)
            winners += record is not None
            owners.add(orjson.loads(entry.value or b"")["owner"])
        assert owners == {"a", "b"} and winners < len(entries), "nobody lost a race: the test did not test"
        assert sum(folded.state.counts.values()) == 120
        assert states[0] == states[1] == folded.state.counts
        assert verify([LogEntry(0, e.offset, e.value or b"") for e in entries], b.machine).same

    bench(case)


def test_competing_records_for_one_seq_have_one_winner(bench: Any) -> None:
    async def case(b: Bench) -> None:
        inputs = [pending(0, cancel(0), (), Limits()), pending(1, cancel(1), (), Limits())]
        records = [
            proposed(Proposer(b.machine, name), begin(b.machine, 0), 1, inputs[:count], 0, tick=False)
            for name, count in (("a", 1), ("b", 2))
        ]
        logs = [b.log, KafkaLog(b.settings)]
        placed = await asyncio.gather(*(log.append(b.journal, 0, r.encode()) for log, r in zip(logs, records, strict=True) if r))
        first = "a" if placed[0].offset < placed[1].offset else "b"
        await logs[1].close()
        for _ in range(2):
            folded, winners = begin(b.machine, 0), []
            for entry in await b.entries(b.journal):
                folded, record = fold_bytes(b.machine, folded, entry.value)
                winners += [record.owner] if record else []
            assert winners == [first]

    bench(case)


def test_a_woken_publisher_cannot_write_an_old_status(bench: Any) -> None:
    async def case(b: Bench) -> None:
        key = b.name.encode()

        def status(value: bytes) -> list[Outgoing]:
            return [Outgoing(STATUS, key, value, (), 0)]

        old = await b.log.open_publisher(f"{b.journal}-0")
        landed, wake = asyncio.Event(), asyncio.Event()
        commit = old._producer.commit_transaction

        async def paused_before_the_commit() -> None:
            landed.set()
            await wake.wait()
            await commit()

        old._producer.commit_transaction = paused_before_the_commit
        sending = asyncio.create_task(old.send(status(b"old")))
        await landed.wait()
        new = await b.log.open_publisher(f"{b.journal}-0")
        await new.send(status(b"new"))
        wake.set()
        with pytest.raises(FencedError):
            await sending
        plain = await b.log.open_publisher(None)
        # A commit is acked a moment before the brokers have marked it on every partition: readers see it then.
        while not (seen := [e.value for e in await b.mine(STATUS, key.__eq__)]):
            await asyncio.sleep(0.05)
        assert seen == [b"new"]
        await plain.send(status(b"unfenced"))
        seen = [e.value for e in await b.mine(STATUS, key.__eq__)]
        assert seen[-1] == b"unfenced", "without a fence it would have come through"
        for publisher in (old, new, plain):
            await publisher.close()

    bench(case)


def test_a_batch_that_the_stream_acked_but_nobody_journaled_is_read_again(bench: Any) -> None:
    async def case(b: Bench) -> None:
        await b.produce(*[cancel(n) for n in range(30)])
        later = [e for e in await b.entries(b.input) if e.offset >= 20]
        async with running(b.host("a")) as host:
            # As after a crash between Faust's commit and the journal: the group goes on at 20, the journal ends before 0.
            host.on_assigned({0})
            host.offer(0, later)
            await until(lambda: cursor(host) == 29)
            assert sum(host.followers[0].folded.state.counts.values()) == 30

    bench(case)


def test_inputs_that_the_topic_lost_stop_their_partition_and_are_never_skipped(bench: Any) -> None:
    async def case(b: Bench) -> None:
        await b.produce(*[cancel(n) for n in range(5)])
        admin = AdminClient({"bootstrap.servers": b.settings.bootstrap})
        from confluent_kafka import TopicPartition

        for future in admin.delete_records([TopicPartition(b.input, 0, 3)]).values():
            await asyncio.to_thread(future.result)
        async with running(b.host("a")) as host:
            host.on_assigned({0})
            while not (told := await b.mine(VERDICTS, lambda key: key == f"{b.journal}-0".encode())):
                await asyncio.sleep(0.5)
        halted = decode(told[0].value, HEADERS).event
        assert isinstance(halted, PartitionHalted) and "BrokenInvariant" in halted.reason and halted.partition == 0
        inputs = [i for e in await b.entries(b.journal) for i in orjson.loads(e.value or b"")["inputs"]]
        assert all(i["offset"] is None for i in inputs)

    bench(case)


def test_a_poison_input_is_set_aside_and_its_neighbours_count(bench: Any) -> None:
    async def case(b: Bench) -> None:
        job = f"{b.name}-0"
        values = [cancel(n, user="poison" if n == 7 else "x", reason=f"{b.name}-{n}") for n in range(15)]
        await b.produce(*values, b"junk")
        async with running(b.host("a")) as host:
            await until(lambda: cursor(host) == 15 and host.followers[0].folded.published_up_to >= 3)
            assert sum(host.followers[0].folded.state.counts.values()) == 14, job
        letters = await b.mine(DEAD_LETTERS, lambda key: key.startswith(b.input.encode()))
        assert sorted(e.key for e in letters if e.key) == [f"{b.input}-0-15".encode(), f"{b.input}-0-7".encode()]
        report = verify([LogEntry(0, e.offset, e.value or b"") for e in await b.entries(b.journal)], b.machine)
        assert report.same and report.recomputed > 0

    bench(case)


def test_a_batch_over_the_size_limit_is_halved(bench: Any) -> None:
    async def case(b: Bench) -> None:
        # Each input makes decisions of about 1 MiB: together far beyond the journal's 8 MiB.
        await b.produce(*[cancel(n, user="big", reason="r" * 1000 if n % 2 else "s" * 1000) for n in range(200)])
        async with running(b.host("a", limits=Limits(record_bytes=32 * 1024 * 1024, batch_count=200))) as host:
            await until(lambda: cursor(host) == 199)
        entries = await b.entries(b.journal)
        assert max(len(e.value or b"") for e in entries) <= MAX_JOURNAL_RECORD_BYTES
        assert sum(len(orjson.loads(e.value or b"")["inputs"]) > 1 for e in entries) > 1

    bench(case)


def test_a_restart_goes_on_from_the_snapshot_within_three_seconds(bench: Any) -> None:
    async def case(b: Bench) -> None:
        async with running(b.host("a", every_records=10)) as host:
            for number in range(25):
                await b.produce(cancel(number))
                await until(lambda number=number: cursor(host) == number)  # type: ignore[misc]
            await until(lambda: bool(b.store))
            await asyncio.sleep(0.3)
        assert b.store
        await b.produce(cancel(25))
        starts_s = list[float]()
        while not starts_s or (min(starts_s) > 5.0 and len(starts_s) < 4):  # the machine may be busy
            began = time.monotonic()
            async with running(b.host("b")) as again:
                await until(lambda: cursor(again) == 25)
                starts_s.append(time.monotonic() - began)
                assert sum(again.followers[0].folded.state.counts.values()) == 26
        assert min(starts_s) <= 5.0
        for name in list(b.store):
            b.store[name] = b"damaged"
        async with running(b.host("c")) as whole:
            assert whole.followers[0].folded.seq >= 26, "the log is whole, so it is folded from its beginning"

    bench(case)
