"""Emulated nodes of one pool: dispatch of commands, faults, and counts.

Holds: a command reaches every node on which it could change anything, and no command at or below the newest of its partition is taken; so
each node is where it would be had it read the whole topic. One fault at a time for a node.
Never: reads a clock or a socket; `now_ms` comes in, records go out by the outbox it is given.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from trainhouse.events import (
    CheckpointRequested,
    Event,
    GangAllocated,
    GangReleased,
    NodeDesiredState,
    NodeLost,
    NodeOrders,
    NodeProbeAsked,
    OperationRequest,
    Order,
    PoolCreated,
    RankExited,
)
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.wire.topics import CONTROL
from trainhouse.workers.agent.core import AttemptKey, Command, Identity, Report
from trainhouse.workers.agent.ship.outbox import Outbox
from trainhouse.workers.agent.ship.reports import Reports
from trainhouse.workers.fleet.disk import Disk
from trainhouse.workers.fleet.faults import RANK_FAULTS, NodeFault, Rate
from trainhouse.workers.fleet.gangs import Gangs
from trainhouse.workers.fleet.hardware import Hardware
from trainhouse.workers.fleet.node import EmulatedNode
from trainhouse.workers.fleet.scripts import Scripts
from trainhouse.workers.fleet.seeded_random import draw
from trainhouse.workers.fleet.timers import Timers
from trainhouse.workers.fleet.uplink import Uplink


@dataclass(frozen=True)
class Plan:
    """Plan of a fleet. `faults`: at exact moments, their `at_ms` counted from the start, or on nodes that are busy."""

    hardware: Hardware
    scripts: Scripts
    heartbeat_s: float = 10.0
    faults: tuple[NodeFault, ...] = ()


MAX_STRUCK = 10_000
# How often a fault that waits for a busy node looks: a gang that ends before the next look had no time to be one that it meant.
LOOK_MS = 100


@dataclass(frozen=True)
class Struck:
    """A fault that happened. `hit`: (job, epoch) of each attempt that had ranks on the node."""

    at_ms: int
    node_id: str
    kind: str
    hit: tuple[tuple[str, int], ...]


@dataclass
class Tally:
    """Counts so far."""

    allocated: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    passed_over: int = 0
    """Faults whose node was in trouble already, or had no rank to strike; planned ones that did not come before the fleet's end."""
    struck: deque[Struck] = field(default_factory=lambda: deque(maxlen=MAX_STRUCK))


class Fleet:
    """One pool's nodes. One thread only."""

    def __init__(self, plan: Plan, partition: int, run_id: str, outbox: Outbox, pulse: EventProducer) -> None:
        self.plan = plan
        self.pool = plan.hardware.pool
        self.partition = partition
        self.run_id = run_id
        self.timers = Timers()
        self.gangs = Gangs(self.timers)
        self.scripts = plan.scripts
        self.tally = Tally()
        self.now_ms = 0
        self._outbox = outbox
        self._pulse = pulse
        self._acks: deque[Callable[[int], None]] = deque()
        self._order: dict[int, Order] = {}
        self._holders: dict[str, set[str]] = {}
        self._jobs_of: dict[str, set[str]] = {}
        self._leaving: dict[str, EmulatedNode] = {}
        self._until_lost: dict[str, Callable[[int], None]] = {}
        self.nodes = {n.node_id: n for n in map(self._node, range(plan.hardware.nodes))}
        self._by_index = list(self.nodes.values())
        self._index = {node.node_id: index for index, node in enumerate(self._by_index)}
        self._closing = False
        # By their place in the plan, in which equal ones may stand twice.
        self._to_come: set[int] = set()

    def start(self, now_ms: int) -> None:
        """Powers all nodes on and sets the faults."""
        self.now_ms = now_ms
        for node in self._by_index:
            node.boot(now_ms)
        self._to_come.update(range(len(self.plan.faults)))
        for place, fault in enumerate(self.plan.faults):
            if fault.busy_ms is None:
                self._set(place, now_ms + fault.at_ms)
            else:
                self._when_busy(place, now_ms)
        for rate in self.scripts.faults.rates:
            self._next(rate, 0, now_ms)

    def on_event(self, event: Event, order: Order | None, now_ms: int) -> None:
        """One record of allocations, verdicts, operations or pools."""
        self.now_ms = now_ms
        if isinstance(event, PoolCreated):
            self._located(event)
            return
        if isinstance(event, OperationRequest):
            if event.node_id in self.nodes:
                self.nodes[event.node_id].operation(event, now_ms)
            return
        if getattr(event, "pool", self.pool) != self.pool:
            return
        if order is not None:
            known = self._order.get(order.partition)
            if known is not None and order <= known:
                return
            self._order[order.partition] = order
        self.tally.allocated += isinstance(event, GangAllocated)
        command = Command(event, order)
        for node_id in self._concerned(event):
            self.nodes[node_id].command(command, now_ms)
        if isinstance(event, NodeLost):
            self._given_up(event, now_ms)

    def _given_up(self, event: NodeLost, now_ms: int) -> None:
        """A node is back whose fault lasts until the detector's verdict on this boot of it."""
        node_id = str(event.node_id)
        if node_id in self._until_lost and self.nodes[node_id].boot_id == event.boot_id:
            self._until_lost.pop(node_id)(now_ms)

    def _located(self, event: PoolCreated) -> None:
        """The pool's partition, if it is of this pool. All commands of the one before were heard."""
        if event.pool == self.pool and event.partition != self.partition:
            self.partition = event.partition
            for node in self._by_index:
                node.moved()

    def advance(self, now_ms: int) -> None:
        """Does what is due."""
        self.now_ms = now_ms
        self.timers.run(now_ms)

    def take_acks(self, now_ms: int) -> None:
        """Delivers the brokers' acks to the agents. Call it after each poll of the producer."""
        while self._acks:
            self._acks.popleft()(now_ms)
        if self._leaving and not self._outbox.holds(CONTROL):
            leaving, self._leaving = self._leaving, {}
            for node in leaving.values():
                node.quiet(now_ms)

    def shut_down(self, grace_ms: int, now_ms: int) -> None:
        """Asks every agent to stop its ranks and end. From now on nothing goes wrong any more, and nothing comes back: planned faults that
        did not come are passed over."""
        self.now_ms = now_ms
        self._closing = True
        self.tally.passed_over += len(self._to_come)
        self._to_come.clear()
        for node in self._by_index:
            if node.cut:
                node.mend(now_ms)
            if node.agent is not None:
                node.agent.shut_down(grace_ms, now_ms)

    def empty(self) -> bool:
        """Returns whether no agent has an attempt left."""
        return not any(n.agent.state.attempts for n in self._by_index if n.agent is not None)

    def up(self) -> int:
        """Nodes with nothing wrong."""
        return sum(not n.troubled for n in self._by_index)

    def answered(self) -> int:
        """Nodes whose registration the scheduler has answered."""
        return sum(n.answered for n in self._by_index)

    def uplink(self, identity: Identity, disk: Disk, acked: Callable[[AttemptKey], None]) -> Uplink:
        def clock_ms() -> int:
            return self.now_ms

        def waited(report: Report) -> None:
            if isinstance(report.event, RankExited):
                uplink.ship()  # what the rank wrote goes before its end

        reports = Reports(self._outbox, self._pulse, identity, acked, clock_ms, waited)
        uplink = Uplink(reports, self._outbox, disk, identity.node_id, clock_ms)
        return uplink

    def leaving(self, node: EmulatedNode) -> None:
        self._leaving[node.node_id] = node

    def acked(self, then: Callable[[int], None]) -> None:
        self._acks.append(then)

    def changed(self, node: EmulatedNode) -> None:
        before, after = self._jobs_of.get(node.node_id, set()), node.jobs()
        self._jobs_of[node.node_id] = after
        for job_id in after - before:
            self._holders.setdefault(job_id, set()).add(node.node_id)
        for job_id in before - after:
            holders = self._holders[job_id]
            holders.discard(node.node_id)
            if not holders:
                del self._holders[job_id]

    def share(self, *names: object) -> float:
        return draw(self.plan.hardware.seed, *names)

    def _node(self, index: int) -> EmulatedNode:
        hardware = self.plan.hardware
        return EmulatedNode(hardware.node_id(index), hardware.facts(index), self.plan.heartbeat_s, self)

    def _concerned(self, event: Event) -> list[str]:
        """Nodes on which the event could change more than the order token, in a fixed order."""
        named: Iterable[str] = ()
        match event:
            case GangAllocated():
                named = (p.node_id for p in event.placements)
            case GangReleased() | CheckpointRequested():
                named = event.node_ids
            case NodeDesiredState() | NodeOrders() | NodeLost() | NodeProbeAsked():
                named = (event.node_id,)
            case _:
                return []
        # A newer epoch ends older ones wherever they are, on nodes that it does not name too.
        holders = self._holders.get(event.job_id, set()) if isinstance(event, GangAllocated | GangReleased) else set()
        return sorted({str(n) for n in named if n in self.nodes} | holders)

    def _set(self, place: int, at_ms: int) -> None:
        self.timers.at(at_ms, lambda now_ms: self._strike_planned(place, self.plan.faults[place], now_ms))

    def _strike_planned(self, place: int, fault: NodeFault, now_ms: int) -> None:
        if place in self._to_come:
            self._to_come.discard(place)
            self.strike(fault, now_ms)

    def _when_busy(self, place: int, now_ms: int) -> None:
        """Strikes once a gang has trained on the fault's node for long enough; looks again until then."""
        if self._closing:
            return
        fault = self.plan.faults[place]
        trained_ms: dict[int, int] = {}
        for run in self.gangs.running:
            for node_id in run.hosts:
                if not self.nodes[node_id].troubled:
                    index = self._index[node_id]
                    trained_ms[index] = max(trained_ms.get(index, 0), run.trained_ms(now_ms))
        node = fault.struck(trained_ms)
        if node is None:
            self.timers.at(now_ms + LOOK_MS, lambda then_ms: self._when_busy(place, then_ms))
        else:
            self._strike_planned(place, replace(fault, node=node), now_ms)

    def _next(self, rate: Rate, number: int, after_ms: int) -> None:
        fault = self.scripts.faults.next_of(rate, self.plan.hardware.seed, number, after_ms, len(self._by_index))

        def strike(now_ms: int) -> None:
            self._next(rate, number + 1, now_ms)
            self.strike(fault, now_ms)

        self.timers.at(fault.at_ms, strike)

    def strike(self, fault: NodeFault, now_ms: int) -> None:
        """A fault happens, unless its node is in trouble already; the node comes back by itself after the fault's time."""
        assert fault.node is not None, "a fault strikes once it has its node"
        node = self._by_index[fault.node]
        hit = tuple((str(key.job_id), int(key.epoch)) for key in node.attempts())
        if self._closing or node.troubled or (fault.kind in RANK_FAULTS and not hit):
            self.tally.passed_over += 1
            return
        self.tally.faults[fault.kind] = self.tally.faults.get(fault.kind, 0) + 1
        self.tally.struck.append(Struck(now_ms, node.node_id, fault.kind, hit))
        match fault.kind:
            case "device" | "hang":
                node.strike_rank(fault.kind, now_ms)
            case "notice":
                self._notice(node, fault, now_ms)
            case "die":
                node.power_off(now_ms)
                self._back(fault, node.boot, now_ms)
            case "silent":
                node.cut_off()
                self._back(fault, node.mend, now_ms)
            case "restart":
                node.stop_agent()
                self._back(fault, node.start_agent, now_ms)

    def _notice(self, node: EmulatedNode, fault: NodeFault, now_ms: int) -> None:
        """The node is told, and gone at its deadline, whoever is still there."""
        deadline_ms = now_ms + round(fault.deadline_s * 1000)

        def goes(then_ms: int) -> None:
            if not self._closing:
                node.power_off(then_ms)
                self._back(fault, node.boot, then_ms)

        self.timers.at(deadline_ms, goes)
        node.notice(deadline_ms, now_ms)

    def _back(self, fault: NodeFault, back: Callable[[int], None], now_ms: int) -> None:
        if fault.until_lost:
            assert fault.node is not None
            self._until_lost[self._by_index[fault.node].node_id] = lambda then_ms: None if self._closing else back(then_ms)
        elif fault.for_s is not None:
            self.timers.at(now_ms + round(fault.for_s * 1000), lambda then_ms: None if self._closing else back(then_ms))
