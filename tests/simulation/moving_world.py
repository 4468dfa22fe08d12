"""The simulated fleet of `schedule_world`, whose pools move between the partitions of a scheduler while things go wrong.

Holds: everything follows from the seed; what goes from one partition to another travels as bytes, in order, late, and sometimes twice, as
it does after a kill between publishing and marking it published; agents follow their pool as `workers/agent/core/home.py` says; the
directory sends whatever is about a pool to the partition on which the pool was created.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.schedule_load import review
from tests.simulation.schedule_world import SNAPSHOT_EVERY, World
from tests.simulation.virtual_nodes import VirtualNode
from trainhouse.events import Event, JobAdmitted, MovePool, NodeDesiredState, NodeRegistered, Order, PoolCreated, ReviewAction
from trainhouse.events.model.decisions import JobForgotten, NodeJoined
from trainhouse.events.model.handover import InputRedirected, RedirectedInput
from trainhouse.events.model.phases import UnderReview
from trainhouse.events.wire import topics
from trainhouse.events.wire.codec import HEADERS, encode
from trainhouse.events.wire.envelope import envelope_of
from trainhouse.events.wire.journal import ClockTicked, JournaledInput, JournalRecord
from trainhouse.events.wire.redirected import unwrapped
from trainhouse.scheduler.core.protocol.batch import Limits, Pending, Proposer, pending
from trainhouse.scheduler.core.protocol.journal import Folded, begin, fold_bytes, machine_part
from trainhouse.scheduler.core.protocol.machine import OWN_PARTITION, Effect
from trainhouse.scheduler.core.protocol.publication import Outgoing, sent_of
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state.state import ScheduleState
from trainhouse.scheduler.replay import state_hash


@dataclass
class Side:
    """One partition with its owner. `skew_ms`: how far the owner's clock is behind."""

    partition: int
    folded: Folded[ScheduleState]
    proposer: Proposer[ScheduleState]
    skew_ms: int = 0
    journal: list[bytes] = field(default_factory=list)
    waiting: list[Pending] = field(default_factory=list)
    offset: int = 0
    published: list[Outgoing] = field(default_factory=list)


@dataclass
class MovingNode(VirtualNode):
    """A node whose agent follows its pool."""

    world: MovingWorld
    home: int = 0
    to: int = 0
    stage: str = "settled"
    outbox: list[Event] = field(default_factory=list)

    def pool_is_on(self, partition: int) -> None:
        """The agent reads on the topic of pools that its pool is somewhere else."""
        if partition != self.to:
            self.to, self.stage = partition, "leaving"
            self._leave_when_quiet()

    def _leave_when_quiet(self) -> None:
        self.world.at(max(self.world.now_ms, self.latest_ms) + self.world.delay(), self._quiet)

    def _quiet(self) -> None:
        if self.stage != "leaving" or self.cut:
            return
        if self.world.now_ms < self.latest_ms:
            self._leave_when_quiet()
            return
        self.incarnation += 1
        self.stage = "asked"
        super().register()

    def say(self, event: Event) -> None:
        if self.stage == "settled":
            super().say(event)
        else:
            self.outbox.append(event)

    def restart(self, *, keep: bool = True) -> None:
        self.stage = "settled" if self.home == self.to else "asked"
        super().restart(keep=keep)

    def reboot(self) -> None:
        self.outbox.clear()
        super().reboot()

    def _obey(self, order: Event) -> None:
        partition = self.world.order_partitions[self.position - 1]
        answered = isinstance(order, NodeDesiredState) and order.node_id == self.name and order.incarnation == f"inc-{self.incarnation}"
        if answered and self.stage == "asked" and partition == self.to:
            self.home, self.stage = partition, "settled"
        super()._obey(order)
        if self.stage == "settled":
            waiting, self.outbox = self.outbox, []
            for event in waiting:
                super().say(event)

    def _send(self, event: Event, at_ms: int) -> None:
        boot, home = self.boot, self.home

        def arrive() -> None:
            if boot != self.boot:
                return
            if self.cut:
                self.held.append(event)
            else:
                self.world.arrives(event, partition=home)

        self.world.at(at_ms, arrive)


class MovingWorld(World):
    """Three partitions; every pool is created on the first."""

    def __init__(self, seed: int, partitions: int = 3, levels: dict[int, int] | None = None) -> None:
        self.sides = [
            Side(n, begin(ScheduleMachine(), n), Proposer(ScheduleMachine(), f"owner-{seed}-{n}", Limits())) for n in range(partitions)
        ]
        for partition, level in (levels or {}).items():
            self.sides[partition].folded = replace(self.sides[partition].folded, level=level)
        self.pools = {"default": 0, "lab": 0}
        self.pool_of_job: dict[str, str] = {}
        self.order_partitions: list[int] = []
        self.records: list[tuple[JournalRecord, frozenset[str]]] = []
        self.moves: dict[str, tuple[str, int]] = {}
        self.refused: list[str] = []
        self._arrive_ms: dict[tuple[int, int], int] = {}
        super().__init__(seed)
        for side in self.sides[1:]:
            side.skew_ms = self.rng.randrange(3_000)
        for pool in self.pools:
            self.ask(PoolCreated.model_validate({"pool": pool, "partition": 0}))

    @property  # type: ignore[override]
    def folded(self) -> Folded[ScheduleState]:
        """Where the large pool is."""
        return next((s.folded for s in self.sides if "default" in s.folded.state.nodes_of_pool), self.sides[0].folded)

    @folded.setter
    def folded(self, _: Folded[ScheduleState]) -> None:
        pass

    def join(self, name: str, slots: int, device_type: str, pool: str, labels: dict[str, str]) -> VirtualNode:
        node = self.nodes[name] = MovingNode(self, name, slots, device_type, pool, labels)
        node.register()
        return node

    # ---- what arrives

    def arrives(self, event: Event, *, order: Order | None = None, partition: int | None = None) -> None:
        """Of a node: where it writes to; of the directory: at the first partition; of the detector: where the pool is, as it knows it."""
        if partition is None:
            partition = 0 if order is not None else self.pools[str(getattr(event, "pool", None) or "default")]
        side = self.sides[partition]
        envelope = envelope_of(event, id=f"e{partition}-{side.offset}", source="test", now_ms=self.now_ms, order=order)
        if isinstance(event, JobAdmitted):
            self.pool_of_job[str(event.job_id)] = str(event.spec.pool)
        job_id = str(getattr(event, "job_id", ""))
        if order is not None and job_id in self.pool_of_job:
            envelope = replace(envelope, pool=self.pool_of_job[job_id])
        if isinstance(event, MovePool):
            self.moves[str(envelope.id)] = (str(event.pool), event.to_partition)
        self._land(side, encode(envelope))
        repeatable = order is not None or not isinstance(event, NodeRegistered)
        if self.faulty and repeatable and self.rng.random() < 0.03:
            again = self.now_ms + self.rng.randrange(20_000)
            self.at(again, lambda: self.arrives(event, order=order, partition=partition))

    def _land(self, side: Side, value: bytes) -> None:
        side.waiting.append(pending(side.offset, value, HEADERS, side.proposer.limits))
        side.offset += 1

    # ---- owners

    def flush(self) -> None:
        for side in self.sides:
            while len(side.waiting) > 1 and self.rng.random() < 0.4:
                self._decide(side, side.waiting[: self.rng.randrange(1, len(side.waiting))], tick=self.rng.random() < 0.3)
            self._decide(side, side.waiting, tick=True)
            if self.faulty and self.rng.random() < 0.02:
                self._killed(side)

    def _decide(self, side: Side, batch: list[Pending], *, tick: bool) -> None:
        proposed = side.proposer.propose(side.folded, self.now_ms - side.skew_ms, batch, 0, tick=tick)
        assert proposed is not None
        side.journal.append(proposed.value)
        machine = side.proposer.machine
        side.folded, counted = fold_bytes(machine, side.folded, proposed.value)
        assert counted is not None
        here = frozenset(side.folded.state.pools)
        self.records.append((_as_handled(counted), here))
        side.waiting = [p for p in side.waiting if p.offset > side.folded.cursor]
        if side.folded.seq % SNAPSHOT_EVERY == 0:
            self.snapshots[side.partition, side.folded.seq] = state_hash(machine, side.folded.state)
        inputs, decisions = machine_part(counted)
        self.ended.update(str(d.job_id) for d in decisions if isinstance(d, JobForgotten))
        side.published = []
        for ordinal, effect in enumerate(machine.at(counted.fold_version).effects(counted.seq, counted.now_ms, inputs, decisions)):
            self._publish(side, effect, Order(side.partition, counted.seq, ordinal), counted.now_ms)
        for node in self.nodes.values():
            node.look()

    def _publish(self, side: Side, effect: Effect, order: Order, now_ms: int) -> None:
        if effect.topic == topics.ALLOCATIONS:
            assert effect.partition == OWN_PARTITION
            self.orders.append(effect.event)
            self.order_partitions.append(side.partition)
        elif effect.topic == topics.CONTROL:
            out = sent_of(effect, "schedule", order, now_ms)[0]
            side.published.append(out)
            self._send(side, out)
        elif effect.topic == topics.POOLS and isinstance(effect.event, PoolCreated):
            pool, partition = str(effect.event.pool), effect.event.partition
            self.pools[pool] = partition
            for node in self.nodes.values():
                if node.pool == pool and isinstance(node, MovingNode):
                    self.at(self.now_ms + self.delay(), lambda node=node, pool=pool: node.pool_is_on(self.pools[pool]))
        elif effect.topic == topics.POLICIES and "moved" in str(getattr(effect.event, "reason", "")):
            self.refused.append(str(getattr(effect.event, "reason", "")))

    def _send(self, side: Side, out: Outgoing) -> None:
        """To another partition, in order."""
        assert out.partition is not None and out.partition != side.partition
        path = (side.partition, out.partition)
        at_ms = self._arrive_ms[path] = max(self._arrive_ms.get(path, 0), self.now_ms + self.delay())
        to = self.sides[out.partition]
        self.at(at_ms, lambda: self._land(to, out.value))

    def _killed(self, side: Side) -> None:
        """The owner dies before it noted what it published: the next one folds the journal, and publishes the last record again."""
        machine: Any = ScheduleMachine()
        folded: Folded[ScheduleState] = begin(machine, side.partition)
        folded = replace(folded, level=min(side.folded.level, folded.level) if folded.level else 0)
        for value in side.journal:
            folded, _ = fold_bytes(machine, folded, value)
        assert state_hash(machine, folded.state) == state_hash(machine, side.folded.state)
        side.folded = replace(folded, state=machine.load(machine.dump(folded.state)))
        for out in side.published:
            self._send(side, out)

    # ---- for judges

    def records_of(self, pool: str) -> list[JournalRecord]:
        """All records in the order in which they were made, with what is about one pool: as one scheduler alone would write them."""
        found = []
        for record, here in self.records:
            inputs = tuple(i for i in record.inputs if pool in here or i.type != ClockTicked.event_type)
            decisions = tuple(d for d in record.decisions if self._is_of(pool, d))
            found.append(replace(record, inputs=inputs, decisions=decisions))
        return found

    def _is_of(self, pool: str, decision: Event) -> bool:
        job_id, node_id = str(getattr(decision, "job_id", "")), str(getattr(decision, "node_id", ""))
        if job_id in self.pool_of_job:
            return self.pool_of_job[job_id] == pool
        if node_id in self.nodes:
            return self.nodes[node_id].pool == pool
        return str(getattr(decision, "pool", pool)) == pool

    # ---- people

    def move(self, pool: str, to_partition: int) -> None:
        """An operator asks that a pool move."""
        about = {"pool": pool, "to_partition": to_partition, "user": "ada", "reason": "room"}
        self.ask(MovePool.model_validate(about))

    def end_reviews(self) -> None:
        """Somebody lets go on what is under review, wherever it is."""
        for side in self.sides:
            for job_id, job in sorted(side.folded.state.jobs.items()):
                if isinstance(job.phase, UnderReview):
                    self.ask(review(job_id, ReviewAction.GO_ON))


def _as_handled(record: JournalRecord) -> JournalRecord:
    """The record with the inputs that were handled in it, as they came first; those that were passed on are in another one."""
    passed_on = {d.offset for d in record.decisions if isinstance(d, InputRedirected)}
    joined = [(d.node_id, d.incarnation) for d in record.decisions if isinstance(d, NodeJoined)]
    inputs = []
    for item in record.inputs:
        event = item.envelope.event if item.envelope is not None else None
        if item.offset is not None and item.offset in passed_on:
            continue
        if isinstance(event, RedirectedInput):
            came = unwrapped(event)
            if isinstance(came.event, NodeRegistered):
                if (came.event.node_id, came.event.incarnation) not in joined:
                    continue  # a repeat, or the node registered at this partition itself since
                joined.remove((came.event.node_id, came.event.incarnation))
            item = JournaledInput(item.offset, came)
        inputs.append(item)
    return replace(record, inputs=tuple(inputs))
