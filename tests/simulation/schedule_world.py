"""The scheduler's machine with its journal under virtual time: jobs, people, nodes, faults, and an owner that cuts batches at random.

Holds: everything follows from the seed; an input reaches the machine as bytes of an envelope, a decision as bytes of a journal record.
Never: judges (`checkers` does, from the journal's bytes alone).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any

from tests.simulation.virtual_nodes import EXIT_SAVED, Key, VirtualNode
from tests.support.core_world import progress
from trainhouse.events import (
    CheckpointCompleted,
    DeviceDegraded,
    Event,
    GangAllocated,
    GangHung,
    LossDiverged,
    NodeRegistered,
    Order,
    envelope_of,
)
from trainhouse.events.model.decisions import JobForgotten
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.scheduler.core.protocol.batch import Limits, Pending, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import Folded, begin, fold_bytes, machine_part
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.replay import state_hash

BEGIN_MS = 1_800_000_000_000
SNAPSHOT_EVERY = 40


@dataclass
class Run:
    """One attempt as its ranks live it, on all of its nodes together."""

    gang: GangAllocated
    up: set[str] = field(default_factory=set)
    begun_ms: int | None = None
    step_ms: int = 0
    over: bool = False


class World:
    """One partition. `faulty`: things go wrong, reports come twice or out of order.

    `exact`: all answers come at once, and nothing goes wrong.
    """

    def __init__(self, seed: int, *, exact: bool = False) -> None:
        self.rng, self.faulty, self.exact = Random(seed), not exact, exact
        self.now_ms = BEGIN_MS
        self.machine = ScheduleMachine()
        self.folded: Folded[ScheduleState] = begin(self.machine, 0)
        self.proposer = Proposer(self.machine, f"owner-{seed}", Limits())
        self.journal: list[bytes] = []
        self.snapshots: dict[tuple[int, int], str] = {}
        self.nodes: dict[str, VirtualNode] = {}
        self.orders: list[Event] = []
        self.runs: dict[Key, Run] = {}
        self.left_ms: dict[str, int] = {}
        self.fails: dict[str, float] = {}
        self.commits: dict[str, int] = {}
        self.jobs: set[str] = set()
        self.ended: set[str] = set()
        self._heap: list[tuple[int, int, Callable[[], Any]]] = []
        self._count = self._offset = self._asked = 0
        self._waiting: list[Pending] = []

    # ---- time

    def at(self, at_ms: int, act: Callable[[], Any]) -> None:
        """Does something then."""
        self._count += 1
        heappush(self._heap, (max(at_ms, self.now_ms), self._count, act))

    def delay(self) -> int:
        """How long a message takes, ms: mostly little, sometimes seconds."""
        if self.exact:
            return 0
        return self.rng.randrange(10, 400) if self.rng.random() < 0.9 else self.rng.randrange(400, 4_000)

    def start_delay(self) -> int:
        """How long ranks take to have processes, ms."""
        return 0 if self.exact else self.rng.randrange(200, 5_000)

    def go(self, until_ms: int, *, stop_when_idle: bool = False) -> None:
        """Up to a time, or until every job has ended."""
        while self._heap and self._heap[0][0] <= until_ms:
            self.now_ms = self._heap[0][0]
            while self._heap and self._heap[0][0] == self.now_ms:
                heappop(self._heap)[2]()
                if self.exact and self._waiting and not (self._heap and self._heap[0][0] == self.now_ms):
                    self.flush()
            if stop_when_idle and self.jobs <= self.ended and not self._waiting:
                return
        self.now_ms = max(self.now_ms, until_ms)

    # ---- the owner

    def own(self, least_ms: int, most_ms: int) -> None:
        """The owner looks at what waits, now and again, and ticks whether there is anything or not."""

        def look() -> None:
            self.flush()
            self.at(self.now_ms + self.rng.randrange(least_ms, most_ms), look)

        look()

    def flush(self) -> None:
        """Makes records of all that waits, cut at random; the last one ends with a tick."""
        while len(self._waiting) > 1 and not self.exact and self.rng.random() < 0.4:
            self._record(self._waiting[: self.rng.randrange(1, len(self._waiting))], tick=self.rng.random() < 0.3)
        self._record(self._waiting, tick=True)

    def _record(self, batch: list[Pending], *, tick: bool) -> None:
        proposed = self.proposer.propose(self.folded, self.now_ms, batch, 0, tick=tick)
        assert proposed is not None
        value = proposed.value
        self.journal.append(value)
        self.folded, counted = fold_bytes(self.machine, self.folded, value)
        assert counted is not None
        self._waiting = [p for p in self._waiting if p.offset > self.folded.cursor]
        if self.folded.seq % SNAPSHOT_EVERY == 0:
            self.snapshots[0, self.folded.seq] = state_hash(self.machine, self.folded.state)
        inputs, decisions = machine_part(counted)
        self.ended.update(str(d.job_id) for d in decisions if isinstance(d, JobForgotten))
        for effect in self.machine.effects(counted.seq, counted.now_ms, inputs, decisions):
            if effect.topic == topics.ALLOCATIONS:
                self.orders.append(effect.event)
        for node in self.nodes.values():
            node.look()

    # ---- inputs

    def arrives(self, event: Event, *, order: Order | None = None) -> None:
        """An event is in control; reports may come once more, later."""
        envelope = envelope_of(event, id=f"e{self._offset}", source="test", now_ms=self.now_ms, order=order)
        self._waiting.append(pending(self._offset, encode(envelope), HEADERS, self.proposer.limits))
        self._offset += 1
        repeatable = order is not None or not isinstance(event, NodeRegistered)
        if self.faulty and repeatable and self.rng.random() < 0.03:
            self.at(self.now_ms + self.rng.randrange(20_000), lambda: self.arrives(event, order=order))

    def ask(self, event: Event) -> None:
        """Somebody asks for something, by way of the directory."""
        self._asked += 1
        self.arrives(event, order=Order(3, self._asked, 0))

    def submit(self, job: Event, job_id: str, work_ms: int, fail: float = 0.0) -> None:
        """A job of so much work on its whole gang; `fail`: the chance that an attempt fails by itself."""
        self.jobs.add(job_id)
        self.left_ms[job_id], self.fails[job_id] = work_ms, fail
        self.ask(job)

    def join(self, name: str, slots: int, device_type: str, pool: str, labels: dict[str, str]) -> VirtualNode:
        """A node comes up."""
        node = self.nodes[name] = VirtualNode(self, name, slots, device_type, pool, labels)
        node.register()
        return node

    # ---- what ranks do

    def part_up(self, key: Key, node: VirtualNode) -> None:
        """A node's ranks have processes; with the last node's, work begins."""
        gang = node.attempts[key].gang
        run = self.runs.setdefault(key, Run(gang))
        run.up.add(node.name)
        if run.over or len(run.up) < len(gang.placements):
            return
        run.begun_ms = run.step_ms = self.now_ms
        need_ms = -(-self.left_ms[key[0]] * gang.spec.gang.ranks // gang.world_size)
        if not self.exact:
            self._first_node(run).say(progress(gang, 1, at_ms=self.now_ms))
            if self.faulty and self.rng.random() < self.fails[key[0]]:
                self.at(self.now_ms + self.rng.randrange(max(1, need_ms)), lambda: self._fail(key))
            self.at(self.now_ms + 20_000, lambda: self._save(key))
        self.at(self.now_ms + need_ms, lambda: self._done(key))

    def _first_node(self, run: Run) -> VirtualNode:
        return self.nodes[run.gang.placements[0].node_id]

    def _save(self, key: Key) -> None:
        """A checkpoint, every 20 s."""
        run = self.runs[key]
        if run.over or run.begun_ms is None:
            return
        whole = run.gang.spec.gang.ranks
        self.left_ms[key[0]] = max(1_000, self.left_ms[key[0]] - (self.now_ms - run.step_ms) * run.gang.world_size // whole)
        run.step_ms = self.now_ms
        commit = self.commits[key[0]] = self.commits.get(key[0], 0) + 1
        about = {"job_id": key[0], "attempt": run.gang.attempt, "epoch": key[1], "at_ms": self.now_ms, "commit": commit}
        more = {"step": commit, "uri": f"s3://b/{key[0]}/{commit}", "bytes_total": 1, "bytes_new": 1}
        self._first_node(run).say(CheckpointCompleted.model_validate(about | more))
        self._first_node(run).say(progress(run.gang, commit, at_ms=self.now_ms))
        self.at(self.now_ms + 20_000, lambda: self._save(key))

    def saves(self, key: Key) -> None:
        """A gang is asked to save and end: it saves, it ends by itself, or it takes too long."""
        run = self.runs.get(key)
        if run is None or run.over or run.begun_ms is None:
            return
        dice = self.rng.random()
        if dice < 0.7:
            self.at(self.now_ms + self.rng.randrange(100, 8_000), lambda: self._save(key))
        elif dice < 0.9:
            self.at(self.now_ms + self.rng.randrange(100, 8_000), lambda: self._all_exit(key, EXIT_SAVED))

    def broken(self, key: Key) -> None:
        """A part of an attempt ended: its work stands still."""
        if key in self.runs:
            self.runs[key].over = True

    def _done(self, key: Key) -> None:
        self._all_exit(key, 0)

    def _all_exit(self, key: Key, code: int) -> None:
        run = self.runs[key]
        if run.over:
            return
        run.over = True
        for part in run.gang.placements:
            for rank in part.ranks:
                self.nodes[part.node_id].exit(key, rank, code)

    def _fail(self, key: Key) -> None:
        run = self.runs[key]
        if not run.over:
            run.over = True
            dice = self.rng.random()
            if dice < 0.25:
                self._hangs(key)
                return
            if dice < 0.45:
                self._diverges(key)
                return
            part = self.rng.choice(run.gang.placements)
            self.nodes[part.node_id].exit(key, self.rng.choice(part.ranks), 1)

    def _hangs(self, key: Key) -> None:
        """It stands still, and the detector says so some time later."""
        gang = self.runs[key].gang
        about = {"pool": gang.pool, "job_id": key[0], "attempt": gang.attempt, "epoch": key[1], "silent_s": 6.0, "limit_s": 5.0}
        at_ms = self.now_ms + self.rng.randrange(5_000, 15_000)
        self.at(at_ms, lambda: self.arrives(GangHung.model_validate(about | {"at_ms": at_ms, "ranks": [0]})))

    def _diverges(self, key: Key) -> None:
        """Its loss is no number: the session says so, and its ranks end."""
        run = self.runs[key]
        first, commit = run.gang.placements[0], self.commits.get(key[0])
        about = {"job_id": key[0], "attempt": run.gang.attempt, "epoch": key[1], "node_id": first.node_id, "pool": run.gang.pool}
        told = {"rank": 0, "step": 7, "loss": "nan", "good_commit": commit, "at_ms": self.now_ms}
        self.nodes[first.node_id].say(LossDiverged.model_validate(about | told))
        for part in run.gang.placements:
            for rank in part.ranks:
                self.nodes[part.node_id].exit(key, rank, 1)

    def degrades(self, node: VirtualNode) -> None:
        """The detector finds new memory errors of one device of a node."""
        device = f"{node.name}-{self.rng.randrange(node.slots)}"
        about = {"pool": node.pool, "node_id": node.name, "boot_id": f"boot-{node.boot}", "device_id": device}
        self.arrives(DeviceDegraded.model_validate(about | {"fault": "ECC", "value": 2, "since_ms": self.now_ms, "at_ms": self.now_ms}))
