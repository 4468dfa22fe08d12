"""Node agents as the scheduler's tests need them: they obey what they read, in order, and report, in their own time.

An agent asserts what no scheduler may ever do to it: give a device to a second attempt while the first one's ranks are alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.core_world import exited, lost, noticed, probed, progress, registered, started, stopped
from trainhouse.events import (
    AttemptRef,
    AttemptStopped,
    CheckpointRequested,
    Event,
    GangAllocated,
    GangReleased,
    NodeDesiredState,
    NodeLost,
    NodeProbeAsked,
    NodeRegistered,
)

Key = tuple[str, int]
EXIT_STOPPED = 75


@dataclass
class SimAgent:
    """One node. `outbox` holds what it has to say, oldest first."""

    name: str
    slots: int
    boot: int = 1
    incarnation: int = 1
    running: dict[Key, GangAllocated] = field(default_factory=dict)
    left: dict[Key, set[int]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    outbox: list[Event] = field(default_factory=list)
    position: int = 0

    def registration(self) -> NodeRegistered:
        """As it is now."""
        refs = [AttemptRef(job_id=g.job_id, attempt=g.attempt, epoch=g.epoch) for g in self.running.values()]
        ports = [20_000 + 10 * self.incarnation + i for i in range(self.slots)]
        ids = {"boot_id": f"boot-{self.boot}", "incarnation": f"inc-{self.incarnation}"}
        return registered(self.name, self.slots, running=refs, rendezvous_ports=ports, **ids)

    def register(self) -> None:
        """Says who it is and what it runs."""
        self.outbox.append(self.registration())

    def restart(self) -> None:
        """The agent's process dies and comes back; the ranks live on."""
        self.incarnation += 1
        self.register()

    def reboot(self) -> None:
        """The machine goes down and comes back: nothing that was unsaid is ever said."""
        self.boot += 1
        self.running.clear()
        self.left.clear()
        self.outbox.clear()
        self.restart()

    def notice(self, deadline_ms: int) -> None:
        """It is told that it goes away, and says so."""
        self.outbox.append(noticed(self.registration(), deadline_ms))

    def verdict(self) -> NodeLost:
        """What a detector says of its present registration."""
        return lost(self.registration())

    def obey(self, order: Event) -> None:
        """One order, read from the allocations."""
        match order:
            case GangAllocated():
                self._allocated(order)
            case CheckpointRequested() if self.name in order.node_ids and order.then_stop:
                self._saves_and_ends((str(order.job_id), int(order.epoch)))
            case GangReleased() if self.name in order.node_ids:
                self._released(order)
            case NodeProbeAsked() if order.node_id == self.name and order.boot_id == f"boot-{self.boot}":
                self.outbox.append(probed(order, order.probe > 1))
            case NodeDesiredState() if order.node_id == self.name and order.incarnation == f"inc-{self.incarnation}":
                wanted = {(str(g.job_id), int(g.epoch)) for g in order.allocations}
                for key in [k for k in self.running if k not in wanted]:
                    self._kill(key)
                for gang in order.allocations:
                    self._allocated(gang)

    def _allocated(self, gang: GangAllocated) -> None:
        part, key = gang.on_node(self.name), (str(gang.job_id), int(gang.epoch))
        if part is None or part.boot_id != f"boot-{self.boot}" or key in self.running or gang.epoch <= self.seen.get(gang.job_id, 0):
            return
        self.seen[gang.job_id] = int(gang.epoch)
        for other in [k for k in self.running if k[0] == gang.job_id]:
            self._kill(other)
        for running in self.running.values():
            mine = running.on_node(self.name)
            assert mine is not None
            if running.spec.shares_device and gang.spec.shares_device:
                continue
            assert not set(mine.devices) & set(part.devices), f"{self.name}: {running.job_id} still runs on a device of {gang.job_id}"
        self.running[key] = gang
        self.left[key] = set(part.ranks)
        self.outbox.append(started(gang, self.name))

    def _saves_and_ends(self, key: Key) -> None:
        for rank in sorted(self.left.get(key, ())):
            self.exit(key, rank, EXIT_STOPPED)

    def _released(self, order: GangReleased) -> None:
        key = (str(order.job_id), int(order.epoch))
        if key in self.running:
            self._kill(key)
        else:
            self.seen[order.job_id] = max(self.seen.get(order.job_id, 0), int(order.epoch))
            self.outbox.append(self._nothing_left(order))

    def _nothing_left(self, order: GangReleased) -> AttemptStopped:
        about = {"job_id": order.job_id, "attempt": order.attempt, "epoch": order.epoch, "pool": order.pool}
        return AttemptStopped.model_validate(about | {"node_id": self.name, "boot_id": f"boot-{self.boot}", "stopped_at_ms": 1})

    def _kill(self, key: Key) -> None:
        gang, left = self.running.pop(key), self.left.pop(key)
        self.outbox.extend(exited(gang, rank, None, 9) for rank in sorted(left))
        self.outbox.append(stopped(gang, self.name))

    def ranks(self) -> Iterator[tuple[Key, int]]:
        """Every rank that is alive here."""
        for key, left in self.left.items():
            yield from ((key, rank) for rank in sorted(left))

    def train(self, key: Key, step: int) -> None:
        """Rank 0's node tells of a step."""
        if self.running[key].placements[0].node_id == self.name:
            self.outbox.append(progress(self.running[key], step))

    def exit(self, key: Key, rank: int, code: int) -> None:
        """A rank exits by itself; the last one takes the attempt with it."""
        gang = self.running[key]
        self.left[key].discard(rank)
        self.outbox.append(exited(gang, rank, code))
        if not self.left[key]:
            del self.running[key], self.left[key]
            self.outbox.append(stopped(gang, self.name))
