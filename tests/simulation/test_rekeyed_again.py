"""Intakes that re-key the same records twice, late and out of order: each request counts exactly once, by the directory's journal alone.

Their group's offsets are a hint here that is often wrong: a session begins anywhere, also beyond what no session has read. An intake may be
paused within a batch, lose a send or its answer, and go on after others. The directory remembers few ids, so that its places must do.
"""

import asyncio
import random
from collections import Counter

import pytest

from tests.support.fakes.journal_fakes import FakeBroker, FakeLog, Faults, LoopClock, run_virtually
from trainhouse.events import DrainNode, JobSubmitted, PoolCreated, decode, encode, envelope_of
from trainhouse.events.model.routing import JobDirected, RequestForwarded
from trainhouse.events.wire import topics
from trainhouse.scheduler.core.intake import directory_state, request_ids
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.protocol.machine import Input
from trainhouse.scheduler.stream.screening.screening_agent import ScreeningAgent

PARTITIONS = 3
RECORDS = 60
SESSIONS = 6


class World:
    """Producers' records on the public topic, intakes that re-key them, and the directory over what they made of them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.broker = FakeBroker(partitions=PARTITIONS)

    def produce(self) -> None:
        """Drains, submissions, and some of both once more under their id, as a producer does whose ack was lost."""
        for p in range(PARTITIONS):
            pool = PoolCreated.model_validate({"pool": f"pool-{p}", "partition": p})
            self.broker.land(topics.JOBS, p, None, encode(envelope_of(pool, id=f"pool-{p}", source="op", now_ms=0)))
        for n in range(RECORDS):
            pool = f"pool-{self.rng.randrange(PARTITIONS)}"
            submitted = {"job_id": f"j{n}", "spec": {"pool": pool, "runtime": {"command": ["true"]}}}
            event = (
                JobSubmitted.model_validate(submitted)
                if n % 3 == 0
                else DrainNode.model_validate({"pool": pool, "node_id": f"n{n}", "user": "ada"})
            )
            value = encode(envelope_of(event, id=f"id-{n}", source="op", now_ms=n))
            for _ in range(1 + (self.rng.random() < 0.1)):
                self.broker.land(topics.JOBS, self.rng.randrange(PARTITIONS), None, value)

    async def intake(self) -> None:
        """Sessions of one process; each reads some of one partition, from somewhere on."""
        faults = Faults(random.Random(self.rng.random()), lose=0.2, lose_ack=0.1)
        agent = ScreeningAgent(FakeLog(self.broker, faults, self._pause), LoopClock())
        for _ in range(SESSIONS):
            p = self.rng.randrange(PARTITIONS)
            await self.read(agent, p, self.rng.randrange(len(self.broker.logs[topics.JOBS, p])), self.rng.randint(1, 30))

    async def read(self, agent: ScreeningAgent, p: int, start: int, count: int) -> None:
        entries = self.broker.committed(topics.JOBS, p)[start : start + count]
        while entries:
            size = self.rng.randint(1, 8)
            await agent.take({p: entries[:size]})
            entries = entries[size:]

    async def _pause(self, step: str) -> None:
        if step == "publishing" and self.rng.random() < 0.02:
            await asyncio.sleep(self.rng.uniform(1, 20))

    async def run(self) -> None:
        self.produce()
        whole = ScreeningAgent(FakeLog(self.broker, Faults(delay_s=0)), LoopClock())
        for p in range(PARTITIONS):
            await self.read(whole, p, 0, 1)  # pools exist before anything is asked of them
        await asyncio.gather(*(self.intake() for _ in range(3)))
        for _ in range(2):  # the group's offsets are gone: all is read again
            for p in range(PARTITIONS):
                await self.read(whole, p, 0, 10**6)

    def directory(self, partition: int) -> list[object]:
        """What the directory decides, record by record of admission."""
        machine = DirectoryMachine(control_partitions=PARTITIONS)
        state, found = machine.initial(partition), []
        for entry in self.broker.committed(topics.ADMISSION, partition):
            inputs = [Input(entry.offset, decode(entry.value, entry.headers))]
            decisions = machine.decide(state, entry.offset, inputs)
            state = machine.fold(state, entry.offset, inputs, decisions)
            found += decisions
        return found

    def first_comes_late(self) -> int:
        """How many records were re-keyed for the first time behind a later one of their partition: a largest offset would drop them."""
        late = 0
        for partition in range(PARTITIONS):
            seen: dict[str, set[int]] = {}
            for entry in self.broker.committed(topics.ADMISSION, partition):
                origin = decode(entry.value, entry.headers).origin
                assert origin is not None
                offsets = seen.setdefault(origin.source, set())
                late += origin.offset not in offsets and any(other > origin.offset for other in offsets)
                offsets.add(origin.offset)
        return late


def test_each_request_counts_once_whatever_intakes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    # A producer's own repeat follows its first within the records that are in flight; what is read again does not.
    monkeypatch.setattr(directory_state, "MAX_SEEN", 2)
    late = 0
    for seed in range(20):
        world = World(seed)
        run_virtually(world.run())
        decided = [d for partition in range(PARTITIONS) for d in world.directory(partition)]
        drained = Counter(d.event_id for d in decided if isinstance(d, RequestForwarded))
        admitted = Counter(d.admission.job_id for d in decided if isinstance(d, JobDirected))
        assert drained == {f"id-{n}": 1 for n in range(RECORDS) if n % 3}, seed
        assert admitted == {f"j{n}": 1 for n in range(0, RECORDS, 3)}, seed
        late += world.first_comes_late()
    assert late > 20, "no seed tried what a largest offset would lose"


def test_what_cannot_be_told_from_a_repeat_is_refused_never_applied_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_state, "MAX_SEEN", 2)
    monkeypatch.setattr(request_ids, "MOST_OF_OPERATORS", 2)
    for seed in range(20):
        world = World(seed)
        run_virtually(world.run())
        decided = [d for partition in range(PARTITIONS) for d in world.directory(partition)]
        drained = Counter(d.event_id for d in decided if isinstance(d, RequestForwarded))
        assert set(drained.values()) == {1}, seed
        told = {getattr(d, "submission_id", None) for d in decided} | set(drained)
        assert {f"id-{n}" for n in range(RECORDS) if n % 3} <= told, seed
