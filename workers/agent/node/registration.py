"""Registration and heartbeats of a node.

Holds: a heartbeat costs no more than a few reads of memory; it is told again a second later, so none is ever kept or repeated.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from trainhouse.events import (
    AttemptHeartbeat,
    AttemptRef,
    JobId,
    NodeHeartbeat,
    NodeId,
    NodeRegistered,
    PoolName,
    RankHeartbeat,
    RankState,
)
from trainhouse.events.model.node import NodeIsolation
from trainhouse.workers.agent.core import AgentState, AttemptKey, Identity, LocalAttempt
from trainhouse.workers.agent.core.agent_state import Launching, Waiting
from trainhouse.workers.agent.node.devices import DeviceSource
from trainhouse.workers.agent.ship.rank_shipper import OF_LIFE, RankProgress

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """Names this boot of the machine; another machine without such a file gets the time of its boot."""
    try:
        return BOOT_ID.read_text().strip()
    except FileNotFoundError:
        return f"boot-{psutil.boot_time():.0f}"


def this_machine() -> tuple[float, int]:
    """Returns the number of processors of this machine, and its bytes of memory."""
    return float(psutil.cpu_count() or 0), int(psutil.virtual_memory().total)


def new_identity(node_id: str, boot_id: str, pool: str) -> Identity:
    """An identity for one start of the agent."""
    return Identity(node_id, boot_id, uuid.uuid4().hex, pool)


def again(identity: Identity) -> Identity:
    """The same node under a new incarnation."""
    return replace(identity, incarnation=uuid.uuid4().hex)


@dataclass(frozen=True)
class NodeFacts:
    """Facts that do not change while the agent lives."""

    address: str
    ports: tuple[int, ...]
    labels: Mapping[str, str]
    devices: DeviceSource
    cpus: float
    memory_bytes: int
    isolation: Callable[[], NodeIsolation] | None = None
    public_key: str = ""

    def registration(self, state: AgentState) -> NodeRegistered:
        me = state.identity
        return NodeRegistered(
            node_id=NodeId(me.node_id),
            boot_id=me.boot_id,
            incarnation=me.incarnation,
            pool=PoolName(me.pool),
            address=self.address,
            devices=self.devices.devices(),
            rendezvous_ports=self.ports,
            cpus=self.cpus,
            memory_bytes=self.memory_bytes,
            labels=dict(self.labels),
            public_key=self.public_key,
            running=tuple(
                AttemptRef(job_id=JobId(k.job_id), attempt=a.allocation.attempt, epoch=a.allocation.epoch)
                for k, a in state.attempts.items()
            ),
            isolation=self.isolation() if self.isolation is not None else None,
        )


@dataclass(frozen=True)
class Pulse:
    """Source of a heartbeat's facts."""

    interval_s: float
    devices: DeviceSource
    progress: Callable[[AttemptKey, int], RankProgress]
    pid: Callable[[AttemptKey, int], int | None]

    def beat(self, state: AgentState, sequence: int, now_ms: int, spool_lag_bytes: int) -> NodeHeartbeat:
        me = state.identity
        return NodeHeartbeat(
            node_id=NodeId(me.node_id),
            boot_id=me.boot_id,
            incarnation=me.incarnation,
            pool=PoolName(me.pool),
            sequence=sequence,
            at_ms=now_ms,
            interval_s=self.interval_s,
            attempts=tuple(self._attempt(a) for a in state.attempts.values() if not isinstance(a.phase, Waiting)),
            devices=self.devices.health(),
            spool_lag_bytes=spool_lag_bytes,
        )

    def _attempt(self, attempt: LocalAttempt) -> AttemptHeartbeat:
        of = attempt.allocation
        ranks = tuple(self._rank(attempt, rank) for rank in attempt.placement.ranks)
        return AttemptHeartbeat(job_id=of.job_id, attempt=of.attempt, epoch=of.epoch, ranks=ranks)

    def _rank(self, attempt: LocalAttempt, rank: int) -> RankHeartbeat:
        newest = self.progress(attempt.key, rank)
        state = RankState.RUNNING
        if rank in attempt.exited or not attempt.has_processes:
            state = RankState.EXITED
        elif isinstance(attempt.phase, Launching) or newest.step is None:
            state = RankState.STARTING
        return RankHeartbeat(
            rank=rank,
            device_id=attempt.placement.devices[rank - attempt.placement.first_rank],
            pid=self.pid(attempt.key, rank),
            state=state,
            step=newest.step,
            step_at_ms=newest.step_at_ms,
            step_time_ms=1000 / newest.steps_per_s if newest.steps_per_s else None,
            **{name: getattr(newest, name) for name in OF_LIFE},
        )
