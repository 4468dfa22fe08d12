"""A stage for emulated fleets without brokers: records are kept, acked when told, and a hand-written scheduler's voice gives orders.

Never: decides anything; a test says what is allocated and released, and what time it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from trainhouse.events import (
    CheckpointRequested,
    Envelope,
    Event,
    GangAllocated,
    GangReleased,
    NodeDesiredState,
    NodeLost,
    NodePlacement,
    Order,
)
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.workers.agent.ship.outbox import Outbox
from trainhouse.workers.fleet.durations import parse_durations
from trainhouse.workers.fleet.faults import FaultPlan, NodeFault
from trainhouse.workers.fleet.fleet import Fleet, Plan
from trainhouse.workers.fleet.hardware import Hardware
from trainhouse.workers.fleet.scripts import Defaults, Rule, Scripts

T = TypeVar("T", bound=Event)
PARTITION = 2
START_MS = 1_000_000


class Records:
    """Stands where the outbox and the heartbeats' producer do: keeps what is sent, acks when polled."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Envelope]] = []
        self.at: list[int] = []
        self._unacked: list[str] = []
        self.beats: list[Envelope] = []
        self.full = False
        self._acks: list[Callable[[], None]] = []

    def room(self) -> bool:
        return not self.full

    def offer(self, topic: str, envelope: Envelope, *, key: str, partition: int = -1, on_ack: Callable[[], None] | None = None) -> None:
        self.sent.append((topic, envelope))
        self.at.append(partition)
        self._unacked.append(topic)
        if on_ack is not None:
            self._acks.append(on_ack)

    def holds(self, topic: str) -> bool:
        return topic in self._unacked

    def send(self, topic: str, envelope: Envelope, **_: object) -> None:
        self.beats.append(envelope)

    def poll(self) -> None:
        acks, self._acks, self._unacked = self._acks, [], []
        for ack in acks:
            ack()


@dataclass
class Stage:
    """A fleet and the voice."""

    fleet: Fleet
    records: Records
    now_ms: int = START_MS
    orders: int = 0
    placed: dict[tuple[str, int], GangAllocated] = field(default_factory=dict)

    def hear(self, event: Event, order: Order | None = None) -> None:
        """One record of the scheduler's, with the next order token unless one is given."""
        self.orders += 1
        self.fleet.on_event(event, order or Order(PARTITION, self.orders, 0), self.now_ms)

    def verdict(self, event: Event) -> None:
        self.fleet.on_event(event, None, self.now_ms)

    def allocate(self, job: str, parts: dict[int, list[int]], epoch: int = 1, **spec: object) -> GangAllocated:
        """Orders a gang: `parts` gives each node's device positions."""
        event = self.gang(job, parts, epoch, **spec)
        self.placed[(job, epoch)] = event
        self.hear(event)
        return event

    def gang(self, job: str, parts: dict[int, list[int]], epoch: int = 1, **spec: object) -> GangAllocated:
        hardware, first, placements = self.fleet.plan.hardware, 0, []
        for index, positions in parts.items():
            node = self.fleet.nodes[hardware.node_id(index)]
            devices = node._facts.devices.devices()
            placements.append(
                NodePlacement.model_validate(
                    {
                        "node_id": node.node_id,
                        "boot_id": node._boot_id,
                        "address": "10.0.0.1",
                        "first_rank": first,
                        "devices": tuple(devices[p].device_id for p in positions),
                    }
                )
            )
            first += len(positions)
        return GangAllocated.model_validate(
            {
                "job_id": job,
                "attempt": epoch - 1,
                "epoch": epoch,
                "pool": self.fleet.pool,
                "spec": {"gang": first, "pool": self.fleet.pool, "runtime": {"command": ("emulated",)}} | spec,
                "spec_sha256": "0" * 64,
                "placements": tuple(placements),
                "master_address": "10.0.0.1",
                "master_port": 30000,
            }
        )

    def release(self, job: str, epoch: int = 1, grace_s: float = 5.0) -> None:
        of = self.placed[(job, epoch)]
        nodes = tuple(p.node_id for p in of.placements)
        self.hear(
            GangReleased(
                job_id=of.job_id, attempt=of.attempt, epoch=of.epoch, pool=of.pool, node_ids=nodes, reason="a test says so", grace_s=grace_s
            )
        )

    def ask_checkpoint(self, job: str, epoch: int = 1, then_stop: bool = True) -> None:
        of = self.placed[(job, epoch)]
        self.hear(
            CheckpointRequested(
                job_id=of.job_id,
                attempt=of.attempt,
                epoch=of.epoch,
                pool=of.pool,
                node_ids=tuple(p.node_id for p in of.placements),
                reason="a test says so",
                deadline_ms=self.now_ms + 60_000,
                then_stop=then_stop,
            )
        )

    def answer(self, index: int, *allocations: GangAllocated) -> None:
        """The answer to a node's newest registration."""
        me = self.agent(index).state.identity
        self.hear(
            NodeDesiredState.model_validate(
                {"node_id": me.node_id, "boot_id": me.boot_id, "incarnation": me.incarnation, "pool": me.pool, "allocations": allocations}
            )
        )

    def lose(self, index: int) -> None:
        """A verdict on a node's newest registration."""
        me = self.agent(index).state.identity
        fields = {"node_id": me.node_id, "boot_id": me.boot_id, "incarnation": me.incarnation, "pool": me.pool}
        self.verdict(NodeLost.model_validate(fields | {"silent_s": 9.0, "evidence": "silence", "at_ms": self.now_ms}))

    def agent(self, index: int):  # type: ignore[no-untyped-def]
        found = self.fleet._by_index[index].agent
        assert found is not None
        return found

    def run(self, for_ms: int, acks: bool = True) -> None:
        """Time passes, thing by thing."""
        end_ms = self.now_ms + for_ms
        while True:
            if acks:
                self.records.poll()
                self.fleet.take_acks(self.now_ms)
            due_ms = self.fleet.timers.next_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.fleet.advance(self.now_ms)
        self.now_ms = end_ms

    def strike(self, index: int, kind: str, for_s: float | None) -> None:
        self.fleet.strike(NodeFault(self.now_ms, index, kind, for_s), self.now_ms)

    def told(self, kind: type[T], job: str | None = None) -> list[T]:
        """All records of a type so far, in order."""
        events = [e.event for _, e in self.records.sent]
        return [e for e in events if isinstance(e, kind) and (job is None or getattr(e, "job_id", None) == job)]


def stage(
    nodes: int = 4,
    gpus: int = 4,
    durations: str = "10",
    faults: FaultPlan | None = None,
    rules: tuple[Rule, ...] = (),
    heartbeat_s: float = 10.0,
    defaults: Defaults | None = None,
    planned: tuple[NodeFault, ...] = (),
) -> Stage:
    """A fleet that is up; nobody has answered its registrations."""
    hardware = Hardware("p", nodes, gpus)
    scripts = Scripts(parse_durations(durations), defaults or Defaults(), rules, faults or FaultPlan())
    records = Records()
    fleet = Fleet(Plan(hardware, scripts, heartbeat_s, planned), PARTITION, "test", cast(Outbox, records), cast(EventProducer, records))
    fleet.start(START_MS)
    return Stage(fleet, records)
