"""Requests about a job whose pool moves, over whole schedulers and a broker in virtual time: who asked is answered once, and rightly.

Three schedulers share three partitions and are killed, paused and held right before an append, a publication or a commit, while the pool
goes round all of them; the directory sends to the partition on which the pool was created, and at times sends its last records again.

`TRAINHOUSE_SIM_SEEDS=200` runs more seeds than the few of every test run.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from random import Random

import pytest
from structlog.testing import capture_logs

from tests.chaos.emulated.processes import MOMENTS, Process, Store, Troubles
from tests.support.core_world import admitted
from tests.support.fakes.journal_fakes import EPOCH_MS, FakeBroker, FakeLog, run_virtually
from trainhouse.client.kafka.journal_answers import EARLIER_RECORDS, JournalAnswers, outcome_of
from trainhouse.events import ChangeJob, Event, MovePool, Order, PoolCreated, decode, envelope_of
from trainhouse.events.model.decisions import JobRetuned
from trainhouse.events.model.handover import DetourEnded, InputRedirected, PoolTaken
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.events.wire.topics import CONTROL, DECISIONS, POOLS
from trainhouse.scheduler.core.protocol.journal import begin, fold_bytes
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.stream.interfaces import Entry

SEEDS = range(1, 1 + int(os.environ.get("TRAINHOUSE_SIM_SEEDS", "4")))
PARTITIONS, JOB = 3, "waits"
MOVES = (1, 2, 0, 2, 1, 0)
ANSWERED_WITHIN_S = 300.0
AGAIN_AFTER_S = 20.0
PRIORITIES = 101


@dataclass
class Asked:
    """A change; `told`: its first answer, which a client takes; `answers`: all that any reader of the journals could take for one."""

    event_id: str
    priority: int
    told: JobRetuned | None = None
    answers: list[JobRetuned | None] = field(default_factory=list)


@dataclass(frozen=True)
class Message:
    """An entry of a journal as a client reads it."""

    entry: Entry

    def value(self) -> bytes | None:
        return self.entry.value

    def partition(self) -> int:
        return self.entry.partition


class Life:
    """One pool, one job that waits in it, and who asks. To be made within a running virtual loop."""

    def __init__(self, seed: int) -> None:
        self.rng, self.broker = Random(seed), FakeBroker(partitions=PARTITIONS)
        store, troubles = Store(), Troubles()
        self.processes = [Process(name, self.broker, store, troubles, Random(f"{seed}{name}")) for name in "abc"]
        self.sent: list[bytes] = []
        self.asked: list[Asked] = []
        self.loop = asyncio.get_running_loop()
        self.on = 0
        self.faulty = True

    def forward(self, event: Event, event_id: str) -> None:
        """The directory's record for the partition on which the pool was created; it may send its last ones once more."""
        order = Order(0, len(self.sent), 0)
        self.sent.append(encode(envelope_of(event, id=event_id, source="directory", now_ms=EPOCH_MS, order=order)))
        again = self.rng.randrange(4) if self.rng.random() < 0.3 else 0
        for value in (self.sent[-1], *self.sent[-1 - again : -1], *self.sent[-1:] * bool(again)):
            self.broker.land(CONTROL, 0, b"0", value, HEADERS)

    async def assign(self) -> None:
        """The group gives partitions to those that live."""
        while True:
            live = [p for p in self.processes if p.alive]
            for number, process in enumerate(live):
                mine = {p for p in range(PARTITIONS) if p % len(live) == number}
                if process.awake.is_set() and process.host.ready.is_set() and mine != process.host._assigned:
                    process.host.on_assigned(mine)
            await asyncio.sleep(1.0)

    async def strike(self) -> None:
        """Kills, pauses and holds, one after another."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.05, 2.5))
            if self.faulty:
                process = self.rng.choice(self.processes)
                match self.rng.randrange(4):
                    case 0 | 1:
                        process.kill()
                    case 2:
                        process.pause(self.rng.uniform(0.2, 8))
                    case _:
                        process.hold = (self.rng.choice(sorted(MOMENTS)), self.rng.uniform(0.2, 8))

    async def move(self, to: int) -> None:
        """Returns when the scheduler of the other partition has said that it has the pool; asks again where it came back just before."""
        tail = await FakeLog(self.broker).open_tail(POOLS, {p: len(self.broker.logs[POOLS, p]) for p in range(PARTITIONS)})
        asked_s = -AGAIN_AFTER_S
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            while self.on != to:
                if self.loop.time() >= asked_s + AGAIN_AFTER_S:
                    asked_s = self.loop.time()
                    self.forward(MovePool.model_validate({"pool": "default", "to_partition": to}), f"move-{len(self.sent)}")
                for entry in await tail.take(1.0):
                    event = decode(entry.value, entry.headers).event
                    assert isinstance(event, PoolCreated)
                    self.on = event.partition

    async def ask(self) -> None:
        """Asks for another priority than any before, and waits for the first answer."""
        asked = Asked(f"change-{len(self.asked)}", len(self.asked) % PRIORITIES)
        self.asked.append(asked)
        starts = {p: max(0, len(self.broker.logs[DECISIONS, p]) - EARLIER_RECORDS) for p in range(PARTITIONS)}
        tail, answers = await FakeLog(self.broker).open_tail(DECISIONS, starts), JournalAnswers()
        self.forward(ChangeJob.model_validate({"job_id": JOB, "priority": asked.priority}), asked.event_id)
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            while not (found := [f for entry in await tail.take(1.0) if (f := answer_of(answers, entry, asked)) is not None]):
                pass
        asked.told = found[0][0]

    def entries(self) -> list[Entry]:
        return [e for p in range(PARTITIONS) for e in self.broker.committed(DECISIONS, p)]


def answer_of(answers: JournalAnswers, entry: Entry, asked: Asked) -> tuple[JobRetuned | None] | None:
    """The outcome of a change as the client finds it in an entry of a journal; None where there is none."""
    decisions = answers.decided(Message(entry), asked.event_id)  # type: ignore[arg-type]
    return outcome_of(decisions, asked.event_id, JobRetuned, lambda d: d.job_id == JOB, reported_elsewhere=False)


async def lived(seed: int) -> tuple[list[Asked], list[ScheduleState], list[Event]]:
    """A life: a move and a request behind it, again and again, with requests in between; the requests, and what the journals say."""
    life = Life(seed)
    work = [asyncio.create_task(each) for each in (life.assign(), life.strike())]
    life.forward(PoolCreated.model_validate({"pool": "default", "partition": 0}), "pool")
    life.forward(admitted(JOB, ranks=2).model_copy(update={"pool": "default"}), "admitted")
    await life.ask()
    for to in MOVES:
        moving = asyncio.create_task(life.move(to))
        asking = []
        while not moving.done():
            await asyncio.wait([moving], timeout=life.rng.uniform(0, 1))
            asking.append(asyncio.create_task(life.ask()))
        await moving
        await asyncio.gather(*asking, *(life.ask() for _ in range(life.rng.randint(1, 3))))
    life.faulty = False
    await asyncio.sleep(60)
    for task in work:
        task.cancel()
    for asked in life.asked:
        answers = JournalAnswers()
        asked.answers = [found[0] for entry in life.entries() if (found := answer_of(answers, entry, asked)) is not None]
    states, decisions = judged(life)
    return life.asked, states, decisions


def judged(life: Life) -> tuple[list[ScheduleState], list[Event]]:
    """The states after the records that count, and their decisions in the order in which they were made."""
    states, made, machine = [], list[tuple[int, int, tuple[Event, ...]]](), ScheduleMachine()
    for partition in range(PARTITIONS):
        folded = begin(machine, partition)
        for entry in life.broker.committed(DECISIONS, partition):
            folded, record = fold_bytes(machine, folded, entry.value)
            if record is not None:
                made.append((entry.timestamp_ms, record.seq, record.decisions))
        states.append(folded.state)
    return states, [d for _, _, decisions in sorted(made, key=lambda m: m[:2]) for d in decisions]


@pytest.mark.parametrize("seed", SEEDS)
def test_who_asks_behind_a_move_is_answered_what_was_done_whatever_is_killed(seed: int) -> None:
    print(f"seed {seed}")
    with capture_logs():
        asked, states, decisions = run_virtually(lived(seed))
    for each in asked:
        assert each.told is not None and each.told.priority == each.priority, each
        assert each.answers == [each.told], each
    retuned = [d.priority for d in decisions if isinstance(d, JobRetuned)]
    assert retuned == [each.priority for each in asked], "each change is made once, in the order in which they were asked for"
    [(there, job)] = [(s.partition, s.jobs[JOB]) for s in states if JOB in s.jobs]
    assert (there, job.priority) == (MOVES[-1], asked[-1].priority)
    kinds = [type(d) for d in decisions]
    print({k.__name__: kinds.count(k) for k in (PoolTaken, InputRedirected, DetourEnded, JobRetuned)})
    assert kinds.count(PoolTaken) >= len(MOVES)
