"""Nodes of a simulated fleet in virtual time: they obey orders in the order of the log, late, and report, late, as real agents do.

Holds: a node launches an attempt when no other one is on its devices; what it has to say leaves in order, but reports of one
registration may overtake each other a little; a reboot forgets all, unsaid reports included; a cut node's ranks go on.
Never: reads the scheduler's state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.core_world import exited, lost, registered, started
from trainhouse.events import (
    AttemptRef,
    AttemptStopped,
    CheckpointRequested,
    Event,
    GangAllocated,
    GangReleased,
    NodeDesiredState,
    NodeLost,
    NodeNoticed,
    NodePlacement,
    NodeProbeAsked,
    NodeProbed,
    NodeRegistered,
)

if TYPE_CHECKING:
    from tests.simulation.schedule_world import World

Key = tuple[str, int]
EXIT_SAVED = 75


@dataclass
class Local:
    """One attempt's part here. `phase`: waiting, starting, running or stopping."""

    gang: GangAllocated
    part: NodePlacement
    left: set[int]
    phase: str = "waiting"


@dataclass
class VirtualNode:
    """One node with its agent. `position`: how far it has read the orders; `latest_ms`: when the last of its reports arrives."""

    world: World
    name: str
    slots: int
    device_type: str
    pool: str
    labels: dict[str, str]
    boot: int = 1
    incarnation: int = 1
    cut: bool = False
    attempts: dict[Key, Local] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    position: int = 0
    reading: bool = False
    latest_ms: int = 0
    ordered_ms: int = 0
    held: list[Event] = field(default_factory=list)

    # ---- who it is

    def registration(self) -> NodeRegistered:
        """As it is now."""
        refs = [AttemptRef(job_id=x.gang.job_id, attempt=x.gang.attempt, epoch=x.gang.epoch) for x in self.attempts.values()]
        ids = {"boot_id": f"boot-{self.boot}", "incarnation": f"inc-{self.incarnation}", "pool": self.pool, "labels": self.labels}
        ports = [20_000 + i for i in range(self.slots)]
        return registered(self.name, self.slots, device_type=self.device_type, running=refs, rendezvous_ports=ports, **ids)

    def register(self) -> None:
        """Says who it is: after all that it said before, and before all that it says from now on."""
        self.ordered_ms = self.latest_ms = max(self.latest_ms, self.world.now_ms + self.world.delay())
        self._send(self.registration(), self.ordered_ms)

    def verdict(self) -> NodeLost:
        """What a detector says of its present registration."""
        return lost(self.registration())

    # ---- faults

    def notice(self, seconds: int) -> None:
        """It is told that it goes away, and so it does, unless something happened to it meanwhile; another boot of it comes back."""
        boot, incarnation, world = self.boot, self.incarnation, self.world
        about = {"node_id": self.name, "boot_id": f"boot-{boot}", "incarnation": f"inc-{incarnation}", "pool": self.pool}
        deadline_ms = world.now_ms + 1000 * seconds
        more = {"source": "file", "reason": "spot", "deadline_ms": deadline_ms, "at_ms": world.now_ms}
        self.say(NodeNoticed.model_validate(about | more))
        world.at(deadline_ms, lambda: self.reboot() if (self.boot, self.incarnation) == (boot, incarnation) and not self.cut else None)

    def restart(self, *, keep: bool = True) -> None:
        """The agent's process dies and comes back; the ranks live on, or (not `keep`) it finds them dead and says so."""
        self.incarnation += 1
        self.position = len(self.world.orders)
        if not keep:
            for key in list(self.attempts):
                self._gone(key)
        self.register()

    def reboot(self) -> None:
        """The machine goes down and comes back: what was unsaid is never said."""
        self.boot += 1
        for key in list(self.attempts):
            self.world.broken(key)
        self.attempts.clear()
        self.held.clear()
        self.cut = False
        self.restart()

    def mend(self, *, keep: bool = True) -> None:
        """The network is back: what waited goes out, then it registers."""
        self.cut = False
        for event in self.held:
            self.say(event)
        self.held = []
        self.restart(keep=keep)
        self.look()

    # ---- what it says

    def say(self, event: Event) -> None:
        """Reports, in order, or a little out of it."""
        world = self.world
        at_ms = max(self.ordered_ms, world.now_ms + world.delay())
        if world.faulty and world.rng.random() < 0.05:
            at_ms += world.rng.randrange(3_000)
        else:
            self.ordered_ms = at_ms
        self.latest_ms = max(self.latest_ms, at_ms)
        self._send(event, at_ms)

    def _send(self, event: Event, at_ms: int) -> None:
        boot = self.boot

        def arrive() -> None:
            if boot != self.boot:
                return
            if self.cut:
                self.held.append(event)
            else:
                self.world.arrives(event)

        self.world.at(at_ms, arrive)

    def _about(self, gang: GangAllocated | GangReleased) -> dict[str, Any]:
        return {"job_id": gang.job_id, "attempt": gang.attempt, "epoch": gang.epoch, "node_id": self.name, "pool": gang.pool}

    def _stopped(self, gang: GangAllocated | GangReleased) -> None:
        ids = {"boot_id": f"boot-{self.boot}", "stopped_at_ms": self.world.now_ms}
        self.say(AttemptStopped.model_validate(self._about(gang) | ids))

    # ---- what it is told

    def look(self) -> None:
        """There are orders that it has not read."""
        if not self.reading and not self.cut and self.position < len(self.world.orders):
            self.reading = True
            self.world.at(self.world.now_ms + self.world.delay(), self._read)

    def _read(self) -> None:
        self.reading = False
        while not self.cut and self.position < len(self.world.orders):
            order = self.world.orders[self.position]
            self.position += 1
            self._obey(order)

    def _obey(self, order: Event) -> None:
        match order:
            case GangAllocated():
                self._allocated(order)
            case CheckpointRequested() if self.name in order.node_ids and order.then_stop:
                self.world.saves((str(order.job_id), int(order.epoch)))
            case GangReleased() if self.name in order.node_ids:
                self._released(order)
            case NodeProbeAsked() if order.node_id == self.name and order.boot_id == f"boot-{self.boot}":
                tried = set(order.devices)
                busy = sorted(k for k, local in self.attempts.items() if not tried or tried & set(local.part.devices))
                assert not busy, f"{self.name} is asked for a self test of {sorted(tried) or 'all'} while it runs {busy}"
                passed = not self.world.faulty or self.world.rng.random() < 0.6
                about = order.model_dump(include={"node_id", "boot_id", "pool", "probe"})
                self.say(NodeProbed.model_validate(about | {"passed": passed, "at_ms": self.world.now_ms}))
            case NodeDesiredState() if order.node_id == self.name and order.incarnation == f"inc-{self.incarnation}":
                wanted = {(str(g.job_id), int(g.epoch)) for g in order.allocations}
                self._end([k for k in self.attempts if k not in wanted])
                for gang in order.allocations:
                    self._allocated(gang)

    def _allocated(self, gang: GangAllocated) -> None:
        part, key = gang.on_node(self.name), (str(gang.job_id), int(gang.epoch))
        self._end([k for k in self.attempts if k[0] == key[0] and k[1] < key[1]])
        if part is None or part.boot_id != f"boot-{self.boot}" or key in self.attempts or key[1] <= self.seen.get(key[0], 0):
            return
        self.seen[key[0]] = key[1]
        self.attempts[key] = Local(gang, part, set(part.ranks))
        self._launch_what_may()

    def _launch_what_may(self) -> None:
        for key, local in sorted(self.attempts.items()):
            if local.phase == "waiting" and not any(self._in_the_way(local, other) for other in self.attempts.values()):
                local.phase = "starting"
                self.world.at(self.world.now_ms + self.world.start_delay(), lambda key=key, boot=self.boot: self._up(key, boot))

    def _in_the_way(self, local: Local, other: Local) -> bool:
        if other is local or other.phase == "waiting":
            return False
        if local.gang.spec.shares_device and other.gang.spec.shares_device:
            return False
        return bool(set(local.part.devices) & set(other.part.devices))

    def _up(self, key: Key, boot: int) -> None:
        local = self.attempts.get(key)
        if boot == self.boot and local is not None and local.phase == "starting":
            local.phase = "running"
            self.say(started(local.gang, self.name))
            self.world.part_up(key, self)

    def _released(self, order: GangReleased) -> None:
        key = (str(order.job_id), int(order.epoch))
        if key in self.attempts:
            self._end([key])
        else:
            self.seen[key[0]] = max(self.seen.get(key[0], 0), key[1])
            self._stopped(order)

    # ---- ends

    def _end(self, keys: Iterable[Key]) -> None:
        """Kills ranks; that takes its time."""
        for key in keys:
            local = self.attempts[key]
            if local.phase != "stopping":
                local.phase = "stopping"
                self.world.broken(key)
                self.world.at(self.world.now_ms + self.world.delay(), lambda key=key, boot=self.boot: boot == self.boot and self._gone(key))

    def _gone(self, key: Key) -> None:
        local = self.attempts.get(key)
        if local is not None:
            self.world.broken(key)
            for rank in sorted(local.left):
                self.say(exited(local.gang, rank, None, 9))
            self._finished(key)

    def exit(self, key: Key, rank: int, code: int) -> None:
        """A rank exits by itself; the last one takes the attempt with it."""
        local = self.attempts.get(key)
        if local is None or rank not in local.left:
            return
        local.left.discard(rank)
        self.say(exited(local.gang, rank, code))
        if not local.left:
            self._finished(key)

    def _finished(self, key: Key) -> None:
        self._stopped(self.attempts.pop(key).gang)
        self._launch_what_may()
